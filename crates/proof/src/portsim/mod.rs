//! The campaign of ports: servers of a simulated kernel's queue are killed and stopped
//! under load, and every answer is checked.
//!
//! Invariants that every case must show:
//!     each request is answered, and once
//!     a read that does not overlap a change under way returns what was answered last
//!     bytes are on the disk as they were answered, when all has ended
//!
//! Not here: caches and arrays below (`nodesim`), and losses of power (`crash`).

mod client;
mod command;
mod report;
mod run;

pub use command::command;
pub use report::{Class, Report, Summary, Totals};
pub use run::run;

/// A campaign to be run.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Cases.
    pub cases: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Print JSON.
    pub json: bool,
}

/// The command that runs the case of `seed` again.
pub fn replay(seed: u64) -> String {
    format!("hotset lab port --cases 1 --seed {seed}")
}
