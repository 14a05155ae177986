//! The contents of a RAID 5 journal at a start.
//!
//! A record that cannot be read is not an absent one. Each slot holds a record, nothing, a torn
//! record, or unknown bytes. A loss of power leaves a torn record; its stripe was not written yet.
//! Unknown are
//!     a slot with a first header that cannot be read, and no legible copy
//!     a slot that lost its record, which a later record names as durable
//!
//! Not here: the repairs (`replay`).

use crate::core::ArrayCore;
use crate::member::ArrayMember;
use block::{Buf, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors};
use layout::BLOCK_BYTES;
use layout::array::journal::{JournalEntry, JournalRecord};
use std::collections::BTreeMap;

/// Number of tries of a read that a start depends on, and the pause after each failure.
const READ_TRIES: u32 = 4;
const READ_PAUSE: Nanos = Nanos::from_millis(20);

/// Contents of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FoundSlot {
    Record(JournalRecord),
    Empty,
    Torn,
    Unknown,
}

/// Completeness of the records that were found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum JournalDamage {
    /// All records are there.
    None,
    /// A write to the journal was cut short.
    Torn,
    /// The record of a slot cannot be known.
    Unknown,
}

/// Contents of a journal.
pub(crate) struct JournalScan {
    /// The records that are not done with, by stripe, the oldest first.
    pub stripes: BTreeMap<u64, Vec<JournalRecord>>,
    /// Completeness of these records.
    pub damage: JournalDamage,
    /// The torn and the unknown slots.
    pub illegible: Vec<u64>,
    /// Records before this one were durable.
    pub durable: u64,
    /// No record has a higher number.
    pub last: u64,
}

/// Decodes the two header blocks of slot `index`, of which one may be unreadable.
fn slot(index: u64, slots: u64, blocks: [Option<&[u8]>; 2], decode: impl Decode) -> FoundSlot {
    let records = blocks.iter().flatten().filter_map(|block| decode(block));
    let mine = records.filter(|record| record.number % slots == index);
    match (mine.max_by_key(|record| record.number), blocks[0]) {
        (Some(record), _) => FoundSlot::Record(record),
        (None, None) => FoundSlot::Unknown,
        (None, Some(first)) if first.iter().all(|byte| *byte == 0) => FoundSlot::Empty,
        (None, Some(_)) => FoundSlot::Torn,
    }
}

trait Decode: Fn(&[u8]) -> Option<JournalRecord> {}
impl<F: Fn(&[u8]) -> Option<JournalRecord>> Decode for F {}

/// Judges the slots of a journal, for an array of `count` stripes.
pub(crate) fn weigh(slots: &[FoundSlot], count: u64) -> JournalScan {
    let len = slots.len() as u64;
    let records = || {
        slots.iter().filter_map(|slot| match slot {
            FoundSlot::Record(record) => Some(record),
            _ => None,
        })
    };
    let last = records().map(|r| r.number).max().unwrap_or(0);
    let tail = records().map(|r| r.tail).max().unwrap_or(0);
    let durable = records().map(|r| r.durable).max().unwrap_or(0);
    let is_there = |number: u64| records().any(|record| record.number == number);
    // The slots of records that were done with may have been used again.
    let first = tail.max(durable.saturating_sub(len));
    let mut damage = match (first..durable).all(is_there) {
        true => JournalDamage::None,
        false => JournalDamage::Unknown,
    };
    let mut illegible = Vec::new();
    for (index, slot) in (0..).zip(slots) {
        match slot {
            FoundSlot::Record(_) | FoundSlot::Empty => continue,
            FoundSlot::Torn => damage = damage.max(JournalDamage::Torn),
            FoundSlot::Unknown => damage = JournalDamage::Unknown,
        }
        illegible.push(index);
    }
    let mut left: Vec<&JournalRecord> = records()
        .filter(|r| r.number >= tail && r.entry != JournalEntry::Retire && r.stripe < count)
        .collect();
    left.sort_by_key(|record| record.number);
    let mut stripes: BTreeMap<u64, Vec<JournalRecord>> = BTreeMap::new();
    for record in left {
        // A write of the whole stripe, or a revocation, supersedes all earlier records of the
        // stripe.
        if matches!(record.entry, JournalEntry::Whole(_) | JournalEntry::Revoked) {
            stripes.remove(&record.stripe);
        }
        if record.entry != JournalEntry::Revoked {
            stripes
                .entry(record.stripe)
                .or_default()
                .push(record.clone());
        }
    }
    let last = match damage {
        JournalDamage::None => last,
        // An illegible record may be read another time: later records must have higher numbers.
        JournalDamage::Torn | JournalDamage::Unknown => last + 2 * len,
    };
    JournalScan {
        stripes,
        damage,
        illegible,
        durable,
        last,
    }
}

