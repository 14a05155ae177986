//! The seam that every layer of hotset is built on.
//!
//! Below it are drivers that perform operations (`uring` on real files and
//! sockets, `sim` in virtual time); above it are layers written as ordinary
//! `async fn` that never learn which driver runs them.
//!
//! Not here, on purpose: any implementation of a driver or a device, any
//! thread, clock, file or random source. This crate depends on nothing.

mod buddy;
mod buf;
#[cfg(feature = "conformance")]
pub mod conformance;
mod deadline;
mod device;
mod driver;
mod durable;
mod env;
mod error;
mod flush_errors;
mod gate;
mod in_flight;
mod intent;
mod layer;
mod located;
mod log_limiter;
mod mutex;
mod plain;
mod pool;
mod port;
mod range_lock;
mod regions;
mod reserve;
mod semaphore;
mod signal;
mod stream;
#[cfg(test)]
mod tests;
mod units;

pub use buf::{Buf, SharedBuf};
pub use deadline::{Deadline, WithDeadline};
pub use device::{BoxDevice, Content, Device, Fut, Geometry};
pub use driver::{
    Address, Completion, Driver, DriverOp, Host, Payload, Peer, ShardId, ShardTurn, Token,
    TurnProgress, Unpark,
};
pub use durable::{Durable, Proof, StateImage, Version};
pub use env::{Env, Executor, Persist, Sleep, Spawn, Timer, TimerKey};
pub use error::{IoError, IoErrorKind, IoResult};
pub use flush_errors::{FlushErrors, SeenFailures};
pub use gate::{Boundary, Gate};
pub use in_flight::{Entered, InFlight};
pub use intent::Intent;
pub use layer::Layer;
pub use located::{
    AskedRead, DiskPlace, Generation, Generations, KeptHits, KeptTouch, LOCATED_BLOCK_BYTES,
    LOCATED_BLOCK_SECTORS, LOCATED_BLOCKS_MAX, LocatedEnd, LocatedFate, LocatedRead,
    LocatedRequest, LocatedUnit, MoreBlocks, ReadTaker, ReadTimes, TakenRead, UNIT_BLOCKS_MAX,
};
pub use log_limiter::LogLimiter;
pub use mutex::Mutex;
pub use plain::plain;
pub use pool::{BUF_BYTES_MAX, PAGE_BYTES, Pool};
pub use port::{Answer, Port, Request, RequestTaker, Tag};
pub use range_lock::{Access, Acquire, RangeLock};
pub use regions::Regions;
pub use reserve::{Grant, Reserve};
pub use semaphore::{Permit, Semaphore};
pub use signal::Signal;
pub use stream::{Connector, Listener, Stream};
pub use units::{Extent, Fua, Lba, Nanos, SECTOR_BYTES, Sectors, TargetId};
