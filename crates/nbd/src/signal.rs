//! Waiting for state that other tasks of the shard change.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Poll, Waker};

/// Wakes the tasks that wait for something to change.
#[derive(Default)]
pub(crate) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Lets every waiter look again.
    pub(crate) fn notify(&self) {
        while let Some(waker) = self.pop() {
            waker.wake();
        }
    }

    fn pop(&self) -> Option<Waker> {
        self.0.borrow_mut().pop()
    }

    /// Waits until `ready` gives a value; it is asked now and after each notice.
    pub(crate) async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|cx| {
            if let Some(value) = ready() {
                return Poll::Ready(value);
            }
            self.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Has the task that `waker` wakes look again at the next notice.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waiting = self.0.borrow_mut();
        if !waiting.iter().any(|w| w.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

/// The value of `work`, or `None` if `stop` ends first; `work` is then dropped.
pub(crate) async fn until_stopped<T>(
    stop: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        stop.as_mut().poll(cx).map(|()| None)
    })
    .await
}
