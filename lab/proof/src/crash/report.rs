//! The situations of a case, and those of many cases together.

use crate::violation::CaseViolation;
use serde::Serialize;
use std::collections::BTreeMap;

/// Makes an enum of counted events, each with its name in reports.
macro_rules! counted {
    ($(#[$doc:meta])* $what:ident: $($variant:ident, $name:literal, $help:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $what {
            $(#[doc = $help] $variant,)*
        }

        impl $what {
            /// All variants.
            pub const ALL: &[$what] = &[$($what::$variant,)*];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $($what::$variant => $name,)* }
            }
        }
    };
}

counted! {
    /// The situations that a cut may land in. A campaign without a cut in a situation has proved
    /// nothing about that situation.
    Landing:
    Promotion, "promotion", "Lines or updates were in flight to the pool.";
    Eviction, "eviction", "A line had just made room for one that was in flight.";
    MapCommit, "map_commit", "Changes of the map were in flight to a pool device.";
    JournalWrap, "journal_wrap", "The log had come round to its start a few commits ago.";
    Checkpoint, "checkpoint", "A whole map had just been written to a pool device.";
    BitmapCommit, "bitmap_commit", "A bitmap was in flight to the pool.";
    Table, "table", "More rows of volumes than a superblock has room for were in flight to the pool.";
    Ejection, "ejection", "A pool device had just been ejected.";
    Recovery, "recovery", "The daemon was opening its pool.";
    Standstill, "standstill", "The back end had restored a volume, and nobody had invalidated it.";
}

counted! {
    /// The events of a case beside losses of power. A campaign that never met an event has proved
    /// nothing about that event.
    Event:
    LossReported, "loss_reported", "A client's flush failed since the origin had lost writes.";
    OriginAway, "origin_away", "An origin lost writes, and answered with errors for a while.";
    OriginLate, "origin_late", "A failed write to an origin landed later.";
    Snapshot, "snapshot", "The back end took a snapshot of a volume at a standstill.";
    Rollback, "rollback", "The back end put a snapshot back, and the volume was invalidated.";
    Invalidation, "invalidation", "A volume was invalidated.";
    Stop, "stop", "A daemon stopped in order, and another one started.";
    StopAtStandstill, "stop_at_standstill", "It did so before a restored volume was invalidated.";
    Renamed, "renamed", "A volume had another name than in the life before.";
    Moved, "moved", "A volume was in another pool than in the life before.";
    Resized, "resized", "A volume had another size than in the life before.";
    DiskBack, "disk_back", "A pool disk went back to what it was some lives ago.";
    Hung, "hung", "A pool disk answered nothing any more.";
    FlushIgnored, "flush_ignored", "A pool disk acknowledged what it did not make durable.";
    PoolLate, "pool_late", "A failed write to a pool disk landed later.";
}

/// The situations of a case.
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// Operations that clients began.
    pub operations: u64,
    /// Of these, reads served from the pool alone.
    pub hits: u64,
    /// Losses of power, and kills of the daemon.
    pub cuts: u64,
    /// The first violation.
    pub violation: Option<String>,
    landed: [u64; Landing::ALL.len()],
    met: [u64; Event::ALL.len()],
}

impl CrashReport {
    pub(super) fn land(&mut self, landing: Landing) {
        self.landed[landing as usize] += 1;
    }

    pub(super) fn meet(&mut self, event: Event) {
        self.met[event as usize] += 1;
    }
}

/// The situations of many cases.
#[derive(Default)]
pub struct CrashTotals {
    operations: Vec<u32>,
    hits: u64,
    cuts: u64,
    landed: [u64; Landing::ALL.len()],
    met: [u64; Event::ALL.len()],
    /// The seeds that failed, each with its violation.
    pub violations: Vec<(u64, String)>,
}

/// A mutation of the engine, and whether the laboratory caught it.
#[derive(Clone, Debug, Serialize)]
pub struct Mutated {
    /// The mutation.
    pub name: String,
    /// A case found the mutation.
    pub caught: bool,
}

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct CrashSummary {
    /// Cases.
    pub cases: usize,
    /// The median of a case's operations.
    pub operations_median: u32,
    /// Losses of power in all of them.
    pub power_cuts: u64,
    /// Losses that landed in each situation.
    pub landed: BTreeMap<&'static str, u64>,
    /// Count of each event, in all cases.
    pub met: BTreeMap<&'static str, u64>,
    /// Reads served from the pool alone.
    pub hits: u64,
    /// The violations.
    pub violations: Vec<CaseViolation>,
    /// Cases a second, of all threads together.
    pub cases_per_second: f64,
    /// The outcomes of the mutations, if they were tried.
    pub mutations: Vec<Mutated>,
}

impl CrashTotals {
    /// Adds the case of `seed`.
    pub fn add(&mut self, seed: u64, report: CrashReport) {
        self.operations.push(report.operations as u32);
        self.hits += report.hits;
        self.cuts += report.cuts;
        add(&mut self.landed, report.landed);
        add(&mut self.met, report.met);
        let violation = report.violation.map(|what| (seed, what));
        self.violations.extend(violation);
    }

    /// The situations that no cut landed in, and the events that befell no case.
    pub fn missed(&self) -> Vec<&'static str> {
        let landed = Landing::ALL.iter().zip(self.landed);
        let landed = landed.map(|(landing, n)| (landing.name(), n));
        let met = Event::ALL.iter().zip(self.met);
        let all = landed.chain(met.map(|(event, n)| (event.name(), n)));
        all.filter(|(_, n)| *n == 0).map(|(name, _)| name).collect()
    }

    /// The report, over cases that took `seconds`; `replay` makes the command
    /// that repeats a seed.
    pub fn summary(&self, seconds: f64, replay: impl Fn(u64) -> String) -> CrashSummary {
        let mut operations = self.operations.clone();
        operations.sort_unstable();
        let landed = Landing::ALL
            .iter()
            .map(|l| (l.name(), self.landed[*l as usize]));
        let met = Event::ALL.iter().map(|e| (e.name(), self.met[*e as usize]));
        CrashSummary {
            cases: operations.len(),
            operations_median: operations.get(operations.len() / 2).copied().unwrap_or(0),
            power_cuts: self.cuts,
            landed: landed.collect(),
            met: met.collect(),
            hits: self.hits,
            violations: CaseViolation::all(&self.violations, replay),
            cases_per_second: operations.len() as f64 / seconds.max(1e-9),
            mutations: Vec::new(),
        }
    }
}

fn add<const N: usize>(sums: &mut [u64; N], counts: [u64; N]) {
    for (sum, n) in sums.iter_mut().zip(counts) {
        *sum += n;
    }
}
