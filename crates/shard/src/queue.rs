//! The leaf port: requests of a block device that the driver brings.

use crate::executor::ShardCore;
use crate::ops::Output;
use crate::perform::Perform;
use crate::stream::OwnedTarget;
use crate::task::Waiter;
use block::{
    Answer, Buf, Driver, DriverOp, IoError, IoErrorKind, IoResult, Payload, Port, Request,
    RequestTaker, Tag, TargetId,
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
            return Err((closed(), op.into_payload()));
        }
        Ok(self.owned.core.perform(self.owned.target, op))
    }
}

fn closed() -> IoError {
    IoError::new(IoErrorKind::Gone, "the port is closed")
}

/// The outcome of a wait for a request.
#[inline]
pub(crate) fn next_of(output: Output) -> IoResult<Request> {
    match output {
        (Ok(_), Payload::Request(request)) => Ok(request),
        (Err(error), _) => Err(error),
        (Ok(_), other) => panic!("a wait for a request gave {other:?}"),
    }
}

impl<D: Driver> Port for ShardPort<D> {
    fn tags(&self) -> u16 {
        self.tags
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        let work = self.perform(DriverOp::Next(tag, answer));
        next_of(work.map_err(|(error, _)| error)?.await)
    }

    #[inline]
    fn begin_next(
        &self,
        tag: Tag,
        answer: Option<Answer>,
        taker: Rc<dyn RequestTaker>,
    ) -> Result<(), Option<Answer>> {
        match self.owned.is_closed() {
            true => taker.take_next(tag, Err(closed())),
            false => {
                let (core, op) = (&self.owned.core, DriverOp::Next(tag, answer));
                let waiter = Waiter::Request(taker, tag);
                core.ops.start(self.owned.target, op, waiter);
            }
        }
        Ok(())
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
