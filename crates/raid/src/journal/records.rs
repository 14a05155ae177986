//! The records of one journal, in memory: which are durable, and which are done with.
//!
//! Invariants:
//!     there is a `Recorded` ⟹ its record is durable, and stays until a flush has covered
//!         what it announced
//!     a slot is used again ⟹ a flush has covered what its record announced
//!     a record says that one before it is done with, or durable ⟹ it is
//!
//! This is no `block::Durable`: records are not versions of one state of which the newest counts,
//! but each has a slot of its own, is written once, and counts until a flush has covered it.
//!
//! Not here: what records hold and how they are written (`journal`).

use block::Proof;
use std::collections::VecDeque;

/// That the record of a write is durable on the member that holds parity. Only
/// [`Records::written`] gives one.
#[must_use]
#[derive(Debug)]
pub(crate) struct Recorded(());

/// Why a stripe may be written in place.
#[derive(Debug)]
pub(crate) enum Cover {
    /// Its record is durable.
    Record(Recorded),
    /// The parity's member is not in sync, which every member knows.
    NoParity(Proof),
}

/// What a record announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// A write of a part of a stripe.
    Part(u64),
    /// One of a whole stripe.
    Whole(u64),
    /// Nothing: it only carries the tail.
    Nothing,
}

/// What a record that is about to be written says of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    pub number: u64,
    /// Records before this one are done with.
    pub tail: u64,
    /// Records before this one are durable.
    pub durable: u64,
}

#[derive(Clone, Debug)]
struct Live {
    number: u64,
    announced: Announced,
    /// It has been written.
    durable: bool,
    /// What it announced has been written, or never will be.
    done: bool,
    /// That has failed, and the record is to be revoked.
    failed: bool,
}

/// The records of a journal.
#[derive(Clone, Debug)]
pub(super) struct Records {
    slots: u64,
    next: u64,
    live: VecDeque<Live>,
    /// The last record announces something.
    open: bool,
    /// What `next` was when it was looked at last.
    seen: u64,
}

impl Records {
    pub fn new(slots: u64) -> Records {
        Records {
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

    /// Numbers go on after `number`.
    pub fn resume_after(&mut self, number: u64) {
        self.next = number + 1;
    }

    /// Whether a record may begin.
    pub fn has_room(&self) -> bool {
        (self.live.len() as u64) < self.slots
    }

    /// Whether a flush that begins now makes room.
    pub fn can_make_room(&self) -> bool {
        self.live.front().is_none_or(|record| record.done)
    }

    /// A record is about to be written. [`Records::end`] must follow.
    pub fn begin(&mut self, announced: Announced) -> Begun {
        assert!(self.has_room(), "a slot is free");
        let number = self.next;
        self.next += 1;
        self.open |= announced != Announced::Nothing;
        self.live.push_back(Live {
            number,
            announced,
            durable: false,
            done: false,
            failed: false,
        });
        self.says(number)
    }

    fn says(&self, number: u64) -> Begun {
        let durable = self.live.iter().find(|record| !record.durable);
        Begun {
            number,
            tail: self.live.front().map_or(number, |record| record.number),
            durable: durable.map_or(number, |record| record.number.min(number)),
        }
    }

    fn record(&mut self, number: u64) -> Option<&mut Live> {
        self.live.iter_mut().find(|record| record.number == number)
    }

    /// The record is durable.
    pub fn written(&mut self, number: u64) -> Recorded {
        let is_last = self.next == number + 1;
        let record = self.record(number).expect("it has not ended");
        record.durable = true;
        if is_last && record.announced == Announced::Nothing {
            self.open = false;
        }
        Recorded(())
    }

    /// What a record announced has been written, or has failed unless `good`.
    pub fn end(&mut self, number: u64, good: bool) {
        let record = self.record(number).expect("it began");
        (record.done, record.failed) = (true, !good);
    }

    /// Records before this one have been written in place.
    pub fn done_before(&self) -> u64 {
        let open = self.live.iter().find(|record| !record.done);
        open.map_or(self.next, |record| record.number)
    }

    /// A flush has covered what the records before `number` announced, and who did not take
    /// it counts as in sync no more.
    pub fn free_before(&mut self, number: u64, _flushed: &Proof) {
        while self.live.front().is_some_and(|r| r.number < number) {
            self.live.pop_front();
        }
    }

    /// Whether a record of this stripe as a whole is left.
    pub fn has_whole(&self, stripe: u64) -> bool {
        let whole = Announced::Whole(stripe);
        self.live.iter().any(|record| record.announced == whole)
    }

    /// The records of writes that have failed and are not revoked.
    pub fn failed(&self) -> Vec<u64> {
        let failed = self.live.iter().filter(|record| record.failed);
        failed.map(|record| record.number).collect()
    }

    /// The stripe of record `number`, if that has failed still, and what the record that
    /// revokes it says.
    pub fn revocation(&self, number: u64) -> Option<(u64, Begun)> {
        let mut live = self.live.iter();
        let failed = live.find(|record| record.number == number && record.failed)?;
        match failed.announced {
            Announced::Part(stripe) | Announced::Whole(stripe) => Some((stripe, self.says(number))),
            Announced::Nothing => None,
        }
    }

    /// The record that revokes `number` is durable.
    pub fn revoked(&mut self, number: u64) {
        if let Some(record) = self.record(number) {
            record.failed = false;
        }
    }

    /// Whether nothing is announced that a flush has not covered, no record says so, and
    /// none has begun since this was asked last.
    pub fn is_idle_and_open(&mut self) -> bool {
        let rests = self.seen == self.next;
        self.seen = self.next;
        let mut live = self.live.iter();
        rests && self.open && live.all(|record| record.announced == Announced::Nothing)
    }

    /// Whether neither a record that is left nor the next one is in a slot.
    pub fn is_free(&self, slot: u64) -> bool {
        let mut used = self.live.iter().map(|record| record.number);
        self.next % self.slots != slot && used.all(|number| number % self.slots != slot)
    }
}

#[cfg(test)]
mod tests;
