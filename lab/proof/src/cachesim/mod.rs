//! Simulated runs of the cache engine against a reference model.
//!
//! A seed makes a scenario: volumes, a pool, clients, and faults. Clients read and write through
//! gates, and compare each answer with a model that shares no code with the engine. A troublemaker
//! switches modes and adds, kills and removes pool devices meanwhile. A run passes if
//!
//! - no byte is stale, lost or invented, at any time and after all is quiet;
//! - no operation fails unless the origin failed;
//! - no operation takes longer than [`run::STALL_MAX`];
//! - no two writes to the same sectors of a disk are in flight together;
//! - the engine's tables agree with each other and its volumes with their
//!   origins once nothing is in flight.

mod chaos;
mod client;
mod origin;
pub mod report;
pub mod run;
pub mod scenario;
mod shared;

use crate::campaign::Campaign;
pub use report::{Class, Report};

/// The campaign of the cache engine. A panic in the engine is a violation.
pub struct CacheCampaign;

impl Campaign for CacheCampaign {
    type Class = Class;

    fn case(&self, seed: u64) -> Report {
        run::run(seed)
    }

    fn replay(&self, seed: u64) -> String {
        format!("cargo run --release -p proof --example cachesim -- --seeds 1 --start {seed}")
    }

    fn classes(&self) -> Vec<Class> {
        Class::ALL.to_vec()
    }

    fn cases_for_all(&self) -> u64 {
        300
    }
}
