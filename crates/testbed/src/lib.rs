//! What proofs, drills and the demonstration need of the machine they run on: its tools,
//! devices attached to the kernel, and mounts that nobody else sees.
//!
//! Invariant: what is attached or mounted goes with the process that did it, killed or not.

pub mod attached;
pub mod killed;
pub mod mounted;
pub mod namespace;
pub mod server;
pub mod tools;
