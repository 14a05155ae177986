//! The working set over time: distinct lines read and written in intervals of
//! equal length. When there are too many intervals, each two become one.

use super::distinct::Distinct;
use crate::PolicyOp;
use block::Nanos;
use serde::{Deserialize, Serialize};

/// Intervals kept; at least half as many once time has passed.
const INTERVALS: usize = 32;
const SHORTEST: Nanos = Nanos::from_millis(1);

/// The working set of one interval.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkingSet {
    /// End of the interval, in seconds from the beginning.
    pub end_seconds: f64,
    /// Distinct bytes read, whole lines.
    pub read_bytes: u64,
    /// Distinct bytes written, whole lines.
    pub written_bytes: u64,
}

#[derive(Debug)]
struct WorkingInterval {
    read: Distinct,
    written: Distinct,
}

impl WorkingInterval {
    fn new() -> WorkingInterval {
        WorkingInterval {
            read: Distinct::new(),
            written: Distinct::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Working {
    /// Time of the first tick.
    began: Option<Nanos>,
    now: Nanos,
    length: Nanos,
    /// The last is the current one.
    intervals: Vec<WorkingInterval>,
}

impl Default for Working {
    fn default() -> Working {
        let mut intervals = Vec::with_capacity(INTERVALS);
        intervals.push(WorkingInterval::new());
        Working {
            began: None,
            now: Nanos::ZERO,
            length: SHORTEST,
            intervals,
        }
    }
}

impl Working {
    #[inline]
    pub(super) fn access(&mut self, hash: u64, op: PolicyOp) {
        if let Some(current) = self.intervals.last_mut() {
            match op {
                PolicyOp::Read => current.read.add(hash),
                PolicyOp::Write => current.written.add(hash),
            }
        }
    }

    pub(super) fn tick(&mut self, now: Nanos) {
        let began = *self.began.get_or_insert(now);
        self.now = self.now.max(now);
        let passed = self.now.since(began).0;
        if passed < self.length.0 * self.intervals.len() as u64 {
            return;
        }
        while passed / self.length.0 >= INTERVALS as u64 {
            self.halve();
        }
        let wanted = (passed / self.length.0) as usize + 1;
        self.intervals.resize_with(wanted, WorkingInterval::new);
    }

    /// Makes one interval of each two.
    fn halve(&mut self) {
        let mut old = std::mem::take(&mut self.intervals).into_iter();
        self.intervals.reserve_exact(INTERVALS);
        while let Some(mut interval) = old.next() {
            if let Some(next) = old.next() {
                interval.read.merge(&next.read);
                interval.written.merge(&next.written);
            }
            self.intervals.push(interval);
        }
        self.length = Nanos(self.length.0.saturating_mul(2));
    }

    pub(super) fn seconds(&self) -> f64 {
        let began = self.began.unwrap_or(self.now);
        self.now.since(began).as_secs_f64()
    }

    /// Returns the working sets; none if no time has passed.
    pub(super) fn sets(&self, line_bytes: u64) -> Vec<WorkingSet> {
        if self.seconds() == 0.0 {
            return Vec::new();
        }
        let bytes = |lines: &Distinct| (lines.estimate().round() * line_bytes as f64) as u64;
        let set = |(interval, n): (&WorkingInterval, u64)| WorkingSet {
            end_seconds: Nanos(self.length.0.saturating_mul(n)).as_secs_f64(),
            read_bytes: bytes(&interval.read),
            written_bytes: bytes(&interval.written),
        };
        self.intervals.iter().zip(1..).map(set).collect()
    }

    /// Share of the distinct lines that were first seen in the last quarter.
    pub(super) fn late_share(&self) -> f64 {
        if self.intervals.len() < 4 {
            return 0.0;
        }
        let (mut seen, mut early) = (Distinct::new(), 0.0);
        for (at, interval) in self.intervals.iter().enumerate() {
            if at == self.intervals.len() * 3 / 4 {
                early = seen.estimate();
            }
            seen.merge(&interval.read);
            seen.merge(&interval.written);
        }
        (1.0 - early / seen.estimate().max(1.0)).clamp(0.0, 1.0)
    }

    pub(super) fn state_bytes(&self) -> usize {
        let sketches = self.intervals.iter().flat_map(|i| [&i.read, &i.written]);
        let sketches: usize = sketches.map(Distinct::state_bytes).sum();
        sketches + self.intervals.capacity() * size_of::<WorkingInterval>()
    }
}
