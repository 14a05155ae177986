//! Advice for users: how large a pool should be, which data is hot, which hits a trace would have.
//!
//! Policies and the engine are those that serve; the effect of a size is found by running them,
//! never by a formula of its own.
//!
//! Not here: where profiles come from (`policy`), trace formats (`trace`), the command line.

mod array;
pub mod heatmap;
pub mod page;
pub mod replay;
pub mod sizing;
#[cfg(test)]
mod tests;
pub mod writeback;
