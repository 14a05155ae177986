//! The contract between the executor and the driver that performs operations.
//!
//! Disks, byte streams and ports go through one queue, so that an engine, a block server and a
//! network origin all run on every driver.
//!
//! Invariants every driver keeps (`conformance::driver`):
//!     each submitted token completes exactly once, and only from `park`
//!     a buffer handed in with an operation comes back with its completion
//!     `now` never goes back, and `park(d)` returns no later than required

use crate::buf::{Buf, SharedBuf};
use crate::device::Geometry;
use crate::error::IoResult;
use crate::pool::Pool;
use crate::port::{Answer, Request, Tag};
use crate::units::{Extent, Fua, Lba, Nanos, TargetId};
use std::fmt;
use std::sync::Arc;

/// The process at the other end of a local stream, when it connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Number of its user.
    pub user: u32,
    /// Number of the process; 0 in another name space.
    pub process: i32,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.user, self.process)
    }
}

/// Names one operation in flight on one driver; chosen by the submitter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(pub u64);

/// Address that a stream connects to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// The path of a unix socket.
    Unix(Box<str>),
    /// `host:port`.
    Tcp(Box<str>),
}

/// An operation. Disk operations lie inside the disk and on its logical blocks; otherwise they fail
/// with `Invalid` and change nothing.
#[derive(Debug)]
pub enum DriverOp {
    /// Fills the buffer from the disk.
    Read(Lba, Buf),
    /// Writes the bytes to the disk.
    Write(Lba, SharedBuf, Fua),
    /// Makes the extent read as zeroes.
    Zero(Extent),
    /// Makes durable every write acknowledged before this was submitted.
    Flush,
    /// Marks the extent's bytes as not needed; reads give any bytes.
    Discard(Extent),
    /// Waits for a connection on a listener; completes with its target.
    Accept,
    /// Opens a stream; completes with its target.
    Connect(Address),
    /// Receives at least one byte; completes with how many, 0 at end of stream.
    Recv(Buf),
    /// Sends every byte of every part, in order.
    Send(Vec<SharedBuf>),
    /// Answers the request that a port's tag holds, if any, and waits for its next.
    Next(Tag, Option<Answer>),
    /// Brings the bytes of the write that a port's tag holds.
    Take(Tag, Buf),
}

impl DriverOp {
    /// The buffers of an operation that is not performed, returned.
    #[inline]
    pub fn into_payload(self) -> Payload {
        match self {
            DriverOp::Read(_, buf) | DriverOp::Recv(buf) | DriverOp::Take(_, buf) => {
                Payload::Buf(buf)
            }
            DriverOp::Send(mut parts) => {
                parts.clear();
                Payload::Parts(parts)
            }
            _ => Payload::None,
        }
    }
}

/// The buffers of an operation, returned.
#[derive(Debug, Default)]
pub enum Payload {
    /// The operation owned nothing, or a `SharedBuf`, which is dropped.
    #[default]
    None,
    /// The buffer of a read, receive or take. After an error its bytes are unspecified.
    Buf(Buf),
    /// The vector of a send, empty, for use again.
    Parts(Vec<SharedBuf>),
    /// The request that a wait for the next one returned.
    Request(Request),
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The token of its submission.
    pub token: Token,
    /// Bytes received, the new target of an accept or connect, else 0.
    pub result: IoResult<u64>,
    /// Its buffers.
    pub payload: Payload,
}

/// Ends another shard's `park` early.
pub trait Unpark: Send + Sync {
    /// Makes the current `park`, or else the next, return without delay.
    ///
    /// Called from any thread, and also while a driver drops a buffer inside its own calls, so no
    /// lock may be taken that a driver holds.
    fn unpark(&self);
}

/// One queue pair and one clock, owned by one shard.
pub trait Driver: 'static {
    /// Time since the host's epoch; the same epoch on every shard.
    fn now(&self) -> Nanos;

    /// The shard's buffer memory.
    fn pool(&self) -> &Pool;

    /// Begins `op` on `target`. The operation completes exactly once, later, even without a waiter.
    /// Never blocks and never completes inside the call.
    fn submit(&mut self, token: Token, target: TargetId, op: DriverOp);

    /// Appends due completions to `done`. If there are none, blocks (in a simulation: lets the
    /// world move) until a completion, an unpark, or `deadline`. A deadline in the past makes the
    /// call a poll.
    fn park(&mut self, deadline: Nanos, done: &mut Vec<Completion>);

    /// A handle that other shards use to end `park`.
    fn unparker(&self) -> Arc<dyn Unpark>;

    /// The shape of a disk; `None` for another or an unknown target.
    fn geometry(&self, target: TargetId) -> Option<Geometry>;

    /// True if the peer of a stream is known to have ended its side, though bytes sent before may
    /// be left to receive; false for anything else.
    fn peer_closed(&self, target: TargetId) -> bool;

    /// The process at the other end of a local stream; `None` for anything else.
    fn peer(&self, _target: TargetId) -> Option<Peer> {
        None
    }

    /// The number of a port's tags; `None` for another or an unknown target.
    fn tags(&self, _target: TargetId) -> Option<u16> {
        None
    }

    /// Closes a stream, listener or port: operations on it, waiting and later ones,
    /// complete with `Stream` errors or end of stream; those of a port with `Gone`.
    fn close(&mut self, target: TargetId);
}

/// The host's next step for a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnProgress {
    /// There is more to do now.
    Ready,
    /// Nothing to do until a completion, an unpark, or this time. From here to
    /// the next `run_once`, other shards announce their messages by `unpark`.
    Idle(Nanos),
    /// The shard's main task has ended; drop the shard.
    Done,
}

/// A shard from its host's view: `run_once` and `park` alternate.
pub trait ShardTurn {
    /// Runs every task that can run now.
    fn run_once(&mut self) -> TurnProgress;
    /// Collects completions from the driver, waiting until `deadline` at most.
    fn park(&mut self, deadline: Nanos);
}

/// Number of a shard, and the count of shards.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ShardId(pub u32);

/// Environment of shards: threads with a ring each, or one simulated world.
pub trait Host {
    /// The argument of each shard.
    type Driver: Driver;

    /// Boots `shards` shards, each on the thread of its later life, and runs them until all are
    /// done (or, in a simulation, until the power is cut). After an error none was booted.
    fn run<B>(&mut self, shards: u32, boot: B) -> IoResult
    where
        B: Fn(ShardId, Self::Driver) -> Box<dyn ShardTurn> + Send + Sync + 'static;
}
