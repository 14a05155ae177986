//! The driver on this machine's kernel.

mod claim;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod events;
mod executor;
mod failures;
mod hanging;
mod in_place;
mod open;
mod shards;
mod streams;
