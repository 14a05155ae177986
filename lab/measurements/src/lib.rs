//! Measurements of hotset: benchmarks, availability drills, published evaluations run again, and
//! the web workload.
//!
//! Not here: proofs (`proof`), and advice for users (`advise`).

pub mod ablation;
pub mod about;
pub mod bench;
pub mod choices;
pub mod ownership;
pub mod perc;
pub mod report;
#[cfg(test)]
mod tests;
pub mod timeline;
