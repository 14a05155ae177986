//! Reports of failed flushes to the clients of an export.
//!
//! A device reports once that it lost writes. Each client may have written them, so
//! each gets the failure once, by its own flush.
//!
//! Invariants:
//!     a flush of the export failed while a client was connected ⟹ the next flush
//!         of that client to end fails
//!     a client left with unflushed writes, or with a failure that may not have
//!         reached it, and the writes may be lost ⟹ as many later clients get the
//!         failure too, for one of them may be the same client

use block::{FlushErrors, IoResult, SeenFailures};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard};

/// Clients that left without a failure and are remembered; further ones are not.
const ABSENT_MAX: usize = 1 << 16;

/// The failed flushes of one export, on all shards that serve it.
pub(super) struct Flushes {
    errors: Arc<FlushErrors>,
    /// Failures seen by clients that left with unflushed writes.
    absent: Mutex<Vec<FlushAbsence>>,
    departures: AtomicU64,
}

struct FlushAbsence {
    seen: SeenFailures,
    departure: u64,
}

/// One connection's view of its export's flushes.
#[derive(Default)]
pub(super) struct FlushClient {
    seen: Cell<SeenFailures>,
    /// Count of acknowledged changes, and of those that a flush has covered.
    acknowledged: Cell<u64>,
    flushed: Cell<u64>,
    /// Failures seen before the reports that may not have reached the client.
    unconfirmed: Cell<Option<SeenFailures>>,
}

impl FlushClient {
    /// A change was acknowledged that only a flush makes durable.
    pub(super) fn acknowledged(&self) {
        self.acknowledged.set(self.acknowledged.get() + 1);
    }

    /// The client ends the connection in order, hence has every answer.
    pub(super) fn ends_in_order(&self) {
        self.unconfirmed.set(None);
    }

    fn is_unflushed(&self) -> bool {
        self.acknowledged.get() != self.flushed.get()
    }
}

impl Flushes {
    /// The flushes of a device that records its own failures in `errors`.
    pub(super) fn new(errors: Arc<FlushErrors>) -> Flushes {
        Flushes {
            errors,
            absent: Mutex::default(),
            departures: AtomicU64::new(0),
        }
    }

    fn absent(&self) -> MutexGuard<'_, Vec<FlushAbsence>> {
        self.absent.lock().expect("no panic under this lock")
    }

    /// A client has come.
    pub(super) fn enter(&self, client: &FlushClient) {
        let mut absent = self.absent();
        let unseen = absent.iter().position(|a| a.seen < self.errors.sample());
        let seen = match unseen {
            Some(at) => absent.swap_remove(at).seen,
            None => self.errors.sample(),
        };
        client.seen.set(seen);
    }

    /// The outcome of a flush of the export, for `client`.
    pub(super) async fn flush(
        &self,
        client: &FlushClient,
        flush: impl Future<Output = IoResult>,
    ) -> IoResult {
        let (covered, left) = (client.acknowledged.get(), self.departures.load(Acquire));
        let before = client.seen.get();
        let result = self.errors.report_to(&client.seen, flush).await;
        if result.is_ok() {
            client.flushed.set(client.flushed.get().max(covered));
            client.unconfirmed.set(None);
            let now = self.errors.sample();
            let mut absent = self.absent();
            absent.retain(|a| a.departure >= left || a.seen < now);
        } else if client.unconfirmed.get().is_none() {
            client.unconfirmed.set(Some(before));
        }
        result
    }

    /// Records that a client has gone; no request of it is in flight.
    pub(super) fn leave(&self, client: &FlushClient) {
        let unflushed = || client.is_unflushed().then(|| client.seen.get());
        let Some(seen) = client.unconfirmed.get().or_else(unflushed) else {
            return;
        };
        let mut absent = self.absent();
        let departure = self.departures.fetch_add(1, AcqRel);
        if absent.len() < ABSENT_MAX {
            absent.push(FlushAbsence { seen, departure });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{IoError, IoErrorKind};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn flush(flushes: &Flushes, client: &FlushClient, result: IoResult) -> IoResult {
        let result = result.inspect_err(|error| flushes.errors.record(error));
        let work = flushes.flush(client, std::future::ready(result));
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn lost() -> IoResult {
        Err(IoError::new(IoErrorKind::Gone, "lost"))
    }

    fn client(flushes: &Flushes) -> FlushClient {
        let client = FlushClient::default();
        flushes.enter(&client);
        client
    }

    #[test]
    fn every_client_gets_a_failure_once() {
        let flushes = Flushes::new(Arc::default());
        let (a, b) = (client(&flushes), client(&flushes));
        flush(&flushes, &a, lost()).unwrap_err();
        flush(&flushes, &a, Ok(())).unwrap();
        let late = client(&flushes);
        flush(&flushes, &b, Ok(())).unwrap_err();
        flush(&flushes, &b, Ok(())).unwrap();
        flush(&flushes, &late, Ok(())).unwrap();
    }

    #[test]
    fn a_client_that_left_with_unflushed_writes_gets_the_failure_when_it_is_back() {
        for others_flush_first in [false, true] {
            let flushes = Flushes::new(Arc::default());
            let (a, b) = (client(&flushes), client(&flushes));
            a.acknowledged();
            a.ends_in_order();
            flushes.leave(&a);
            if others_flush_first {
                flush(&flushes, &b, Ok(())).unwrap();
            }
            flush(&flushes, &b, lost()).unwrap_err();
            let again = client(&flushes);
            assert_eq!(flush(&flushes, &again, Ok(())).is_ok(), others_flush_first);
            flush(&flushes, &again, Ok(())).unwrap();
            flush(&flushes, &client(&flushes), Ok(())).unwrap();
        }
    }

    #[test]
    fn a_failure_that_may_not_have_reached_its_client_is_reported_again() {
        for in_order in [false, true] {
            let flushes = Flushes::new(Arc::default());
            let a = client(&flushes);
            flush(&flushes, &a, lost()).unwrap_err();
            if in_order {
                a.ends_in_order();
            }
            flushes.leave(&a);
            let again = client(&flushes);
            assert_eq!(flush(&flushes, &again, Ok(())).is_ok(), in_order);
        }
    }
}
