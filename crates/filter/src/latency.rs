//! Counts reads and writes by their latency, in buckets between given bounds.
//!
//! Invariant: of each verb, requests ≥ the sum of all counts; the rest took longer than the last
//! bound.
//!
//! Cost: two reads of the clock and a search among the bounds, so that the filter can stay in front
//! of every volume.
//!
//! Not here: quantiles and rates ([`Metered`](crate::Metered) has them, for more memory).

use crate::access::{AccessVerb, RawAccess};
use crate::watch::{Ending, RequestObserver};
use block::{LocatedEnd, Nanos, ReadTimes, Sectors};
use std::cell::RefCell;

/// Latency counts of reads and writes.
pub struct Latencies(RefCell<LatencyShared>);

struct LatencyShared {
    bounds_us: &'static [u64],
    reads: VerbLatency,
    writes: VerbLatency,
}

/// Requests of one verb that succeeded.
#[derive(Clone, Debug, Default)]
pub struct VerbLatency {
    /// Number of requests.
    pub requests: u64,
    /// Sectors of these requests.
    pub sectors: u64,
    /// Sum of their latencies.
    pub time: Nanos,
    /// Number of requests by bucket: longer than the bound before, and at most this bound.
    pub counts: Vec<u64>,
}

impl Latencies {
    /// Makes buckets up to `bounds_us`, which rise.
    pub fn new(bounds_us: &'static [u64]) -> Latencies {
        let none = VerbLatency {
            counts: vec![0; bounds_us.len()],
            ..VerbLatency::default()
        };
        Latencies(RefCell::new(LatencyShared {
            bounds_us,
            reads: none.clone(),
            writes: none,
        }))
    }

    /// Returns the counts of reads, since the beginning.
    pub fn reads(&self) -> VerbLatency {
        self.0.borrow().reads.clone()
    }

    /// Returns the counts of writes, without zeroes and discards.
    pub fn writes(&self) -> VerbLatency {
        self.0.borrow().writes.clone()
    }
}

impl RequestObserver for Latencies {
    #[inline]
    fn begin(&self, _: Nanos, _: &RawAccess) {}

    #[inline]
    fn end(&self, now: Nanos, access: &RawAccess, began: Nanos, ending: Ending) {
        if ending != Ending::Done {
            return;
        }
        let mut inner = self.0.borrow_mut();
        let bounds_us = inner.bounds_us;
        let latency = match access.verb {
            AccessVerb::Read => &mut inner.reads,
            AccessVerb::Write => &mut inner.writes,
            AccessVerb::Zero | AccessVerb::Flush | AccessVerb::Discard | AccessVerb::Extents => {
                return;
            }
        };
        latency.done(bounds_us, (1, access.extent.len), now.since(began));
    }

    fn located(&self, end: &LocatedEnd) {
        if let Some(request) = end.request {
            let mut inner = self.0.borrow_mut();
            let bounds_us = inner.bounds_us;
            inner
                .reads
                .done(bounds_us, (1, request.sectors), request.time);
        }
    }

    fn read_elsewhere(&self, reads: &ReadTimes) {
        let mut inner = self.0.borrow_mut();
        let bounds_us = inner.bounds_us;
        inner.reads.sectors += reads.sectors.0;
        for (time, count) in &reads.times {
            inner.reads.done(bounds_us, (*count, Sectors(0)), *time);
        }
    }
}

impl VerbLatency {
    fn done(&mut self, bounds_us: &[u64], (requests, sectors): (u64, Sectors), took: Nanos) {
        self.requests += requests;
        self.sectors += sectors.0;
        self.time += Nanos(took.0.saturating_mul(requests));
        let bucket = bounds_us.partition_point(|us| us * 1000 < took.0);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += requests;
        }
    }
}
