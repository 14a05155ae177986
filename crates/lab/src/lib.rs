//! What measures hotset: benchmarks, availability drills, published evaluations run again,
//! and the web workload.
//!
//! Not here: what proves it (`proof`), and what advises its users (`advise`).

pub mod ablation;
pub mod about;
pub mod bench;
pub mod choices;
mod ownership;
pub mod perc;
pub mod report;
pub mod timeline;
