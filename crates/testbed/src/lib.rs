//! The requirements of tests, proofs, drills and the demonstration on their machine: its tools,
//! devices attached to the kernel, private mounts, processes of their own and a counting allocator.
//!
//! Invariant: devices and mounts go with the process that attached or mounted them, killed or not.

pub mod alone;
pub mod attached;
pub mod counting;
pub mod killed;
pub mod mounted;
pub mod namespace;
pub mod server;
pub mod tools;
