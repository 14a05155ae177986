//! vhost-user-blk: a volume as the virtio disk of a virtual machine, over shared memory.
//!
//! A virtual machine monitor connects to a unix socket and passes the guest's memory, a ring a
//! queue, and events for notification. One thread a volume serves its messages (`control`). Shards
//! wait for events, take requests from the rings and answer them, each those of its part of the
//! disk (`device`, `kicks`, `port`).
//!
//! Invariants:
//!     bytes that a guest writes into its memory fail that guest at most   (`request`, `ring`)
//!     a monitor's messages, complete or not, harm its guest at most: their descriptors are
//!     eventfds and memory that depends on no other process, and no shard waits for them
//!     (`handler`, `control`)
//!     bytes are copied before they are checked, written or answered: a guest may change
//!     its memory meanwhile
//!     a request is marked as in flight before it is served, and until its answer is
//!     visible, in memory that the monitor keeps: the next daemon serves it (`inflight`)
//!     a connection begins only once every request of the one before has ended
//!     memory that is taken away in use fails that guest at most   (`fault`)
//!
//! Not here: packed rings, live migration's log of dirty pages, the toggle of the write cache (QEMU
//! does not repeat it to the next daemon).

#![deny(clippy::print_stderr)]

mod channel;
mod control;
mod device;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "tests use more of it"))]
mod guest;
mod handler;
#[cfg(any(test, feature = "fuzzing"))]
mod hostile;
mod inflight;
mod kicks;
mod layout;
mod log;
mod memory;
mod port;
mod request;
mod ring;
mod shape;
#[cfg(test)]
mod tests;

pub use control::{GuestListener, GuestPart};
#[cfg(feature = "fuzzing")]
pub use hostile::hostile;
pub use kicks::{Kick, Kicks};
pub use port::VirtioPort;
pub use shape::{Bell, Bells, GuestDiskCounters, GuestDiskShape, Log, QUEUES_MAX, RING_MAX};
