//! Counts requests as iostat does: rates, latency, queue and utilisation.
//!
//! Counters only grow; two [`StatsSnapshot`]s make an [`StatsInterval`]. With `q(t)` requests in flight at
//! `t`:
//!     busy     = time with q > 0
//!     weighted = integral of q, so weighted / time = mean queue depth
//!
//! A read that another shard carried out counts when that shard reports the read, and not as busy
//! time.
//!
//! Latency is kept to two significant digits, up to [`LATENCY_MAX`], in a histogram that grows with
//! the longest. A snapshot shares unchanged counters with the meter. An idle device thus costs next
//! to nothing, and so does an idle interval.

use crate::access::{AccessVerb, RawAccess};
use crate::watch::{Ending, ObservedDevice, RequestObserver};
use block::{IoError, LocatedEnd, Nanos, ReadTimes, Sectors, Timer};
use hdrhistogram::Histogram;
use std::cell::RefCell;
use std::rc::Rc;

/// Longest latency; a longer one counts as this.
pub const LATENCY_MAX: Nanos = Nanos::from_secs(3600);
const DIGITS: u8 = 2;

/// A device that counts its requests.
pub type Metered<D> = ObservedDevice<D, VerbMeter>;

/// The observer of [`Metered`].
pub struct VerbMeter(RefCell<StatsSnapshot>, RefCell<Option<String>>);

impl<D> Metered<D> {
    /// Counts the requests on `inner`.
    pub fn meter(inner: D, timer: Timer) -> Metered<D> {
        let snapshot = StatsSnapshot::new(timer.now());
        ObservedDevice::new(
            inner,
            VerbMeter(RefCell::new(snapshot), RefCell::default()),
            timer,
        )
    }
}

impl VerbMeter {
    /// Returns the counters at `now`.
    pub fn snapshot(&self, now: Nanos) -> StatsSnapshot {
        let mut snapshot = self.0.borrow_mut();
        snapshot.pass(now);
        snapshot.clone()
    }

    /// Returns the numbers of requests that have succeeded, and that have failed.
    pub fn ended(&self) -> (u64, u64) {
        let snapshot = self.0.borrow();
        let tallies = snapshot.tallies.iter();
        tallies.fold((0, 0), |(done, failed), tally| {
            (done + tally.requests, failed + tally.errors)
        })
    }

    /// Returns the number of requests begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.0.borrow().in_flight
    }

    /// Returns the time since which requests are in flight and none has ended; `None` if none is
    /// in flight.
    pub fn unanswered_since(&self) -> Option<Nanos> {
        let snapshot = self.0.borrow();
        (snapshot.in_flight > 0).then_some(snapshot.moved)
    }

    /// Returns the error of the last request that failed.
    pub fn last_error(&self) -> Option<String> {
        self.1.borrow().clone()
    }
}

impl RequestObserver for VerbMeter {
    fn failed(&self, error: &IoError) {
        *self.1.borrow_mut() = Some(error.to_string());
    }

    fn begin(&self, now: Nanos, _: &RawAccess) {
        let mut snapshot = self.0.borrow_mut();
        snapshot.pass(now);
        if snapshot.in_flight == 0 {
            snapshot.moved = now;
        }
        snapshot.in_flight += 1;
    }

    fn end(&self, now: Nanos, access: &RawAccess, began: Nanos, ending: Ending) {
        let mut snapshot = self.0.borrow_mut();
        snapshot.pass(now);
        snapshot.moved = now;
        snapshot.in_flight -= 1;
        // Copied only if a snapshot was taken since.
        let tally = Rc::make_mut(&mut snapshot.tallies[access.verb as usize]);
        match ending {
            Ending::Done => tally.done((1, access.extent.len), now - began),
            Ending::Failed(_) => tally.errors += 1,
            Ending::Abandoned => tally.abandoned += 1,
        }
    }

    fn located(&self, end: &LocatedEnd) {
        let mut snapshot = self.0.borrow_mut();
        snapshot.weighted += end.time;
        let tally = Rc::make_mut(&mut snapshot.tallies[AccessVerb::Read as usize]);
        tally.done((1, end.sectors), end.time);
    }

    fn read_elsewhere(&self, reads: &ReadTimes) {
        let mut snapshot = self.0.borrow_mut();
        let spent = reads.times.iter().map(|(time, count)| time.0 * count);
        snapshot.weighted += Nanos(spent.sum());
        let tally = Rc::make_mut(&mut snapshot.tallies[AccessVerb::Read as usize]);
        tally.sectors += reads.sectors.0;
        for (time, count) in &reads.times {
            tally.done((*count, Sectors(0)), *time);
        }
    }
}

/// Counters of one verb.
#[derive(Clone, Debug)]
pub struct VerbTally {
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were dropped before they ended.
    pub abandoned: u64,
    /// Sectors of the requests that succeeded.
    pub sectors: u64,
    /// Nanoseconds from first poll to success.
    pub latency: Histogram<u64>,
}

