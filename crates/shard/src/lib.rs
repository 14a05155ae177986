//! The executor: one per shard, the same on every driver.
//!
//! Invariants:
//!     operations in flight on one target <= its depth, but for a port; the rest wait in order
//!     an operation, once polled, is carried out even if its future is dropped
//!     a wake is never lost: a shard that sleeps is unparked by who wakes it
//!
//! Not here: threads (the host starts them), the clock and I/O (the driver),
//! and which region belongs to which shard (who builds the topology knows).

mod alone;
mod disk;
mod executor;
mod local;
mod mesh;
mod ops;
mod perform;
mod queue;
mod stream;
mod task;
mod timers;

pub use alone::run_alone;
pub use disk::Disk;
pub use executor::{Config, Shard};
pub use local::Local;
pub use mesh::Mesh;
pub use queue::Queue;
pub use stream::{Connect, Listen, Socket};
