//! Simulated lives of arrays against a reference model.
//!
//! A seed makes a scenario: a level, members, clients, and trouble: members that are unplugged and
//! return, sectors that cannot be read, and losses of power at any step, at a start or a rebuild as
//! well. Clients read and write through a gate and ask a model that shares no code with the array.
//! In the end everything is read, and compared member by member.
//!
//! Not here: silent corruption, which an array without checksums cannot detect.

mod between;
mod chaos;
mod client;
mod course;
mod draw;
mod kind;
mod life;
mod model;
mod nest;
mod refuse;
mod report;
mod run;
mod scenario;
mod split;
mod start;
mod strikes;
mod trouble;
mod unit;

pub use kind::ArrayTrouble;
#[cfg(feature = "nodes")]
pub(crate) use model::ArrayModel;
pub use report::{ArraySimReport, ArraySimSummary, ArraySimTotals, Class};
pub use run::{run, run_scenario};
pub use scenario::ArrayScenario;

/// The command that runs `seed` again.
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p proof --example raidsim -- --seeds 1 --start {seed}")
}
