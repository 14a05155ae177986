//! Flushes that failed, and the failures that each observer has had.
//!
//! A device that lost acknowledged writes reports that to one flush only, from any caller; a second
//! flush succeeds, for the rest is durable. So a layer that flushes for itself, or for many,
//! records each failure here, and each of its own callers gets the failure once. (Linux keeps an
//! `errseq_t` a file for the same reason.) Observers may be on several shards; the layer that flushes
//! records a failure before it answers any of them.
//!
//! Invariant: a failure was recorded after an observer last got one, or began ⟹ the next flush of
//! that observer to end fails.

use crate::error::{IoError, IoResult};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Failures of flushes in the order of their discovery.
#[derive(Default)]
pub struct FlushErrors {
    count: AtomicU64,
    last: Mutex<Option<IoError>>,
}

/// The number of failures that an observer has had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct SeenFailures(u64);

impl FlushErrors {
    /// A flush has failed: writes acknowledged before may be lost.
    pub fn record(&self, error: &IoError) {
        *self.last.lock().expect("no panic under this lock") = Some(error.duplicate());
        self.count.fetch_add(1, AcqRel);
    }

    /// An observer that has had all so far.
    pub fn sample(&self) -> SeenFailures {
        SeenFailures(self.count.load(Acquire))
    }

    /// An observer that had the newest failure gets it once more: a write lost with it had not been
    /// acknowledged yet.
    pub fn report_again(&self, observer: &Cell<SeenFailures>) {
        let before = SeenFailures(self.sample().0.saturating_sub(1));
        observer.set(observer.get().min(before));
    }

    /// The outcome of `flush` for an observer: its own, or the newest failure that was recorded
    /// since `observer` last got one, or during this flush. The layer that carries out `flush`
    /// records its own failure.
    pub async fn report_to(
        &self,
        observer: &Cell<SeenFailures>,
        flush: impl Future<Output = IoResult>,
    ) -> IoResult {
        let before = observer.get();
        let result = flush.await;
        if before == self.sample() {
            return result;
        }
        observer.set(observer.get().max(self.sample()));
        let last = self.last.lock().expect("no panic under this lock");
        Err(last.as_ref().expect("there was one").duplicate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::IoErrorKind;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(work: impl Future<Output = T>) -> T {
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn lost() -> IoError {
        IoError::new(IoErrorKind::Gone, "lost")
    }

    #[test]
    fn each_observer_gets_an_error_once_whoever_met_it() {
        let errors = FlushErrors::default();
        let (a, b) = (Cell::new(errors.sample()), Cell::new(errors.sample()));
        now(errors.report_to(&a, async { Ok(()) })).unwrap();
        errors.record(&lost());
        let late = Cell::new(errors.sample());
        for observer in [&a, &b] {
            let error = now(errors.report_to(observer, async { Ok(()) })).unwrap_err();
            assert_eq!(error.to_string(), "lost");
            now(errors.report_to(observer, async { Ok(()) })).unwrap();
        }
        now(errors.report_to(&late, async { Ok(()) })).unwrap();
        errors.report_again(&a);
        now(errors.report_to(&a, async { Ok(()) })).unwrap_err();
        now(errors.report_to(&a, async { Ok(()) })).unwrap();
        now(errors.report_to(&b, async { Ok(()) })).unwrap();
    }

    #[test]
    fn two_flushes_of_one_observer_that_saw_a_failure_both_fail() {
        let errors = FlushErrors::default();
        let observer = Cell::new(errors.sample());
        let inner = async {
            errors.record(&lost());
            now(errors.report_to(&observer, async { Ok(()) })).unwrap_err();
            Ok(())
        };
        now(errors.report_to(&observer, inner)).unwrap_err();
        now(errors.report_to(&observer, async { Ok(()) })).unwrap();
    }
}
