//! The proof of hotset: campaigns by seed against reference models, power cuts, a database's
//! stack, and mutations of the source that the campaigns must find.
//!
//! Without the feature `machine` only the campaigns are built, so that a mutation is tried in
//! seconds.

pub mod arguments;
pub mod cachesim;
pub mod campaign;
mod classes;
pub mod crash;
mod model;
pub mod mutants;
#[cfg(feature = "nodes")]
pub mod nodesim;
pub mod portsim;
pub mod raidsim;
pub mod seam;
#[cfg(feature = "machine")]
pub mod stack;
mod stamp;
mod violation;
pub mod writeback;
