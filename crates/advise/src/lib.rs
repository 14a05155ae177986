//! What a user is advised: how large a pool should be, what is hot, what a trace would hit.
//!
//! Policies and the engine are those that serve; what a size means is found by running
//! them, never by a formula of its own.
//!
//! Not here: where profiles come from (`policy`), trace formats (`trace`), the command line.

mod array;
pub mod heatmap;
pub mod page;
pub mod replay;
pub mod sizing;
pub mod writeback;
