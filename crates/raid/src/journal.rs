//! The journal that closes RAID 5's write hole.
//!
//! Before a stripe is changed in part, the new data and the new parity are made durable on the
//! member that holds the stripe's parity. Then one member can be lost together with the power:
//!     the parity's member: the data chunks stand for themselves
//!     a data member:       the record is done again, and parity is right
//! A stripe that is written whole needs no bytes in the journal, only its new checksums: parity is
//! computed again, or, with a member gone, the sums show whether all of the others are new.
//!
//! Invariants:
//!     a stripe is written in place ⟹ its record is durable, or every member knows that the
//!                                     parity's member is not in sync or lacks the band (`StripeCover`)
//!     a record is done with ⟺ a flush has covered the writes that it announced, and it was
//!                              revoked if one had failed
//!     a partial write to a stripe begins ⟹ no record of it as a whole is left
//!
//! A record names the first that is not done with (its tail): older ones that are still legible
//! count for nothing. It also names the first that was not durable yet: an earlier record that is
//! not found later has rotted. The header of a record is written twice, so that no record is lost
//! with one sector.
//!
//! Once a flush has covered every record of a journal that is idle, a record that only carries the
//! tail follows (`retire_idle`).
//!
//! Not here: the states of records (`records`), the writes of a stripe (`parity`), the reading of
//! records at a start, and replay (`start`).

mod records;

use crate::levels::ArrayShape;
use crate::member::ArrayMember;
use crate::members::{ArrayMembers, Meta};
use crate::stripe::{room_for, zero_buf};
use block::{BUF_BYTES_MAX, Buf, IoResult, Mutex, Proof, Sectors, SharedBuf, Signal};
use layout::array::JOURNAL;
use layout::array::journal::{JournalEntry, JournalRecord, slot_sectors};
use layout::{BLOCK_BYTES, Uuid};
use records::{AnnouncedChange, BegunRecord, JournalRecords};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) use records::{RecordedWrite, StripeCover};

/// Bytes of the header of a record and its copy.
const HEAD_BYTES: usize = 2 * BLOCK_BYTES;

/// The journal on one member.
pub(crate) struct StripeJournal {
    role: usize,
    array: Uuid,
    slot: Sectors,
    records: RefCell<JournalRecords>,
    /// Wakes when the writes that a record announced have ended, well or not.
    ended: Signal,
    freeing: Mutex,
    revoking: Mutex,
}

impl StripeJournal {
    /// Makes the journals of an array that has any, by role.
    pub fn all(meta: Option<&Meta>, shape: &ArrayShape) -> Vec<StripeJournal> {
        let Some(meta) = meta.filter(|meta| meta.journal_slots > 0) else {
            return Vec::new();
        };
        let roles = 0..shape.members();
        roles
            .map(|role| StripeJournal::new(role, meta, shape))
            .collect()
    }

    fn new(role: usize, meta: &Meta, shape: &ArrayShape) -> StripeJournal {
        StripeJournal {
            role,
            array: meta.array,
            slot: slot_sectors(shape.members(), shape.chunk()),
            records: RefCell::new(JournalRecords::new(u64::from(meta.journal_slots))),
            ended: Signal::default(),
            freeing: Mutex::default(),
            revoking: Mutex::default(),
        }
    }

    pub fn slots(&self) -> u64 {
        self.records.borrow().slots()
    }

    /// Returns the place of a record on the member.
    pub fn place(&self, number: u64) -> Sectors {
        Sectors(JOURNAL.0 + number % self.slots() * self.slot.0)
    }

    /// Returns the number of headers, one or two, of a record of `body` bytes. The buffer also
    /// holds `beside` bytes that are no part of the record.
    pub fn headers(&self, body: usize, beside: usize) -> u8 {
        let fits = (HEAD_BYTES + body) as u64 <= self.slot.bytes();
        1 + u8::from(fits && HEAD_BYTES + body + beside <= BUF_BYTES_MAX)
    }

    /// True if neither a record that is left nor the next one is in a slot.
    pub fn is_free(&self, slot: u64) -> bool {
        self.records.borrow().is_free(slot)
    }

    /// True if a flush has covered all announced writes, no record says so yet, and none has begun
    /// since the last call.
    pub fn is_idle_and_open(&self) -> bool {
        self.records.borrow_mut().is_idle_and_open()
    }

    /// True if half of the slots are taken, and a flush frees some.
    pub fn is_half_full(&self) -> bool {
        self.records.borrow().is_half_full()
    }

