//! The driver for real machines: files, block devices, sockets and ublk devices
//! through io_uring, one thread and one ring a shard.
//!
//! Invariants:
//!     memory given to the kernel lives until the kernel is done with it: an
//!     operation's slot owns its buffers and its descriptor, and a driver that
//!     is dropped waits for its slots
//!     a 4 KiB read or write allocates nothing
//!     a device takes no more operations after its first failed flush
//!
//! Limits: a file truncated under its disk fails reads beyond its end.
//! But a write there extends the file again, and the truncated part then reads
//! as zeroes; only a block device refuses such writes. Holes are not reported.
//!
//! Not here: queue depth limits and fairness (the executor's), retries after
//! errors of a device, checksums.

#![deny(clippy::print_stderr)]

mod aside;
mod bell;
mod control;
mod disk;
mod disks;
mod driver;
mod errno;
mod host;
mod locks;
mod memory;
mod op;
mod open;
mod passed;
mod port;
mod processors;
mod resolve;
mod ring;
mod shared;
mod socket;
mod stream;
mod syncs;
mod targets;
#[cfg(test)]
mod tests;
mod waker;

pub use aside::AsideWorker;
pub use bell::Bell;
pub use control::{ublk_available, ublk_control, ublk_ready};
pub use driver::UringDriver;
pub use errno::without_descriptor;
pub use host::Uring;
pub use locks::is_left_locked;
pub use open::{DiskOptions, claim};
pub use shared::Options;
pub use socket::is_listened;
