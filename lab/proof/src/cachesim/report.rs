//! The events of a run, and those of many runs together.

use crate::classes::classes;
use cache::{Counter, CounterSnapshot};
use std::fmt;

classes! {
    Promotion, "a pool device was lost with a promotion to it in flight";
    Eviction, "a pool device was lost right after a line had made room for another";
    ModeSwitch, "a mode was switched as a device with operations in flight was lost";
    PoolRemoval, "a device was lost while it was being removed with operations in flight";
    PoolLost, "every pool device was lost";
    PromotionOvertaken, "a write overlapped a promotion or the origin read before it";
    UpdateInVain, "the origin failed a write that the pool took";
    HitTorn, "a block was rewritten under a hit";
    HitLate, "a pool device took too long for a hit";
    HitFailed, "a pool device failed a hit";
    Corruption, "a checksum did not match";
    FillFailed, "a pool device failed a write";
    FillLate, "a pool device took too long for a write";
    Ejection, "a device was ejected";
    Return, "a device that was late was taken back with its lines";
    LineReplaced, "a line made room for another";
    Join, "a miss joined another's origin read";
    JoinFailed, "a joined read had to be read again";
    Hung, "a pool device hung for ever under clients that filled their half of the memory";
    BitmapWritten, "a pool that remembers marked regions before they were written";
    MapWritten, "a pool that remembers wrote what it holds";
    Abandoned, "a client gave up on a write";
    OriginError, "the origin failed an operation";
}

impl Class {
    /// The counters of the engine that count the meetings of a class.
    fn counters(self) -> &'static [Counter] {
        match self {
            Class::PromotionOvertaken => {
                &[Counter::RejectedOverwritten, Counter::PoolWritesPoisoned]
            }
            Class::UpdateInVain => &[Counter::PoolWritesInVain],
            Class::HitTorn => &[Counter::HitsTorn],
            Class::HitLate => &[Counter::HitsLate],
            Class::HitFailed => &[Counter::HitsFailed],
            Class::Corruption => &[Counter::BlocksCorrupt],
            Class::FillFailed => &[Counter::PoolWritesFailed],
            Class::FillLate => &[Counter::PoolWritesLate],
            Class::Ejection => &[Counter::DevicesEjected],
            Class::Return => &[Counter::DevicesReturned],
            Class::LineReplaced => &[Counter::LinesEvicted],
            Class::Join => &[Counter::ReadsJoined],
            Class::JoinFailed => &[Counter::JoinsFailed],
            Class::OriginError => &[Counter::OriginReadErrors, Counter::OriginWriteErrors],
            Class::Promotion
            | Class::Eviction
            | Class::ModeSwitch
            | Class::PoolRemoval
            | Class::PoolLost
            | Class::Hung
            | Class::Abandoned => &[],
            Class::BitmapWritten => &[Counter::BitmapCommits],
            Class::MapWritten => &[Counter::MapCommits],
        }
    }
}

/// One run.
#[derive(Clone, Debug, Default)]
pub struct CacheSimReport {
    /// Operations that clients began.
    pub operations: u64,
    /// Of these, reads served from the pool alone.
    pub hits: u64,
    /// The longest that a client waited, in microseconds.
    pub stall_us_max: u64,
    /// The first violation.
    pub violation: Option<String>,
    classes: [u64; Class::ALL.len()],
}

impl CacheSimReport {
    /// Number of times that a class was met.
    pub fn met(&self, class: Class) -> u64 {
        self.classes[class as usize]
    }

    pub(crate) fn meet(&mut self, class: Class) {
        self.classes[class as usize] += 1;
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(crate) fn take_counters(&mut self, counters: &CounterSnapshot) {
        self.hits = counters.get(Counter::ReadsHit);
        for class in Class::ALL {
            let met: u64 = class.counters().iter().map(|c| counters.get(*c)).sum();
            self.classes[*class as usize] += met;
        }
    }
}

/// Many runs.
#[derive(Default)]
pub struct CacheSimTotals {
    operations: Vec<u64>,
    hits: u64,
    stall_us_max: u64,
    classes: [u64; Class::ALL.len()],
    violations: Vec<(u64, String)>,
}

impl CacheSimTotals {
    /// Adds the run of `seed`.
    pub fn add(&mut self, seed: u64, report: CacheSimReport) {
        self.operations.push(report.operations);
        self.hits += report.hits;
        self.stall_us_max = self.stall_us_max.max(report.stall_us_max);
        for (sum, n) in self.classes.iter_mut().zip(report.classes) {
            *sum += n;
        }
        self.violations
            .extend(report.violation.map(|what| (seed, what)));
    }

    /// The runs that failed.
    pub fn violations(&self) -> &[(u64, String)] {
        &self.violations
    }

    /// The classes that no run met.
    pub fn missed(&self) -> Vec<Class> {
        let missed = |class: &&Class| self.classes[**class as usize] == 0;
        Class::ALL.iter().filter(missed).copied().collect()
    }
}

impl fmt::Display for CacheSimTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut operations = self.operations.clone();
        operations.sort_unstable();
        let median = operations.get(operations.len() / 2).copied().unwrap_or(0);
        writeln!(
            f,
            "{} runs, {} operations (median {median} a run), {} hits, longest wait {} us, {} violations",
            operations.len(),
            operations.iter().sum::<u64>(),
            self.hits,
            self.stall_us_max,
            self.violations.len(),
        )?;
        for class in Class::ALL {
            let met = self.classes[*class as usize];
            writeln!(f, "{met:>10}  {class:?}: {}", class.help())?;
        }
        Ok(())
    }
}
