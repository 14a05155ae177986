//! Write-back on trial: what may be lost with the SSDs, and what may not.
//!
//! [`History`] is the checker. It learns when writes and flushes began and were
//! answered, and shares no code with the engine. A [`Case`] is lives of a daemon that
//! serves a volume by its log, each cut short at any disk operation, with or without the
//! power of the origin and of either device of the pool. A case passes if
//!
//! - no acknowledged write is lost while a copy or the origin has it;
//! - what was flushed, or forced, is durable;
//! - the origin alone, as if the pool were destroyed at each cut, is an earlier state,
//!   also after a power cut of its own, and lacks no more than `max_lag`; of a log with a
//!   journal once that is replayed, as it reads or after a power cut. Of a log that keeps no order each sector alone is something that was written there, and lacks no more;
//! - no client is given an error, and every life ends.

mod bench;
mod case;
mod command;
mod history;
mod life;
mod replay;
mod report;
mod run;

pub use crate::campaign::Request;
pub use case::{Case, Cut, Loss, Step};
pub use command::command;
pub use history::{Earlier, Flush, History, Op};
#[cfg(feature = "nodes")]
pub(crate) use replay::replay as replay_journal;
pub use report::{Landing, Report, Summary, Totals};
pub use run::{campaign, run};
use writelog::Cleaning;

/// The command that repeats the case of `seed`.
pub fn replay(seed: u64, cleaning: Cleaning) -> String {
    let mode = cleaning.name();
    format!("hotset-lab crash --mode {mode} --cases 1 --seed {seed}")
}
