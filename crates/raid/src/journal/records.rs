//! The records of one journal, in memory: the durable ones, and those that are done with.
//!
//! Invariants:
//!     there is a `RecordedWrite` ⟹ its record is durable, and stays until a flush has covered
//!         its writes
//!     a slot is used again ⟹ a flush has covered the writes of its record
//!     a record names an earlier one as done with, or durable ⟹ it is
//!
//! The journal is no `block::Durable`: records are not versions of one state of which the newest
//! counts. Each record has its own slot, is written once, and counts until a flush has covered it.
//!
//! Not here: contents and writes of records (`journal`).

use block::Proof;
use std::collections::VecDeque;

/// Proof that the record of a write is durable on the parity member. Only [`JournalRecords::written`]
/// gives one.
#[must_use]
#[derive(Debug)]
pub(crate) struct RecordedWrite(());

/// Permission to write a stripe in place, with its reason.
#[derive(Debug)]
pub(crate) enum StripeCover {
    /// The record of the write is durable.
    Record(RecordedWrite),
    /// The parity member is not in sync, or lacks the band, which every member knows.
    NoParity(Proof),
}

/// The write that a record announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnnouncedChange {
    /// A write of a part of a stripe.
    Part(u64),
    /// A write of a whole stripe.
    Whole(u64),
    /// No write: the record only carries the tail.
    Nothing,
}

/// The states of other records that a new record carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BegunRecord {
    pub number: u64,
    /// Records before this one are done with.
    pub tail: u64,
    /// Records before this one are durable.
    pub durable: u64,
}

#[derive(Clone, Debug)]
struct LiveRecord {
    number: u64,
    announced: AnnouncedChange,
    /// The record has been written.
    durable: bool,
    /// The announced write has ended, or never will begin.
    done: bool,
    /// The write has failed, and the record is to be revoked.
    failed: bool,
}

/// The records of a journal.
#[derive(Clone, Debug)]
pub(super) struct JournalRecords {
    slots: u64,
    next: u64,
    live: VecDeque<LiveRecord>,
    /// The last record announces a write.
    open: bool,
    /// The value of `next` at the last look.
    seen: u64,
}

impl JournalRecords {
    pub fn new(slots: u64) -> JournalRecords {
        JournalRecords {
            slots,
            next: 1,
            live: VecDeque::new(),
            open: false,
            seen: 1,
        }
    }

    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Continues the numbers after `number`.
    pub fn resume_after(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// True if a record may begin.
    pub fn has_room(&self) -> bool {
        (self.live.len() as u64) < self.slots
    }

    /// True if half of the slots are taken, and a flush that begins now frees some of them.
    pub fn is_half_full(&self) -> bool {
        let taken = self.live.len() as u64;
        2 * taken >= self.slots && self.can_make_room()
    }

    /// True if a flush that begins now makes room.
    pub fn can_make_room(&self) -> bool {
        self.live.front().is_none_or(|record| record.done)
    }

    /// Begins a record. [`JournalRecords::end`] must follow.
    pub fn begin(&mut self, announced: AnnouncedChange) -> BegunRecord {
        assert!(self.has_room(), "a slot is free");
        let number = self.next;
        self.next += 1;
        self.open |= announced != AnnouncedChange::Nothing;
        self.live.push_back(LiveRecord {
            number,
            announced,
            durable: false,
            done: false,
            failed: false,
        });
        self.says(number)
    }

    fn says(&self, number: u64) -> BegunRecord {
        let durable = self.live.iter().find(|record| !record.durable);
        BegunRecord {
            number,
            tail: self.live.front().map_or(number, |record| record.number),
            durable: durable.map_or(number, |record| record.number.min(number)),
        }
    }

    fn record(&mut self, number: u64) -> Option<&mut LiveRecord> {
        self.live.iter_mut().find(|record| record.number == number)
    }

    /// Notes that the record is durable.
    pub fn written(&mut self, number: u64) -> RecordedWrite {
        let is_last = self.next == number + 1;
        let record = self.record(number).expect("it has not ended");
        record.durable = true;
        if is_last && record.announced == AnnouncedChange::Nothing {
            self.open = false;
        }
        RecordedWrite(())
    }

    /// Notes that the write of a record has ended; `good` is false if it failed.
    pub fn end(&mut self, number: u64, good: bool) {
        let record = self.record(number).expect("it began");
        (record.done, record.failed) = (true, !good);
    }

    /// Returns the first record with a write that has not ended.
    pub fn done_before(&self) -> u64 {
        let open = self.live.iter().find(|record| !record.done);
        open.map_or(self.next, |record| record.number)
    }

    /// Frees the records before `number`: a flush has covered their writes, and a member that did
    /// not take the flush counts as out of sync.
    pub fn free_before(&mut self, number: u64, _flushed: &Proof) {
        while self.live.front().is_some_and(|r| r.number < number) {
            self.live.pop_front();
        }
    }

    /// True if a record of this stripe as a whole is left.
    pub fn has_whole(&self, stripe: u64) -> bool {
        let whole = AnnouncedChange::Whole(stripe);
        self.live.iter().any(|record| record.announced == whole)
    }

    /// Returns the records of writes that have failed and are not revoked.
    pub fn failed(&self) -> Vec<u64> {
        let failed = self.live.iter().filter(|record| record.failed);
        failed.map(|record| record.number).collect()
    }

    /// Returns the stripe of record `number`, if that is still failed, and the fields of the record
    /// that revokes it.
    pub fn revocation(&self, number: u64) -> Option<(u64, BegunRecord)> {
        let mut live = self.live.iter();
        let failed = live.find(|record| record.number == number && record.failed)?;
        match failed.announced {
            AnnouncedChange::Part(stripe) | AnnouncedChange::Whole(stripe) => {
                Some((stripe, self.says(number)))
            }
            AnnouncedChange::Nothing => None,
        }
    }

    /// Notes that the record that revokes `number` is durable.
    pub fn revoked(&mut self, number: u64) {
        if let Some(record) = self.record(number) {
            record.failed = false;
        }
    }

    /// True if a flush has covered all announced writes, no record says so yet, and none has begun
    /// since the last call.
    pub fn is_idle_and_open(&mut self) -> bool {
        let rests = self.seen == self.next;
        self.seen = self.next;
        let mut live = self.live.iter();
        rests && self.open && live.all(|record| record.announced == AnnouncedChange::Nothing)
    }

    /// True if neither a record that is left nor the next one is in a slot.
    pub fn is_free(&self, slot: u64) -> bool {
        let mut used = self.live.iter().map(|record| record.number);
        self.next % self.slots != slot && used.all(|number| number % self.slots != slot)
    }
}

#[cfg(test)]
mod tests;
