//! A count of things in progress that somebody can wait to see end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

#[derive(Default)]
pub(crate) struct InFlight {
    count: Cell<u32>,
    waiters: RefCell<Vec<Waker>>,
}

impl InFlight {
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn end(&self) {
        let left = self.count.get() - 1;
        self.count.set(left);
        if left == 0 && !self.waiters.borrow().is_empty() {
            for waiter in self.waiters.take() {
                waiter.wake();
            }
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.count() == 0
    }

    /// Counts one until the guard is dropped.
    pub(crate) fn enter(self: &Rc<Self>) -> Entered {
        self.begin();
        Entered(self.clone())
    }

    /// Waits for the count to be zero.
    pub(crate) async fn idle(&self) {
        poll_fn(|cx| {
            if self.is_idle() {
                return Poll::Ready(());
            }
            self.waiters.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

pub(crate) struct Entered(Rc<InFlight>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.end();
    }
}