impl ArrayCore {
    /// Reads the journal of `role`, which `member` has.
    pub(crate) async fn find_records(
        &self,
        role: usize,
        member: &ArrayMember,
    ) -> IoResult<JournalScan> {
        let journal = &self.journals[role];
        let (array, members, chunk) = (self.meta().array, self.shape.members(), self.shape.chunk());
        let decode = |block: &[u8]| JournalRecord::decode(block, array, members, chunk);
        let mut slots = Vec::new();
        for index in 0..journal.slots() {
            let mut blocks = [None, None];
            for (copy, block) in (0..).zip(&mut blocks) {
                let at = journal.place(index) + Sectors(copy * BLOCK_BYTES as u64 / SECTOR_BYTES);
                let buf = self.env.pool.take(BLOCK_BYTES);
                *block = self.read_meta_retrying(member, at, buf).await?.ok();
            }
            let blocks = [0, 1].map(|copy: usize| blocks[copy].as_deref());
            slots.push(slot(index, journal.slots(), blocks, decode));
        }
        let count = self.geometry.sectors.0 / self.shape.width().0;
        Ok(weigh(&slots, count))
    }

    /// Reads at `at` of the device. The outer error is the loss of the member, the inner one that
    /// these bytes cannot be read.
    pub(crate) async fn read_meta_retrying(
        &self,
        member: &ArrayMember,
        at: Sectors,
        buf: Buf,
    ) -> IoResult<IoResult<Buf>> {
        self.retrying(buf, async |buf| member.read_meta(at, buf).await)
            .await
    }

    /// Does the same with data.
    pub(crate) async fn read_retrying(
        &self,
        role: usize,
        member: &ArrayMember,
        at: Lba,
        buf: Buf,
    ) -> IoResult<IoResult<Buf>> {
        self.retrying(buf, async |buf| self.read_of(role, member, at, buf).await)
            .await
    }

    async fn retrying(
        &self,
        mut buf: Buf,
        read: impl AsyncFn(Buf) -> (Buf, IoResult),
    ) -> IoResult<IoResult<Buf>> {
        let mut tries = 1;
        loop {
            let result;
            (buf, result) = read(buf).await;
            match result {
                Ok(()) => return Ok(Ok(buf)),
                Err(error) if crate::member::is_loss(&error) => return Err(error),
                Err(error) if tries == READ_TRIES => return Ok(Err(error)),
                Err(_) => self.env.timer.sleep(READ_PAUSE).await,
            }
            tries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::Uuid;

    /// A slot that cannot be read now may be read at the next start. Its record must be older then
    /// than those of this start.
    #[test]
    fn a_journal_goes_on_above_what_cannot_be_read() {
        let record = |number| {
            FoundSlot::Record(JournalRecord {
                array: Uuid::default(),
                number,
                tail: 1,
                durable: 1,
                headers: 2,
                stripe: 0,
                entry: JournalEntry::Revoked,
            })
        };
        assert_eq!(
            weigh(&[record(4), record(1), record(2), record(3)], 1).last,
            4
        );
        for unread in [FoundSlot::Unknown, FoundSlot::Torn] {
            // The two that are not read may be the fifth and the sixth.
            let slots = [record(4), unread.clone(), unread.clone(), record(3)];
            assert!(weigh(&slots, 1).last >= 6, "{unread:?}");
        }
    }
}
