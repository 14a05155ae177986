//! Work that is carried to its end even if its caller gives up on it.
//!
//! A write that nobody waits for still lands some time, and until it has, the
//! blocks under it must not be cached: the books on it have to be kept.

use block::Spawn;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that goes on as a task of its own when dropped before its end.
pub(crate) struct Finish<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T>>>>,
    spawn: Spawn,
}

impl<T> Finish<T> {
    pub(crate) fn new(spawn: Spawn, work: impl Future<Output = T> + 'static) -> Finish<T> {
        Finish {
            work: Some(Box::pin(work)),
            spawn,
        }
    }
}

impl<T> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("not polled after its end");
        let output = work.as_mut().poll(cx);
        if output.is_ready() {
            self.work = None;
        }
        output
    }
}

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.spawn.spawn(async move {
                work.await;
            });
        }
    }
}
