//! Simulated runs of the cache engine against a reference model.
//!
//! A seed makes a scenario: volumes, a pool, clients, and what goes wrong.
//! Clients read and write through gates and ask a model that shares no code
//! with the engine whether what they got is allowed; a troublemaker switches
//! modes and adds, kills and removes pool devices meanwhile. A run passes if
//!
//! - no byte is stale, lost or made up, at any time and after all is quiet;
//! - no operation fails that the origin did not fail;
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

pub use report::{Class, Report, Totals};
pub use run::run;

/// The command that repeats the run of `seed`.
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p proof --example cachesim -- --seeds 1 --start {seed}")
}
