//! A count of operations in progress; a task can wait for their end.

use crate::signal::Signal;
use std::cell::Cell;
use std::rc::Rc;

/// Counts the work in progress.
#[derive(Default)]
pub struct InFlight {
    count: Cell<u32>,
    ended: Signal,
}

impl InFlight {
    /// Adds an operation.
    pub fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// Removes an operation that has ended.
    pub fn end(&self) {
        let left = self.count.get() - 1;
        self.count.set(left);
        if left == 0 {
            self.ended.notify();
        }
    }

    /// The number in progress.
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    /// True if none is in progress.
    pub fn is_idle(&self) -> bool {
        self.count() == 0
    }

    /// Counts one until the returned guard is dropped.
    pub fn enter(self: &Rc<Self>) -> Entered {
        self.begin();
        Entered(self.clone())
    }

    /// Waits until none is.
    pub async fn idle(&self) {
        self.ended.until(|| self.is_idle()).await
    }
}

/// Counts one of an [`InFlight`].
pub struct Entered(Rc<InFlight>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.end();
    }
}
