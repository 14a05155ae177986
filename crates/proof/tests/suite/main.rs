//! The campaigns, each for a few seeds, and cases of theirs that were faults.

mod cachesim;
mod crash;
mod doors;
mod maintenance;
mod node;
mod raidsim;
mod seam;
mod writeback;
