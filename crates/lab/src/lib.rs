//! Workloads, experiments, crash sweeps and reports: everything that proves
//! hotset rather than being it.
//!
//! Without the feature `measure` only the campaigns are built, so that a fault put
//! into the product is tried in seconds.

#[cfg(feature = "measure")]
pub mod advise;
#[cfg(feature = "measure")]
pub mod attached;
#[cfg(feature = "measure")]
pub mod bench;
pub mod cachesim;
mod classes;
pub mod crash;
#[cfg(feature = "measure")]
pub mod drill;
#[cfg(feature = "measure")]
pub mod heatmap;
#[cfg(feature = "measure")]
pub mod kill;
#[cfg(feature = "measure")]
pub mod mounted;
pub mod mutants;
#[cfg(feature = "measure")]
pub mod namespace;
#[cfg(feature = "nodes")]
pub mod nodesim;
#[cfg(feature = "measure")]
pub mod page;
#[cfg(feature = "measure")]
pub mod perc;
pub mod raidsim;
#[cfg(feature = "measure")]
pub mod replay;
#[cfg(feature = "measure")]
pub mod report;
#[cfg(feature = "measure")]
pub mod seam;
#[cfg(feature = "measure")]
pub mod stack;
#[cfg(feature = "measure")]
pub mod tools;
#[cfg(feature = "measure")]
pub mod tracesim;
mod violation;
#[cfg(feature = "measure")]
pub mod web;