impl VerbTally {
    fn new() -> VerbTally {
        let latency = Histogram::new(DIGITS);
        VerbTally {
            requests: 0,
            errors: 0,
            abandoned: 0,
            sectors: 0,
            latency: latency.expect("so few digits can be kept"),
        }
    }

    fn done(&mut self, (requests, sectors): (u64, Sectors), took: Nanos) {
        self.requests += requests;
        self.sectors += sectors.0;
        let took = took.0.min(LATENCY_MAX.0);
        let recorded = self.latency.record_n(took, requests);
        recorded.expect("it grows as far as that");
    }

    fn since(&self, earlier: &VerbTally) -> VerbTally {
        let mut latency = self.latency.clone();
        let subtracted = latency.subtract(&earlier.latency);
        subtracted.expect("an earlier snapshot of the same meter holds no more");
        VerbTally {
            requests: self.requests - earlier.requests,
            errors: self.errors - earlier.errors,
            abandoned: self.abandoned - earlier.abandoned,
            sectors: self.sectors - earlier.sectors,
            latency,
        }
    }
}

/// Every counter at one time.
#[derive(Clone, Debug)]
pub struct StatsSnapshot {
    at: Nanos,
    tallies: [Rc<VerbTally>; AccessVerb::ALL.len()],
    nothing: Rc<VerbTally>,
    in_flight: u64,
    /// When a request ended last, or began while none was in flight.
    moved: Nanos,
    busy: Nanos,
    weighted: Nanos,
}

impl StatsSnapshot {
    fn new(at: Nanos) -> StatsSnapshot {
        let nothing = Rc::new(VerbTally::new());
        StatsSnapshot {
            at,
            tallies: std::array::from_fn(|_| nothing.clone()),
            nothing,
            in_flight: 0,
            moved: at,
            busy: Nanos::ZERO,
            weighted: Nanos::ZERO,
        }
    }

    /// Accounts for the time up to `now`.
    fn pass(&mut self, now: Nanos) {
        let passed = now.since(self.at);
        self.at = self.at.max(now);
        if self.in_flight > 0 {
            self.busy += passed;
            self.weighted += Nanos(passed.0.saturating_mul(self.in_flight));
        }
    }

    /// Returns the time of the snapshot.
    pub fn at(&self) -> Nanos {
        self.at
    }

    /// Returns the number of requests begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the time with a request in flight since the meter began.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// Returns the counters of one verb since the meter began.
    pub fn tally(&self, verb: AccessVerb) -> &VerbTally {
        &self.tallies[verb as usize]
    }

    /// True if requests of one verb ended since `earlier`, a snapshot of the same meter.
    pub fn has_moved(&self, verb: AccessVerb, earlier: &StatsSnapshot) -> bool {
        !Rc::ptr_eq(
            &self.tallies[verb as usize],
            &earlier.tallies[verb as usize],
        )
    }

    /// Returns the difference from `earlier`, a snapshot of the same meter.
    pub fn since(&self, earlier: &StatsSnapshot) -> StatsInterval {
        let tallies = self.tallies.iter().zip(&earlier.tallies);
        let tallies = tallies.map(|(now, then)| match Rc::ptr_eq(now, then) {
            true => self.nothing.clone(),
            false => Rc::new(now.since(then)),
        });
        let tallies: Vec<_> = tallies.collect();
        StatsInterval {
            span: self.at - earlier.at,
            tallies: tallies.try_into().expect("one tally a verb"),
            busy: self.busy - earlier.busy,
            weighted: self.weighted - earlier.weighted,
        }
    }
}

/// The difference of two snapshots. Rates over no time are zero.
#[derive(Clone, Debug)]
pub struct StatsInterval {
    /// Length of the interval.
    pub span: Nanos,
    tallies: [Rc<VerbTally>; AccessVerb::ALL.len()],
    busy: Nanos,
    weighted: Nanos,
}

impl StatsInterval {
    /// Returns the counters of one verb.
    pub fn tally(&self, verb: AccessVerb) -> &VerbTally {
        &self.tallies[verb as usize]
    }

    /// Returns the number of successful requests of one verb a second.
    pub fn iops(&self, verb: AccessVerb) -> f64 {
        self.tally(verb).requests as f64 * self.per_second()
    }

    /// Returns the rate of one verb in 10^6 bytes a second.
    pub fn mb_s(&self, verb: AccessVerb) -> f64 {
        let bytes = self.tally(verb).sectors as f64 * block::SECTOR_BYTES as f64;
        bytes / 1e6 * self.per_second()
    }

    /// Returns the length of the interval.
    pub fn span(&self) -> Nanos {
        self.span
    }

    /// Returns the mean number of requests in flight.
    pub fn queue_mean(&self) -> f64 {
        self.weighted.as_secs_f64() * self.per_second()
    }

    /// Returns the fraction of the time in which a request was in flight, 0 to 1.
    pub fn utilisation(&self) -> f64 {
        self.busy.as_secs_f64() * self.per_second()
    }

    fn per_second(&self) -> f64 {
        match self.span {
            Nanos::ZERO => 0.0,
            span => 1.0 / span.as_secs_f64(),
        }
    }
}
