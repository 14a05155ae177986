//! The events of a run, and those of many runs together.

use crate::classes::classes;
use crate::violation::CaseViolation;
use raid::Level;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

classes! {
    Loss, "a member was unplugged under load";
    Return, "a lost member returned and got what it had missed";
    Spare, "a spare took a lost member's place";
    LossInRebuild, "a member that was being filled was lost";
    LatentError, "sectors that could not be read were written again";
    Cut, "the power was lost";
    CutInWrite, "the power was lost with writes in flight";
    CutInPartialWrite, "the power was lost with writes of parts of RAID 5 stripes in flight";
    CutInRebuild, "the power was lost while a member was filled";
    CutInResync, "the power was lost while copies were brought into agreement";
    CutDegraded, "the power was lost with a member missing";
    CutInStart, "the power was lost before the array had started";
    CutTwice, "the power was lost twice, with little in between";
    CutAndLoss, "a member did not come back after a loss of power";
    CutInLoss, "the power was lost just after a member, or while it refused writes";
    CutAndBack, "a lost member was back with the power";
    Replay, "stripes were done again from a journal";
    Unreadable, "data that was being written when power and a member were lost is reported lost";
    Refused, "a member refused writes under load";
    RefusedDegraded, "a member refused writes while another was missing";
    RefusedInFill, "a member that was being filled refused writes";
    RefusedInStart, "a member refused writes while the array started";
    RefusedLost, "what a missing member held is reported lost, for another refused a write";
    Scrub, "a scrub at the end found no difference";
    CleanStart, "an array that ended in order had nothing to bring into agreement at its start";
    MetadataError, "metadata could not be read, once";
    MetadataLost, "metadata could not be read until it was written";
    Rot, "a bit of metadata flipped between two lives";
    RotBesideStale, "a bit of the newest superblock flipped while a stale member was back";
    HungAtStart, "a member did not answer while the array started";
    Hung, "a member did not answer for a while";
    HungForGood, "a member did not answer and was left behind";
    LateWrite, "a member was given back while a write to it, given up, had still to land";
    SlowDevice, "a member answered slowly";
    UnresponsiveNeeded, "somebody was notified of a member that did not answer and could not be done without";
    Discard, "sectors were discarded";
    DiscardRefused, "a member refused a discard";
    ReplaceSound, "a sound member was replaced";
    ReplaceLost, "a lost member was replaced";
    ReturnInSpare, "a lost member was given back while a spare took its place";
    Forced, "a stale leg was started by force";
    ForcedCut, "the power was lost while a stale leg was started by force";
    StaleRefused, "a stale leg alone was refused";
    SplitBrain, "legs that diverged were refused";
    Chosen, "one of two histories was chosen, and the other overwritten";
    OtherBlocks, "a member came back with larger logical blocks";
    Shrunk, "a member came back smaller";
    SeveralLost, "several members were lost at a time, and the others continued";
    SeveralStopped, "more members were lost than the array can do without, and came back";
    Nested, "an array of arrays was assembled";
    NestedLoss, "an array within an array lost a disk that it can do without";
    NestedDown, "an array within an array lost too much, and came back";
    Spoiled, "sectors could not be read after a loss of power";
    MemoryFull, "clients waited for memory, holding all that they may";
    IdleCut, "the power was lost after hours without a write";
    Forgot, "a server was restarted, and forgot what no flush had covered";
    ForgotRead, "a member was left behind at a read for what it may have forgotten";
    ReturnImage, "a lost member returned as an older image of itself";
    ReturnBlank, "a lost member returned blank";
    ReturnCopy, "a lost member returned as a copy of another, and was refused";
    StartImage, "an older image of a member was there when the array started";
    Paused, "the process was paused for longer than a member may take";
    RefusedSuperblock, "a member refused a superblock";
    RefusedMap, "a member refused the write-intent map";
    RefusedRecord, "a member refused a record of its journal";
    Noise, "a member's first sectors were noise, both superblocks among them";
    NoiseOneCopy, "one superblock of a member was noise";
    RotBesideAway, "a bit of the newest superblock flipped while another member was away";
    RotBesideBlank, "a bit of the newest superblock flipped while another member was back blank";
}

/// One run.
#[derive(Clone, Debug)]
pub struct ArraySimReport {
    /// The level.
    pub level: Level,
    /// Operations that clients began.
    pub operations: u64,
    /// The first violation.
    pub violation: Option<String>,
    classes: [u64; Class::ALL.len()],
}

impl ArraySimReport {
    pub(crate) fn new(level: Level) -> ArraySimReport {
        ArraySimReport {
            level,
            operations: 0,
            violation: None,
            classes: [0; Class::ALL.len()],
        }
    }

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
}

/// Many runs.
pub struct ArraySimTotals {
    runs: [u64; Level::ALL.len()],
    /// Of each run.
    operations: Vec<u64>,
    classes: [u64; Class::ALL.len()],
    violations: Vec<(u64, String)>,
}

impl Default for ArraySimTotals {
    fn default() -> ArraySimTotals {
        ArraySimTotals {
            runs: [0; Level::ALL.len()],
            operations: Vec::new(),
            classes: [0; Class::ALL.len()],
            violations: Vec::new(),
        }
    }
}

impl ArraySimTotals {
    /// Adds the run of `seed`.
    pub fn add(&mut self, seed: u64, report: ArraySimReport) {
        let level = Level::ALL.iter().position(|level| *level == report.level);
        self.runs[level.expect("one of all")] += 1;
        self.operations.push(report.operations);
        for (sum, n) in self.classes.iter_mut().zip(report.classes) {
            *sum += n;
        }
        let violation = report.violation.map(|what| (seed, what));
        self.violations.extend(violation);
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

/// The report of a campaign, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct ArraySimSummary {
    /// Runs.
    pub runs: u64,
    /// Runs of each level.
    pub levels: BTreeMap<&'static str, u64>,
    /// Operations of all runs.
    pub operations: u64,
    /// The median of a run's operations.
    pub operations_median: u64,
    /// Count of each class.
    pub met: BTreeMap<String, u64>,
    /// The violations.
    pub violations: Vec<CaseViolation>,
}

impl ArraySimTotals {
    /// The report.
    pub fn summary(&self) -> ArraySimSummary {
        let mut operations = self.operations.clone();
        operations.sort_unstable();
        let levels = Level::ALL.iter().map(|level| level.name());
        let met = Class::ALL.iter().map(|class| format!("{class:?}"));
        ArraySimSummary {
            runs: self.runs.iter().sum(),
            levels: levels.zip(self.runs).collect(),
            operations: operations.iter().sum(),
            operations_median: operations.get(operations.len() / 2).copied().unwrap_or(0),
            met: met.zip(self.classes).collect(),
            violations: CaseViolation::all(&self.violations, super::replay),
        }
    }
}

impl fmt::Display for ArraySimTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.summary();
        let (runs, wrong) = (summary.runs, self.violations.len());
        let (operations, median) = (summary.operations, summary.operations_median);
        write!(f, "{runs} runs (")?;
        for (i, (level, runs)) in Level::ALL.iter().zip(self.runs).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} {runs}", level.name())?;
        }
        writeln!(
            f,
            "), {operations} operations (median {median} a run), {wrong} violations"
        )?;
        for class in Class::ALL {
            let met = self.classes[*class as usize];
            writeln!(f, "{met:>10}  {class:?}: {}", class.help())?;
        }
        Ok(())
    }
}
