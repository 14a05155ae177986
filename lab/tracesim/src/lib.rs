//! The trace simulator: traces x policies x sizes, as the live engine would
//! decide them, because the policy objects are the engine's own.
//!
//! A [`TraceSource`] turns a trace into accesses to lines numbered densely from
//! zero; a cell runs one policy of one size over it; [`SimulationPlan::run`] runs all
//! cells over all cores. Results do not depend on the number of threads.
//!
//! Memory is bounded by the trace's footprint, not by its length: a trace that
//! takes more than [`source::KEPT_BYTES_MAX`] is read from the file once for each
//! cell. The offline optimum alone needs four bytes an access.

mod cell;
pub mod chart;
mod cores;
mod curve;
mod engine;
mod linear;
mod plan;
mod source;
#[cfg(test)]
mod tests;

pub use cell::CellTally;
pub use curve::{MissCurve, MissRatio, Rank, curves, ranks};
pub use engine::{EnginePlan, EngineRow, LatencyMicros, TraceInput};
pub use plan::{BELADY, ResultRow, SimulationPlan};
pub use source::{PoolSize, RequestChunk, SourceError, TraceSource, trace_name};
