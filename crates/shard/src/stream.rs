//! The leaf streams: sockets of the driver.

use crate::executor::ShardCore;
use crate::ops::Output;
use block::{
    Address, Buf, Connector, Driver, DriverOp, IoError, IoErrorKind, IoResult, Listener, Payload,
    Peer, SharedBuf, Stream, TargetId,
};
use std::cell::Cell;
use std::rc::Rc;

/// A target that is closed once: by a call, or when dropped.
pub(crate) struct OwnedTarget<D: Driver> {
    pub(crate) core: Rc<ShardCore<D>>,
    pub(crate) target: TargetId,
    closed: Cell<bool>,
}

impl<D: Driver> OwnedTarget<D> {
    pub(crate) fn new(core: Rc<ShardCore<D>>, target: TargetId) -> OwnedTarget<D> {
        OwnedTarget {
            core,
            target,
            closed: Cell::new(false),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub(crate) fn close(&self) {
        // A driver may use the number again for another stream.
        if !self.closed.replace(true) {
            self.core.ops.driver().borrow_mut().close(self.target);
        }
    }

    async fn perform(&self, op: DriverOp) -> Output {
        if self.closed.get() {
            return (
                Err(IoError::new(IoErrorKind::Stream, "the stream is closed")),
                op.into_payload(),
            );
        }
        self.core.perform(self.target, op).await
    }
}

impl<D: Driver> Drop for OwnedTarget<D> {
    fn drop(&mut self) {
        self.close();
    }
}

/// One end of a connection.
pub struct ShardSocket<D: Driver>(OwnedTarget<D>);

impl<D: Driver> ShardSocket<D> {
    pub(crate) fn new(core: Rc<ShardCore<D>>, target: TargetId) -> ShardSocket<D> {
        ShardSocket(OwnedTarget::new(core, target))
    }

    /// Gives up the stream, which stays open, for [`Local::stream`](crate::Local::stream) on
    /// another shard. No operation may be in flight.
    pub fn release(self) -> TargetId {
        self.0.closed.set(true);
        self.0.target
    }
}

impl<D: Driver> Stream for ShardSocket<D> {
    async fn recv(&self, buf: Buf) -> (Buf, IoResult<usize>) {
        match self.0.perform(DriverOp::Recv(buf)).await {
            (result, Payload::Buf(buf)) => (buf, result.map(|n| n as usize)),
            (_, other) => panic!("a receive gave back {other:?}"),
        }
    }

    async fn send(&self, parts: Vec<SharedBuf>) -> (Vec<SharedBuf>, IoResult) {
        match self.0.perform(DriverOp::Send(parts)).await {
            (result, Payload::Parts(parts)) => (parts, result.map(drop)),
            (_, other) => panic!("a send gave back {other:?}"),
        }
    }

    fn peer_closed(&self) -> bool {
        let closed = self.0.closed.get();
        closed || self.0.core.ops.driver().borrow().peer_closed(self.0.target)
    }

    fn peer(&self) -> Option<Peer> {
        self.0.core.ops.driver().borrow().peer(self.0.target)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// A listener that the host has opened.
pub struct Listen<D: Driver>(OwnedTarget<D>);

impl<D: Driver> Listen<D> {
    pub(crate) fn new(core: Rc<ShardCore<D>>, target: TargetId) -> Listen<D> {
        Listen(OwnedTarget::new(core, target))
    }
}

impl<D: Driver> Listener for Listen<D> {
    type Stream = ShardSocket<D>;

    async fn accept(&self) -> IoResult<ShardSocket<D>> {
        let (result, _) = self.0.perform(DriverOp::Accept).await;
        let target = TargetId(result? as u32);
        Ok(ShardSocket::new(self.0.core.clone(), target))
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Opens streams.
pub struct StreamConnector<D: Driver>(Rc<ShardCore<D>>);

impl<D: Driver> StreamConnector<D> {
    pub(crate) fn new(core: Rc<ShardCore<D>>) -> StreamConnector<D> {
        StreamConnector(core)
    }
}

impl<D: Driver> Connector for StreamConnector<D> {
    type Stream = ShardSocket<D>;

    async fn connect(&self, address: Address) -> IoResult<ShardSocket<D>> {
        let (result, _) = self
            .0
            .perform(TargetId::NONE, DriverOp::Connect(address))
            .await;
        let target = TargetId(result? as u32);
        Ok(ShardSocket::new(self.0.clone(), target))
    }
}
