//! Tasks that wait until the state has changed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(super) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Whoever waits looks again.
    pub(super) fn raise(&self) {
        self.0.take().into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` finds something.
    pub(super) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                self.0.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}
