//! The leaf port: requests of a block device that the driver brings.

use crate::executor::Core;
use crate::ops::Output;
use crate::stream::Owned;
use block::{
    Answer, Buf, Driver, IoError, IoResult, Kind, Op, Payload, Port, Request, Tag, TargetId,
};
use std::rc::Rc;

/// A port that the host has opened.
pub struct Queue<D: Driver> {
    owned: Owned<D>,
    tags: u16,
}

impl<D: Driver> Queue<D> {
    pub(crate) fn new(core: Rc<Core<D>>, target: TargetId, tags: u16) -> Queue<D> {
        Queue {
            owned: Owned::new(core, target),
            tags,
        }
    }

    async fn perform(&self, op: Op) -> Output {
        if self.owned.is_closed() {
            let error = IoError::new(Kind::Gone, "the port is closed");
            return (Err(error), op.into_payload());
        }
        self.owned.core.perform(self.owned.target, op).await
    }
}

impl<D: Driver> Port for Queue<D> {
    fn tags(&self) -> u16 {
        self.tags
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        match self.perform(Op::Next(tag, answer)).await {
            (Ok(_), Payload::Request(request)) => Ok(request),
            (Err(error), _) => Err(error),
            (Ok(_), other) => panic!("a wait for a request gave {other:?}"),
        }
    }

    async fn take(&self, tag: Tag, buf: Buf) -> (Buf, IoResult) {
        match self.perform(Op::Take(tag, buf)).await {
            (result, Payload::Buf(buf)) => (buf, result.map(drop)),
            (_, other) => panic!("a take gave back {other:?}"),
        }
    }

    fn close(&self) {
        self.owned.close();
    }
}
