//! What is under way in a log: for reports, and for whoever cuts the power in the midst.

use super::cleaning::Cleaning;
use block::Signal;
use std::cell::Cell;

/// Something that takes time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// A record is on its way to all copies.
    Append,
    /// A record of several writes is on its way.
    Join,
    /// One copy has a record and another has not.
    BetweenCopies,
    /// A write that forces unit access is on its way.
    Forced,
    /// A segment is begun.
    Turn,
    /// Copies are flushed.
    Flush,
    /// One copy is flushed and another is not.
    BetweenFlushes,
    /// The origin gets a part of an interval.
    Apply,
    /// The origin is flushed.
    OriginFlush,
    /// What is done is made durable in the pool.
    Note,
    /// A copy is lost, and the others do not know yet.
    Loss,
    /// A write waits for the origin, since a copy is lost.
    Degraded,
    /// All that is owed goes to the origin.
    Drain,
    /// Segments are read at an opening.
    Scan,
    /// Records that one copy has are written to the other.
    Double,
    /// The fence of an incarnation is made durable.
    Fence,
    /// Records of a window are read.
    Window,
    /// A window is carried out that leaves out versions of several intervals.
    Skip,
    /// The journal gets a group.
    JournalBody,
    /// The journal is flushed, before the group's commit.
    JournalFlush,
    /// A group is committed.
    JournalCommit,
    /// What is committed is made void, since the origin is to be written otherwise.
    Retire,
    /// The journal has failed, and that is made known durably.
    Forsake,
    /// What a former incarnation committed goes to the origin once more.
    Redo,
}

impl Stage {
    /// Every stage: those of any log, of one that takes windows, and of one with a journal.
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

    /// Those that a log may be in.
    pub fn of(cleaning: Cleaning) -> &'static [Stage] {
        match cleaning {
            Cleaning::Ordered => &Stage::ALL[..16],
            Cleaning::Coalesced => &Stage::ALL[..18],
            Cleaning::Journaled => &Stage::ALL,
        }
    }
}

/// How often each is under way.
#[derive(Default)]
pub struct Stages {
    counts: [Cell<u32>; Stage::ALL.len()],
    entered: Signal,
}

impl Stages {
    /// Those that are.
    pub fn now(&self) -> impl Iterator<Item = Stage> {
        let all = Stage::ALL.into_iter();
        all.filter(|stage| self.is(*stage))
    }

    /// Whether `stage` is.
    pub fn is(&self, stage: Stage) -> bool {
        self.counts[stage as usize].get() > 0
    }

    /// Waits until `stage` is.
    pub async fn until(&self, stage: Stage) {
        self.entered.until(|| self.is(stage)).await;
    }

    /// It is under way until the guard is dropped.
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
