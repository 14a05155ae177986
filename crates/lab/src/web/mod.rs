//! The web-server workload: a site of pages and images, visitors who load pages
//! with all their images, and what they had to wait for.
//!
//! Everything is drawn from a seed: the same seed makes the same site, byte for
//! byte, and the same list of page loads, so that two runs differ in nothing
//! but the storage under the server.

pub mod chart;
pub mod site;
pub mod visits;
