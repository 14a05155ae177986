//! The executor: one per shard, the same on every driver.
//!
//! Invariants:
//!     operations in flight on one target <= its depth, but for a port; the rest wait in order
//!     an operation, once polled, is carried out even if its future is dropped
//!     a wake is never lost: the thread that wakes a sleeping shard unparks it
//!
//! Not here: threads (the host starts them), the clock and I/O (the driver), and the assignment of
//! regions to shards (the builder of the topology).

mod alone;
mod disk;
mod executor;
mod kept;
mod lane;
mod local;
mod located;
mod mesh;
mod ops;
mod perform;
mod queue;
mod remote;
mod stream;
mod task;
#[cfg(test)]
mod tests;
mod timers;

pub use alone::run_alone;
pub use disk::ShardDisk;
pub use executor::{Config, Shard};
pub use kept::KEPT_BYTES_MAX;
pub use lane::{LaneAsker, LaneEnd, LaneServer, lane};
pub use local::Local;
pub use located::LocatingGate;
pub use mesh::Mesh;
pub use queue::ShardPort;
pub use remote::{GateAsker, GateEnd, GateLane, GatePass, GateTable, RemoteGate};
pub use stream::{Listen, ShardSocket, StreamConnector};
