//! The leaf port: requests of a block device that the driver brings.

use crate::executor::ShardCore;
use crate::perform::Perform;
use crate::stream::OwnedTarget;
use block::{
    Answer, Buf, Driver, DriverOp, IoError, IoErrorKind, IoResult, Payload, Port, Request, Tag,
    TargetId,
};
use std::rc::Rc;

/// A port that the host has opened.
pub struct ShardPort<D: Driver> {
    owned: OwnedTarget<D>,
    tags: u16,
}

impl<D: Driver> ShardPort<D> {
    pub(crate) fn new(core: Rc<ShardCore<D>>, target: TargetId, tags: u16) -> ShardPort<D> {
        ShardPort {
            owned: OwnedTarget::new(core, target),
            tags,
        }
    }

    /// The operation, unless the port is closed.
    #[inline]
    fn perform(&self, op: DriverOp) -> Result<Perform<'_, D>, (IoError, Payload)> {
        if self.owned.is_closed() {
            let error = IoError::new(IoErrorKind::Gone, "the port is closed");
            return Err((error, op.into_payload()));
        }
        Ok(self.owned.core.perform(self.owned.target, op))
    }
}

impl<D: Driver> Port for ShardPort<D> {
    fn tags(&self) -> u16 {
        self.tags
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        let work = self.perform(DriverOp::Next(tag, answer));
        match work.map_err(|(error, _)| error)?.await {
            (Ok(_), Payload::Request(request)) => Ok(request),
            (Err(error), _) => Err(error),
            (Ok(_), other) => panic!("a wait for a request gave {other:?}"),
        }
    }

    async fn take(&self, tag: Tag, buf: Buf) -> (Buf, IoResult) {
        let ended = match self.perform(DriverOp::Take(tag, buf)) {
            Ok(work) => work.await,
            Err((error, payload)) => (Err(error), payload),
        };
        match ended {
            (result, Payload::Buf(buf)) => (buf, result.map(drop)),
            (_, other) => panic!("a take gave back {other:?}"),
        }
    }

    fn close(&self) {
        self.owned.close();
    }
}
