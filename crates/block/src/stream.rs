//! Byte streams, as layers above the seam see them.

use crate::buf::{Buf, SharedBuf};
use crate::driver::{Address, Peer};
use crate::error::IoResult;

/// One end of a connected byte stream.
///
/// At most one `recv` and one `send` are in flight at a time; a second `send`
/// while one runs would interleave and is the caller's bug. Closing, or
/// dropping the last handle, ends both directions.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Stream: 'static {
    /// Receives at least one byte into the front of `buf`; 0 is end of stream.
    async fn recv(&self, buf: Buf) -> (Buf, IoResult<usize>);

    /// Sends every part, in order. The vector comes back empty, to be reused.
    async fn send(&self, parts: Vec<SharedBuf>) -> (Vec<SharedBuf>, IoResult);

    /// True if the peer is known to have ended its side by now; bytes sent before may be left to
    /// receive. Never waits.
    fn peer_closed(&self) -> bool;

    /// The process at the other end, if that is on this machine and known.
    fn peer(&self) -> Option<Peer> {
        None
    }

    /// Ends the stream; operations in flight and later ones fail or see its end.
    fn close(&self);
}

/// A socket that accepts streams.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Listener: 'static {
    /// Type of accepted streams.
    type Stream: Stream;

    /// Waits for the next connection.
    async fn accept(&self) -> IoResult<Self::Stream>;

    /// Stops listening; an `accept` in flight fails.
    fn close(&self);
}

/// Opens streams.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait Connector: 'static {
    /// Type of opened streams.
    type Stream: Stream;

    /// Connects to `address`.
    async fn connect(&self, address: Address) -> IoResult<Self::Stream>;
}
