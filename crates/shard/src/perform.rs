//! One operation as a future.

use crate::executor::ShardCore;
use crate::ops::Output;
use block::{Driver, DriverOp, TargetId, Token};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation. Nothing happens until it is polled; dropped later, the wait is abandoned, never
/// the operation.
pub(crate) struct Perform<'a, D: Driver> {
    core: &'a ShardCore<D>,
    target: TargetId,
    op: Option<DriverOp>,
    in_flight: Option<Token>,
}

impl<'a, D: Driver> Perform<'a, D> {
    #[inline]
    pub(crate) fn new(core: &'a ShardCore<D>, target: TargetId, op: DriverOp) -> Perform<'a, D> {
        Perform {
            core,
            target,
            op: Some(op),
            in_flight: None,
        }
    }
}

impl<D: Driver> Future for Perform<'_, D> {
    type Output = Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        let core = self.core;
        if let Some(op) = self.op.take() {
            let waiter = core.tasks.waiter(cx.waker());
            self.in_flight = Some(core.ops.start(self.target, op, waiter));
            return Poll::Pending;
        }
        let token = self.in_flight.expect("polled after its end");
        match core.ops.take(token, || core.tasks.waiter(cx.waker())) {
            Some(output) => {
                self.in_flight = None;
                Poll::Ready(output)
            }
            None => Poll::Pending,
        }
    }
}

impl<D: Driver> Drop for Perform<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if let Some(token) = self.in_flight {
            self.core.ops.abandon(token);
        }
    }
}
