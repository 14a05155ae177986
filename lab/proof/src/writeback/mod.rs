//! Write-back on trial: the data that may be lost with the SSDs, and the data that may not.
//!
//! [`VolumeHistory`] is the checker. The checker learns when writes and flushes began and were answered,
//! and shares no code with the engine. A [`WriteBackCase`] is lives of a daemon that serves a volume by its
//! log. Each life is cut short at any disk operation, with or without the power of the origin and
//! of either device of the pool. A case passes if
//!
//! - no acknowledged write is lost while a copy or the origin has the write;
//! - flushed and forced writes are durable;
//! - the origin alone, as if the pool were destroyed at each cut, is an earlier state, also after a
//!   power cut of its own, and lacks no more than `max_lag`. A log with a journal is judged once
//!   the journal is replayed, as it reads or after a power cut. With a log that keeps no order each
//!   sector alone holds a value that was written there, and lacks no more;
//! - no client is given an error, and every life ends.

mod bench;
mod case;
mod history;
mod life;
mod replay;
mod report;
mod run;

use crate::campaign::Campaign;
pub use case::{LifeEnd, LifeLoss, WriteBackCase, WriteBackStep};
pub use history::{Earlier, Flush, HistoryOp, VolumeHistory};
#[cfg(feature = "nodes")]
pub(crate) use replay::replay as replay_journal;
pub use report::{Landing, Report};
pub use run::run;
use writelog::Cleaning;

/// The campaign of the log of that order.
pub struct WriteBackCampaign(pub Cleaning);

impl Campaign for WriteBackCampaign {
    type Class = Landing;

    fn case(&self, seed: u64) -> Report {
        run(&WriteBackCase::new(seed, self.0))
    }

    fn replay(&self, seed: u64) -> String {
        let mode = self.0.name();
        format!("hotset-lab crash --mode {mode} --cases 1 --seed {seed}")
    }

    fn classes(&self) -> Vec<Landing> {
        Landing::all(self.0).collect()
    }
}
