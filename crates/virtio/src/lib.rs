//! vhost-user-blk: a volume as the virtio disk of a virtual machine, over shared memory.
//!
//! A virtual machine monitor connects to a unix socket and passes the guest's memory, a ring
//! a queue, and events to notify by. One thread a volume speaks with it (`control`); events are
//! waited for, and requests taken out of the rings and answered, on the shard that serves the
//! volume (`kicks`, `port`).
//!
//! Invariants:
//!     what a guest writes into its memory fails that guest at most   (`request`, `ring`)
//!     what a monitor says, or leaves half said, costs its guest at most: its descriptors are
//!     eventfds and memory that no other process answers for, and none is waited for on the
//!     shard   (`handler`, `control`)
//!     bytes are copied before they are checked, written or answered: a guest may change
//!     its memory meanwhile
//!     a request is marked as in flight before it is served, and until its answer can be
//!     seen, in memory that the monitor keeps: the next daemon serves it (`inflight`)
//!     a connection begins only once every request of the one before has ended
//!     memory that is taken away while it is used fails that guest at most   (`fault`)
//!
//! Not here: packed rings, live migration's log of dirty pages, the toggle of the write cache
//! (QEMU does not repeat it to the next daemon).

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

pub use control::Listener;
#[cfg(feature = "fuzzing")]
pub use hostile::hostile;
pub use kicks::{Kick, Kicks};
pub use port::VirtioPort;
pub use shape::{Bell, Bells, Counters, Log, QUEUES_MAX, RING_MAX, Shape};
