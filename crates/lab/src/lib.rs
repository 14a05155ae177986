//! Workloads, experiments, crash sweeps and reports: everything that proves
//! hotset rather than being it.

pub mod advise;
pub mod bench;
pub mod cachesim;
pub mod crash;
pub mod kill;
pub mod mutants;
pub mod raidsim;
pub mod seam;
pub mod tracesim;
pub mod web;