    /// Continues the numbers after `number`.
    pub fn resume_after(&self, number: u64) {
        self.records.borrow_mut().resume_after(number);
    }

    /// Returns the first record with a write that has not ended.
    pub fn done_before(&self) -> u64 {
        self.records.borrow().done_before()
    }

    /// Frees the records before `number`: a flush has covered their writes.
    pub fn free_before(&self, number: u64, flushed: &Proof) {
        self.records.borrow_mut().free_before(number, flushed);
    }

    /// True if a record of this stripe as a whole is left.
    pub fn has_whole(&self, stripe: u64) -> bool {
        self.records.borrow().has_whole(stripe)
    }

    /// Notes that the writes of record `number`, if there is one, have ended; `good` is false if
    /// they failed.
    pub fn end(&self, number: Option<u64>, good: bool) {
        let Some(number) = number else { return };
        self.records.borrow_mut().end(number, good);
        self.ended.notify();
    }

    /// Returns the records of writes that have failed and are not revoked.
    pub fn failed(&self) -> Vec<u64> {
        self.records.borrow().failed()
    }

    /// Revokes the records `numbers`. Their writes had failed before a flush that has ended. The
    /// bytes that they left may have been read. Doing the records again, or an earlier record of
    /// the same stripe, would change the bytes.
    pub async fn revoke(&self, members: &Rc<ArrayMembers>, numbers: &[u64]) -> IoResult {
        if numbers.is_empty() {
            return Ok(());
        }
        let _alone = self.revoking.lock().await;
        for number in numbers {
            // The journal of a member that is not in sync is never read.
            let (Some(record), Some(member)) =
                (self.revocation(*number), members.in_sync(self.role))
            else {
                continue;
            };
            let mut block = members.env.pool.take(HEAD_BYTES);
            encode(&record, &mut block);
            let written = member.write_meta(self.place(*number), block.share()).await;
            if members.judge(&member, written)? {
                self.records.borrow_mut().revoked(*number);
            }
        }
        Ok(())
    }

    /// Returns the record that revokes `number`, if that is still failed.
    fn revocation(&self, number: u64) -> Option<JournalRecord> {
        let (stripe, begun) = self.records.borrow().revocation(number)?;
        Some(self.record(begun, stripe, JournalEntry::Revoked, 2))
    }

    fn record(
        &self,
        begun: BegunRecord,
        stripe: u64,
        entry: JournalEntry,
        headers: u8,
    ) -> JournalRecord {
        JournalRecord {
            array: self.array,
            number: begun.number,
            tail: begun.tail,
            durable: begun.durable,
            headers,
            stripe,
            entry,
        }
    }

    /// Makes the record of `entry` durable. `block` begins with room for `headers`, followed by the
    /// `body` bytes of its runs. A `flush` of all members makes room for the record. Returns `block`
    /// with the record's number, which is `None` without room; [`StripeJournal::end`] must follow.
    pub async fn write(
        &self,
        member: &ArrayMember,
        stripe: u64,
        entry: JournalEntry,
        (mut block, headers, body): (Buf, u8, usize),
        flush: impl AsyncFn() -> IoResult,
    ) -> (Option<u64>, SharedBuf, IoResult<RecordedWrite>) {
        if let Err(error) = self.make_room(flush).await {
            return (None, block.share(), Err(error));
        }
        let announced = match entry {
            JournalEntry::Redo { .. } => AnnouncedChange::Part(stripe),
            JournalEntry::Whole(_) => AnnouncedChange::Whole(stripe),
            JournalEntry::Retire | JournalEntry::Revoked => AnnouncedChange::Nothing,
        };
        let begun = self.records.borrow_mut().begin(announced);
        let record = self.record(begun, stripe, entry, headers);
        encode(&record, &mut block[..record.head_bytes()]);
        let block = block.share();
        let place = self.place(record.number);
        let written = block.slice(0..record.head_bytes() + body);
        let result = member.write_meta(place, written).await;
        let recorded = result.map(|()| self.records.borrow_mut().written(record.number));
        (Some(record.number), block, recorded)
    }

    /// Waits for a free slot, which a `flush` of all members makes.
    async fn make_room(&self, flush: impl AsyncFn() -> IoResult) -> IoResult {
        let has_room = || self.records.borrow().has_room();
        while !has_room() {
            let _alone = self.freeing.lock().await;
            if has_room() {
                return Ok(());
            }
            let can_make_room = || self.records.borrow().can_make_room();
            self.ended.until(can_make_room).await;
            flush().await?;
        }
        Ok(())
    }

