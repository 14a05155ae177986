//! The cache engine: volumes over slow origins that share a pool of fast devices.
//!
//! ```text
//! Volume ─┬─ read ──┬─ hit ────────────────────> pool device
//!         │         └─ origin ─> fill ─> pool_write ─> pool device
//!         └─ write ─┬─ origin
//!                   └─ update ────────── pool_write ─> pool device
//! ```
//!
//! Invariants, at every instant:
//!     a block is valid ⟹ the pool's bytes equal the origin's there
//!     the origin alone is complete: losing the pool costs hits, never bytes
//!     an operation of a client fails ⟹ the origin failed it
//!
//! A [`Cache`] belongs to one shard and gets all its resources from its `Env`: buffers, tasks,
//! time. The policy decides which line stays.
//!
//! A cache made by [`Cache::open`] remembers its lines on its devices (`durable`); one made by
//! `Cache::new` writes only lines to its devices.
//!
//! Not here, on purpose: the thread or driver that runs the cache, and keeping clients' overlapping
//! writes apart (`block::Gate` does).

mod budget;
mod busy;
mod cache;
mod config;
mod contents;
mod core;
mod counters;
mod devices;
mod durable;
mod explain;
mod fill;
mod flights;
mod freeze;
mod health;
mod history;
mod hit;
mod inner;
mod lines;
mod modes;
mod origin;
mod pool_device;
mod pool_write;
mod read;
mod resting;
mod sequential;
mod state;
mod volume;
mod watchdog;
mod write;
mod writes;

pub use cache::Cache;
pub use config::{Config, LINE_BYTES_MAX, LINE_BYTES_MIN};
pub use contents::{lines_on, memory_per_line};
pub use counters::{Counter, CounterSnapshot};
pub use devices::{DeviceId, DeviceReport, DeviceState};
pub use durable::{DeviceFindings, Durability, OpenReport, OpenedPool, origin_record_on};
pub use explain::{LineReport, Residence};
pub use health::DeviceFault;
pub use history::{Decision, HISTORY_BYTES, Noted};
pub use layout::{MEMBERS_MAX as DEVICES_MAX, NAME_BYTES_MAX, VOLUMES_MAX};
pub use modes::CacheMode;
pub use pool_device::NewPoolDevice;
pub use volume::{Volume, VolumeConfig};
