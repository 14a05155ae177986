//! The campaign of ports: servers of a simulated kernel's queue are killed and stopped
//! under load, and every answer is checked.
//!
//! Invariants that every case must show:
//!     each request is answered, and once
//!     a read that does not overlap a change in flight returns the last acknowledged bytes
//!     when all has ended, the disk has the acknowledged bytes
//!
//! Not here: caches and arrays below (`nodesim`), and losses of power (`crash`).

mod client;
mod report;
mod run;

pub use crate::campaign::CampaignRequest;
pub use report::{Class, Report, Totals};
pub use run::run;

/// Runs a campaign and prints its report. The error describes the failure.
pub fn command(request: &CampaignRequest) -> Result<(), String> {
    crate::campaign::command(request, run, replay)
}

/// The command that runs the case of `seed` again.
pub fn replay(seed: u64) -> String {
    format!("hotset-lab port --cases 1 --seed {seed}")
}
