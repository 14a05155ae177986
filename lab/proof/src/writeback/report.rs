//! The situations of a case of write-back, and those of many cases together.

use crate::violation::CaseViolation;
use serde::Serialize;
use std::collections::BTreeMap;
use writelog::{Cleaning, LogStage};

/// The situation that a cut landed in, or an event of a case beside cuts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Landing {
    /// This stage was under way.
    Amid(LogStage),
    /// The daemon was opening its log.
    Opening,
    /// A write was torn on a device of the pool.
    Torn,
    /// A device of the pool was unplugged under the daemon.
    Unplugged,
    /// A daemon started without a device of the pool.
    Missing,
    /// The origin alone was judged after a replay of the journal.
    Replayed,
}

impl Landing {
    /// All situations that a log of that order may meet.
    pub fn all(cleaning: Cleaning) -> impl Iterator<Item = Landing> {
        let stages = LogStage::of(cleaning).iter().copied().map(Landing::Amid);
        let others = [
            Landing::Opening,
            Landing::Torn,
            Landing::Unplugged,
            Landing::Missing,
        ];
        let replayed = (cleaning == Cleaning::Journaled).then_some(Landing::Replayed);
        stages.chain(others).chain(replayed)
    }

    /// The name in reports.
    pub fn name(self) -> String {
        match self {
            Landing::Amid(stage) => format!("amid {stage:?}"),
            other => format!("{other:?}"),
        }
    }
}

/// The situations of a case.
#[derive(Clone, Debug, Default)]
pub struct WriteBackCaseReport {
    /// Operations that clients began.
    pub operations: u64,
    /// Losses of power, and kills of the daemon.
    pub cuts: u64,
    /// Times that the origin alone was judged, as if the pool were destroyed.
    pub destroyed: u64,
    /// The first violation.
    pub violation: Option<String>,
    landed: BTreeMap<Landing, u64>,
}

impl WriteBackCaseReport {
    pub(super) fn land(&mut self, landing: Landing) {
        *self.landed.entry(landing).or_default() += 1;
    }
}

/// The situations of many cases.
#[derive(Default)]
pub struct WriteBackTotals {
    operations: Vec<u32>,
    cuts: u64,
    destroyed: u64,
    landed: BTreeMap<Landing, u64>,
    /// The seeds that failed, each with its violation.
    pub violations: Vec<(u64, String)>,
}

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct WriteBackSummary {
    /// Cases.
    pub cases: usize,
    /// The median of a case's operations.
    pub operations_median: u32,
    /// Losses of power, and kills of the daemon.
    pub cuts: u64,
    /// Times that the origin alone was judged.
    pub destroyed: u64,
    /// Cuts that landed in each situation.
    pub landed: BTreeMap<String, u64>,
    /// The violations.
    pub violations: Vec<CaseViolation>,
    /// Cases a second.
    pub cases_per_second: f64,
}

impl WriteBackTotals {
    /// Adds the case of `seed`.
    pub fn add(&mut self, seed: u64, report: WriteBackCaseReport) {
        self.operations.push(report.operations as u32);
        self.cuts += report.cuts;
        self.destroyed += report.destroyed;
        for (landing, times) in report.landed {
            *self.landed.entry(landing).or_default() += times;
        }
        let violation = report.violation.map(|what| (seed, what));
        self.violations.extend(violation);
    }

    /// The situations that no cut landed in.
    pub fn missed(&self, cleaning: Cleaning) -> Vec<String> {
        let all = Landing::all(cleaning);
        let missed = all.filter(|landing| !self.landed.contains_key(landing));
        missed.map(Landing::name).collect()
    }

    /// The report, over cases of that order that took `seconds`.
    pub fn summary(&self, seconds: f64, cleaning: Cleaning) -> WriteBackSummary {
        let mut operations = self.operations.clone();
        operations.sort_unstable();
        let times = |landing| self.landed.get(&landing).copied().unwrap_or(0);
        WriteBackSummary {
            cases: operations.len(),
            operations_median: operations.get(operations.len() / 2).copied().unwrap_or(0),
            cuts: self.cuts,
            destroyed: self.destroyed,
            landed: Landing::all(cleaning)
                .map(|l| (l.name(), times(l)))
                .collect(),
            violations: CaseViolation::all(&self.violations, |seed| super::replay(seed, cleaning)),
            cases_per_second: operations.len() as f64 / seconds.max(1e-9),
        }
    }
}
