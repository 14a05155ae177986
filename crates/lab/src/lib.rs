//! Workloads, experiments, crash sweeps and reports: everything that proves
//! hotset rather than being it.

pub mod bench;
pub mod seam;
pub mod tracesim;
