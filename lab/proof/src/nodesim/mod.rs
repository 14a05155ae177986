//! Nodes in the simulated world: the daemon that serves, built from an ordinary
//! configuration, on disks that are pulled, hang and lose power.
//!
//! The campaign: a seed makes a configuration and a few lives of its node. Clients read
//! and write while the node is changed by control and disks are lost and come back; each
//! life ends in order, by a kill or by a loss of power. A case passes if
//!
//! - every byte that is read is allowed by a model that knows no node;
//! - no request fails unless the loss of its origin or the end of a life explains that;
//! - with all disks back, everything is served and every acknowledged write is there;
//! - a node that has stopped has nothing open, runs no task and keeps no memory.

mod chaos;
mod client;
mod life;
mod logged;
mod mistakes;
#[cfg(test)]
mod recover;
mod reloads;
mod report;
#[cfg(test)]
mod returned;
mod run;
mod scenario;
pub mod write_back;

pub use crate::campaign::CampaignRequest;
pub use report::{Class, Report, Totals};
pub use run::run;

/// Runs a campaign and prints its report. The error describes the failure.
pub fn command(request: &CampaignRequest) -> Result<(), String> {
    crate::campaign::command(request, run, replay)
}

/// The command that repeats the case of `seed`.
pub fn replay(seed: u64) -> String {
    format!("hotset-lab node --cases 1 --seed {seed}")
}
