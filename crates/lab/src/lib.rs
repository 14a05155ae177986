//! Workloads, experiments, crash sweeps and reports: everything that proves
//! hotset rather than being it.

pub mod advise;
pub mod bench;
pub mod cachesim;
mod classes;
pub mod crash;
pub mod drill;
pub mod heatmap;
pub mod kill;
pub mod mutants;
pub mod page;
pub mod perc;
pub mod raidsim;
pub mod replay;
pub mod seam;
pub mod stack;
pub mod tracesim;
pub mod web;
