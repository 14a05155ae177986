//! Waiting for changes by other tasks of the shard.
//!
//! Invariant: every waiter looks again after each notice, in order of arrival.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes the tasks that wait for a change.
#[derive(Default)]
pub struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Lets every waiter look again.
    pub fn notify(&self) {
        if self.0.borrow().is_empty() {
            return;
        }
        let mut waiting = self.0.take();
        waiting.drain(..).for_each(Waker::wake);
        // The list's memory is kept for the next waiters.
        let mut next = self.0.borrow_mut();
        if next.is_empty() {
            *next = waiting;
        }
    }

    /// Waits until `is_so`, which is called now and after each notice.
    pub async fn until(&self, mut is_so: impl FnMut() -> bool) {
        self.until_some(|| is_so().then_some(())).await
    }

    /// Waits until `look` gives a value; `look` is called now and after each notice.
    pub async fn until_some<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                self.register(cx.waker());
                Poll::Pending
            }
        })
        .await
    }

    /// Registers `waker` for the next notice.
    pub fn register(&self, waker: &Waker) {
        let mut waiting = self.0.borrow_mut();
        if !waiting.iter().any(|w| w.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waiter_looks_again_after_each_notice_and_is_woken_once_for_it() {
        let (signal, is_so) = (Signal::default(), Cell::new(false));
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut waiting = pin!(signal.until(|| is_so.get()));
        for notices in 0..3 {
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            assert!(waiting.as_mut().poll(&mut cx).is_pending());
            assert_eq!(woken.0.load(Ordering::Relaxed), notices);
            signal.notify();
        }
        signal.notify();
        assert_eq!(woken.0.load(Ordering::Relaxed), 3);
        is_so.set(true);
        assert!(waiting.as_mut().poll(&mut cx).is_ready());
    }
}
