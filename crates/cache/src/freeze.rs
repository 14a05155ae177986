//! Freezes a volume: its changes wait while its origin is quiesced.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct Freeze {
    frozen: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Freeze {
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.get()
    }

    /// From now on changes wait; whether they did not before.
    pub(crate) fn freeze(&self) -> bool {
        !self.frozen.replace(true)
    }

    /// Lets them go on; whether they were frozen.
    pub(crate) fn thaw(&self) -> bool {
        let was = self.frozen.replace(false);
        for waker in self.waiting.take() {
            waker.wake();
        }
        was
    }

    /// Waits until changes may go on.
    #[inline]
    pub(crate) async fn thawed(&self) {
        if !self.is_frozen() {
            return;
        }
        poll_fn(|cx| {
            if !self.is_frozen() {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
