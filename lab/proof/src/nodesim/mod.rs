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

use crate::campaign::Campaign;
pub use report::{Class, Report};

/// The campaign of nodes.
pub struct NodeCampaign;

impl Campaign for NodeCampaign {
    type Class = Class;

    fn case(&self, seed: u64) -> Report {
        run::run(seed)
    }

    fn replay(&self, seed: u64) -> String {
        format!("hotset-lab node --cases 1 --seed {seed}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }
}
