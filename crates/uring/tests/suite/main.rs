//! The driver on this machine's kernel.

mod claim;
mod common;
mod conformance;
mod devices;
mod events;
mod executor;
mod failures;
mod hanging;
mod hot_path;
mod in_place;
mod locked_memory;
mod open;
mod shards;
mod streams;
