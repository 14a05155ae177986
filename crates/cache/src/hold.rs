//! Holds back a volume's changes while its origin is to stand still.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Hold {
    held: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Hold {
    pub(crate) fn is_held(&self) -> bool {
        self.held.get()
    }

    /// From now on changes wait; whether they did not before.
    pub(crate) fn hold(&self) -> bool {
        !self.held.replace(true)
    }

    /// Lets them go on; whether they were held.
    pub(crate) fn release(&self) -> bool {
        let was = self.held.replace(false);
        for waker in self.waiting.take() {
            waker.wake();
        }
        was
    }

    /// Waits until changes may go on.
    #[inline]
    pub(crate) async fn passed(&self) {
        if !self.is_held() {
            return;
        }
        poll_fn(|cx| {
            if !self.is_held() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
