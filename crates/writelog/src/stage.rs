//! The work in progress in a log: for reports, and for a test that cuts the power in the middle.

use super::cleaning::Cleaning;
use block::Signal;
use std::cell::Cell;

/// A kind of work in progress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LogStage {
    /// A record is in flight to all copies.
    Append,
    /// A record of several writes is in flight.
    Join,
    /// One copy has a record and the other has not.
    BetweenCopies,
    /// A write that forces unit access is in flight.
    Forced,
    /// A segment is begun.
    SegmentStart,
    /// Copies are flushed.
    Flush,
    /// One copy is flushed and the other is not.
    BetweenFlushes,
    /// The origin gets a part of an interval.
    Apply,
    /// The origin is flushed.
    OriginFlush,
    /// `written_back_to` is made durable in the pool.
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

impl LogStage {
    /// Every stage: those of any log, of a log with windows, and of a log with a journal.
    pub const ALL: [LogStage; 24] = [
        LogStage::Append,
        LogStage::Join,
        LogStage::BetweenCopies,
        LogStage::Forced,
        LogStage::SegmentStart,
        LogStage::Flush,
        LogStage::BetweenFlushes,
        LogStage::Apply,
        LogStage::OriginFlush,
        LogStage::Note,
        LogStage::Loss,
        LogStage::Degraded,
        LogStage::Drain,
        LogStage::Scan,
        LogStage::Double,
        LogStage::Fence,
        LogStage::Window,
        LogStage::Skip,
        LogStage::JournalBody,
        LogStage::JournalFlush,
        LogStage::JournalCommit,
        LogStage::Retire,
        LogStage::Forsake,
        LogStage::Redo,
    ];

    /// Stages that a log may be in.
    pub fn of(cleaning: Cleaning) -> &'static [LogStage] {
        match cleaning {
            Cleaning::Ordered => &LogStage::ALL[..16],
            Cleaning::Coalesced => &LogStage::ALL[..18],
            Cleaning::Journaled => &LogStage::ALL,
        }
    }
}

/// Counts of the stages in progress.
#[derive(Default)]
pub struct Stages {
    counts: [Cell<u32>; LogStage::ALL.len()],
    entered: Signal,
}

impl Stages {
    /// Stages in progress.
    pub fn now(&self) -> impl Iterator<Item = LogStage> {
        let all = LogStage::ALL.into_iter();
        all.filter(|stage| self.is(*stage))
    }

    /// True if `stage` is in progress.
    pub fn is(&self, stage: LogStage) -> bool {
        self.counts[stage as usize].get() > 0
    }

    /// Waits until `stage` is in progress.
    pub async fn until(&self, stage: LogStage) {
        self.entered.until(|| self.is(stage)).await;
    }

    /// Puts `stage` in progress until the guard is dropped.
    pub(super) fn enter(&self, stage: LogStage) -> Under<'_> {
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
