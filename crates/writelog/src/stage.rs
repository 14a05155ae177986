//! The work in progress in a log: for reports, and for a test that cuts the power in the middle.

use super::cleaning::Cleaning;
use block::Signal;
use std::cell::Cell;

/// A kind of work in progress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// A record is in flight to all copies.
    Append,
    /// A record of several writes is in flight.
    Join,
    /// One copy has a record and the other has not.
    BetweenCopies,
    /// A write that forces unit access is in flight.
    Forced,
    /// A segment is begun.
    Turn,
    /// Copies are flushed.
    Flush,
    /// One copy is flushed and the other is not.
    BetweenFlushes,
    /// The origin gets a part of an interval.
    Apply,
    /// The origin is flushed.
    OriginFlush,
    /// `done_to` is made durable in the pool.
    Note,
    /// A copy is lost, and the loss is not durable yet.
    Loss,
    /// A write waits for the origin, since a copy is lost.
    Degraded,
    /// All dirty data goes to the origin.
    Drain,
    /// Segments are read at an opening.
    Scan,
    /// Records of one copy are written to the other.
    Double,
    /// The fence of an incarnation is made durable.
    Fence,
    /// Records of a window are read.
    Window,
    /// A window is written back that leaves out versions of several intervals.
    Skip,
    /// A group is written to the journal.
    JournalBody,
    /// The journal is flushed, before the group's commit.
    JournalFlush,
    /// A group is committed.
    JournalCommit,
    /// Committed groups are made void, since the origin is to be written by another path.
    Retire,
    /// The journal has failed, and that is made durable.
    Forsake,
    /// A group that a former incarnation committed is written back once more.
    Redo,
}

impl Stage {
    /// Every stage: those of any log, of a log with windows, and of a log with a journal.
    pub const ALL: [Stage; 24] = [
        Stage::Append,
        Stage::Join,
        Stage::BetweenCopies,
        Stage::Forced,
        Stage::Turn,
        Stage::Flush,
        Stage::BetweenFlushes,
        Stage::Apply,
        Stage::OriginFlush,
        Stage::Note,
        Stage::Loss,
        Stage::Degraded,
        Stage::Drain,
        Stage::Scan,
        Stage::Double,
        Stage::Fence,
        Stage::Window,
        Stage::Skip,
        Stage::JournalBody,
        Stage::JournalFlush,
        Stage::JournalCommit,
        Stage::Retire,
        Stage::Forsake,
        Stage::Redo,
    ];

    /// Stages that a log may be in.
    pub fn of(cleaning: Cleaning) -> &'static [Stage] {
        match cleaning {
            Cleaning::Ordered => &Stage::ALL[..16],
            Cleaning::Coalesced => &Stage::ALL[..18],
            Cleaning::Journaled => &Stage::ALL,
        }
    }
}

/// Counts of the stages in progress.
#[derive(Default)]
pub struct Stages {
    counts: [Cell<u32>; Stage::ALL.len()],
    entered: Signal,
}

impl Stages {
    /// Stages in progress.
    pub fn now(&self) -> impl Iterator<Item = Stage> {
        let all = Stage::ALL.into_iter();
        all.filter(|stage| self.is(*stage))
    }

    /// True if `stage` is in progress.
    pub fn is(&self, stage: Stage) -> bool {
        self.counts[stage as usize].get() > 0
    }

    /// Waits until `stage` is in progress.
    pub async fn until(&self, stage: Stage) {
        self.entered.until(|| self.is(stage)).await;
    }

    /// Puts `stage` in progress until the guard is dropped.
    pub(super) fn enter(&self, stage: Stage) -> Under<'_> {
        let count = &self.counts[stage as usize];
        count.set(count.get() + 1);
        self.entered.notify();
        Under(count)
    }
}

pub(super) struct Under<'a>(&'a Cell<u32>);

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