    /// Makes durable that every record so far is done with; a flush has covered them.
    pub async fn retire(
        &self,
        members: &Rc<ArrayMembers>,
        flush: impl AsyncFn() -> IoResult,
    ) -> IoResult {
        let Some(member) = members.in_sync(self.role) else {
            return Ok(());
        };
        let image = (members.env.pool.take(HEAD_BYTES), 2, 0);
        let written = self.write(&member, 0, JournalEntry::Retire, image, flush);
        let (number, _, result) = written.await;
        self.end(number, true);
        members.judge(&member, result.map(drop))?;
        members.commit().await
    }

    /// Leaves no legible record on a member that is to join.
    pub async fn wipe(&self, member: &ArrayMember) -> IoResult {
        self.wipe_slots(member, 0..self.slots()).await
    }

    /// True if all of `slot` can be read.
    pub async fn is_readable(&self, member: &ArrayMember, slot: u64) -> bool {
        let mut from = Sectors::ZERO;
        while from < self.slot {
            let len = Sectors(128.min((self.slot - from).0));
            let bytes = len.bytes() as usize;
            room_for(&member.env, bytes).await;
            let buf = member.env.pool.take(bytes);
            let (_, result) = member.read_meta(self.place(slot) + from, buf).await;
            if result.is_err() {
                return false;
            }
            from += len;
        }
        true
    }

    /// Writes all of a slot again, the header last.
    pub async fn zero_slot(&self, member: &ArrayMember, slot: u64) -> IoResult {
        let step = Sectors(128);
        let zeroes = zero_buf(&member.env, step.bytes() as usize).share();
        let steps = self.slot.0.div_ceil(step.0);
        for from in (0..steps).rev().map(|index| index * step.0) {
            let len = step.min(self.slot - Sectors(from)).bytes() as usize;
            let at = self.place(slot) + Sectors(from);
            member.write_meta(at, zeroes.slice(0..len)).await?;
        }
        Ok(())
    }

    /// Empties the given slots.
    pub async fn wipe_slots(
        &self,
        member: &ArrayMember,
        slots: impl IntoIterator<Item = u64>,
    ) -> IoResult {
        let block = zero_buf(&member.env, HEAD_BYTES).share();
        for slot in slots {
            member.write_meta(self.place(slot), block.clone()).await?;
        }
        Ok(())
    }
}

/// Writes the header of `record` into `head` as often as there is room.
fn encode(record: &JournalRecord, head: &mut [u8]) {
    for block in head.chunks_exact_mut(BLOCK_BYTES) {
        record.encode(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::Level;

    fn journal() -> StripeJournal {
        let shape = ArrayShape::new(Level::Raid5, &[Sectors(1024); 4], Sectors(64)).unwrap();
        let meta = Meta {
            array: Uuid::default(),
            data_at: Sectors(8192),
            region: Sectors(192),
            journal_slots: 16,
        };
        StripeJournal::new(0, &meta, &shape)
    }

    /// As docs/array-format.md has it.
    #[test]
    fn records_lie_one_after_the_other_and_begin_again() {
        let journal = journal();
        let slot = 8 + 4 * 64;
        for (number, at) in [(1, 1), (15, 15), (16, 0), (33, 1)] {
            let place = journal.place(number);
            assert_eq!(place, Sectors(32 + at * slot), "record {number}");
        }
        assert_eq!(journal.done_before(), 1);
        journal.resume_after(6);
        assert_eq!(journal.done_before(), 7);
    }

    #[test]
    fn what_a_record_of_a_failed_write_becomes_leaves_its_stripe_as_it_is() {
        let journal = journal();
        for (announced, good) in [
            (AnnouncedChange::Whole(5), true),
            (AnnouncedChange::Part(6), false),
            (AnnouncedChange::Part(7), true),
        ] {
            let begun = journal.records.borrow_mut().begin(announced);
            journal.end(Some(begun.number), good);
        }
        journal.end(None, false);
        let revocations: Vec<_> = (1..4)
            .filter_map(|number| journal.revocation(number))
            .collect();
        let [revoked] = &revocations[..] else {
            panic!("{} records", revocations.len());
        };
        assert_eq!((revoked.number, revoked.tail, revoked.stripe), (2, 1, 6));
        assert_eq!(
            (&revoked.entry, revoked.headers),
            (&JournalEntry::Revoked, 2)
        );
    }
}
