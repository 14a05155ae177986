//! Lets so many through at a time; the rest wait in order.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Where to wait.
pub struct Turnstile {
    free: Cell<u32>,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
}

/// A place inside, until dropped.
pub struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    /// One for `places` at a time.
    pub fn new(places: u32) -> Turnstile {
        Turnstile {
            free: Cell::new(places),
            waiting: RefCell::default(),
        }
    }

    /// Waits for a place.
    pub async fn pass(&self) -> Turn<'_> {
        match self.free.get() {
            0 => {
                let (called, call) = oneshot::channel();
                self.waiting.borrow_mut().push_back(called);
                let result = call.await;
                result.expect("who waits is called before the turnstile goes");
            }
            free => self.free.set(free - 1),
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    /// Passes the place on, or leaves it free.
    fn drop(&mut self) {
        loop {
            let Some(next) = self.0.waiting.borrow_mut().pop_front() else {
                return self.0.free.set(self.0.free.get() + 1);
            };
            if next.send(()).is_ok() {
                return;
            }
        }
    }
}
