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

use crate::campaign::Campaign;
pub use report::{Class, Report};

/// The campaign of ports.
pub struct PortCampaign;

impl Campaign for PortCampaign {
    type Class = Class;

    fn case(&self, seed: u64) -> Report {
        run::run(seed)
    }

    fn replay(&self, seed: u64) -> String {
        format!("hotset-lab port --cases 1 --seed {seed}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }
}
