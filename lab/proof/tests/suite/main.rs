//! The campaigns, each for a few seeds, and cases that once found faults.

mod cachesim;
mod crash;
mod frontends;
mod maintenance;
mod node;
mod raidsim;
mod seam;
mod writeback;
