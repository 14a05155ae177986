//! The requirements of proofs, drills and the demonstration on their machine: its tools, devices
//! attached to the kernel, and private mounts.
//!
//! Invariant: devices and mounts go with the process that attached or mounted them, killed or not.

pub mod attached;
pub mod killed;
pub mod mounted;
pub mod namespace;
pub mod server;
pub mod tools;
