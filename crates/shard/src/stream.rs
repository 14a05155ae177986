//! The leaf streams: sockets of the driver.

use crate::executor::Core;
use crate::ops::Output;
use block::{
    Address, Buf, Connector, Driver, IoError, IoResult, Kind, Listener, Op, Payload, Shared,
    Stream, TargetId,
};
use std::cell::Cell;
use std::rc::Rc;

/// A target that is closed once: by a call, or when dropped.
pub(crate) struct Owned<D: Driver> {
    pub(crate) core: Rc<Core<D>>,
    pub(crate) target: TargetId,
    closed: Cell<bool>,
}

impl<D: Driver> Owned<D> {
    pub(crate) fn new(core: Rc<Core<D>>, target: TargetId) -> Owned<D> {
        Owned {
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

    async fn perform(&self, op: Op) -> Output {
        if self.closed.get() {
            return (
                Err(IoError::new(Kind::Stream, "the stream is closed")),
                op.into_payload(),
            );
        }
        self.core.perform(self.target, op).await
    }
}

impl<D: Driver> Drop for Owned<D> {
    fn drop(&mut self) {
        self.close();
    }
}

/// One end of a connection.
pub struct Socket<D: Driver>(Owned<D>);

impl<D: Driver> Socket<D> {
    pub(crate) fn new(core: Rc<Core<D>>, target: TargetId) -> Socket<D> {
        Socket(Owned::new(core, target))
    }
}

impl<D: Driver> Stream for Socket<D> {
    async fn recv(&self, buf: Buf) -> (Buf, IoResult<usize>) {
        match self.0.perform(Op::Recv(buf)).await {
            (result, Payload::Buf(buf)) => (buf, result.map(|n| n as usize)),
            (_, other) => panic!("a receive gave back {other:?}"),
        }
    }

    async fn send(&self, parts: Vec<Shared>) -> (Vec<Shared>, IoResult) {
        match self.0.perform(Op::Send(parts)).await {
            (result, Payload::Parts(parts)) => (parts, result.map(drop)),
            (_, other) => panic!("a send gave back {other:?}"),
        }
    }

    fn peer_closed(&self) -> bool {
        let closed = self.0.closed.get();
        closed || self.0.core.ops.driver().borrow().peer_closed(self.0.target)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// A listener that the host has opened.
pub struct Listen<D: Driver>(Owned<D>);

impl<D: Driver> Listen<D> {
    pub(crate) fn new(core: Rc<Core<D>>, target: TargetId) -> Listen<D> {
        Listen(Owned::new(core, target))
    }
}

impl<D: Driver> Listener for Listen<D> {
    type Stream = Socket<D>;

    async fn accept(&self) -> IoResult<Socket<D>> {
        let (result, _) = self.0.perform(Op::Accept).await;
        let target = TargetId(result? as u32);
        Ok(Socket::new(self.0.core.clone(), target))
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Opens streams.
pub struct Connect<D: Driver>(Rc<Core<D>>);

impl<D: Driver> Connect<D> {
    pub(crate) fn new(core: Rc<Core<D>>) -> Connect<D> {
        Connect(core)
    }
}

impl<D: Driver> Connector for Connect<D> {
    type Stream = Socket<D>;

    async fn connect(&self, address: Address) -> IoResult<Socket<D>> {
        let (result, _) = self.0.perform(TargetId::NONE, Op::Connect(address)).await;
        let target = TargetId(result? as u32);
        Ok(Socket::new(self.0.clone(), target))
    }
}
