//! What a journal of RAID 5 holds at a start.
//!
//! A record that cannot be read is not an absent one. Each slot holds a record, nothing,
//! something torn, which a loss of power leaves of a record whose stripe it never came
//! to, or what cannot be known:
//!     neither header is legible and the first cannot be read          ⟹ unknown
//!     a later record says that this one was durable, and it is gone   ⟹ unknown
//!
//! Not here: what follows from it (`replay`).

use crate::core::Core;
use crate::member::Member;
use block::{Buf, IoResult, Lba, Nanos, SECTOR_BYTES, Sectors};
use layout::BLOCK_BYTES;
use layout::array::journal::{Entry, Record};
use std::collections::BTreeMap;

/// How often something is read that a start depends on, and how long after each failure.
const READ_TRIES: u32 = 4;
const READ_PAUSE: Nanos = Nanos::from_millis(20);

/// What a slot holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    Record(Record),
    Empty,
    Torn,
    Unknown,
}

/// How far the records that are found can be relied on to be all there were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Damage {
    /// They are all.
    None,
    /// A write to the journal was cut short.
    Torn,
    /// What a slot held cannot be known.
    Unknown,
}

/// What a journal holds.
pub(crate) struct Found {
    /// The records that are not done with, by stripe, the oldest first.
    pub stripes: BTreeMap<u64, Vec<Record>>,
    /// Whether that is all.
    pub damage: Damage,
    /// The slots that hold neither a record nor nothing.
    pub illegible: Vec<u64>,
    /// Records before this one were durable.
    pub durable: u64,
    /// No record has a higher number.
    pub last: u64,
}

/// What the two header blocks of slot `index` say, of which one may be unreadable.
fn slot(index: u64, slots: u64, blocks: [Option<&[u8]>; 2], decode: impl Decode) -> Slot {
    let records = blocks.iter().flatten().filter_map(|block| decode(block));
    let mine = records.filter(|record| record.number % slots == index);
    match (mine.max_by_key(|record| record.number), blocks[0]) {
        (Some(record), _) => Slot::Record(record),
        (None, None) => Slot::Unknown,
        (None, Some(first)) if first.iter().all(|byte| *byte == 0) => Slot::Empty,
        (None, Some(_)) => Slot::Torn,
    }
}

trait Decode: Fn(&[u8]) -> Option<Record> {}
impl<F: Fn(&[u8]) -> Option<Record>> Decode for F {}

/// What follows from the slots of a journal, for an array of `count` stripes.
pub(crate) fn weigh(slots: &[Slot], count: u64) -> Found {
    let len = slots.len() as u64;
    let records = || {
        slots.iter().filter_map(|slot| match slot {
            Slot::Record(record) => Some(record),
            _ => None,
        })
    };
    let last = records().map(|r| r.number).max().unwrap_or(0);
    let tail = records().map(|r| r.tail).max().unwrap_or(0);
    let durable = records().map(|r| r.durable).max().unwrap_or(0);
    let is_there = |number: u64| records().any(|record| record.number == number);
    // Of records that were done with another has taken the place.
    let first = tail.max(durable.saturating_sub(len));
    let mut damage = match (first..durable).all(is_there) {
        true => Damage::None,
        false => Damage::Unknown,
    };
    let mut illegible = Vec::new();
    for (index, slot) in (0..).zip(slots) {
        match slot {
            Slot::Record(_) | Slot::Empty => continue,
            Slot::Torn => damage = damage.max(Damage::Torn),
            Slot::Unknown => damage = Damage::Unknown,
        }
        illegible.push(index);
    }
    let mut left: Vec<&Record> = records()
        .filter(|r| r.number >= tail && r.entry != Entry::Retire && r.stripe < count)
        .collect();
    left.sort_by_key(|record| record.number);
    let mut stripes: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    for record in left {
        // A stripe written whole leaves nothing of what was there before.
        if matches!(record.entry, Entry::Whole(_) | Entry::Revoked) {
            stripes.remove(&record.stripe);
        }
        if record.entry != Entry::Revoked {
            stripes
                .entry(record.stripe)
                .or_default()
                .push(record.clone());
        }
    }
    let last = match damage {
        Damage::None => last,
        // What is illegible now may be read another time: it must be older then.
        Damage::Torn | Damage::Unknown => last + 2 * len,
    };
    Found {
        stripes,
        damage,
        illegible,
        durable,
        last,
    }
}

impl Core {
    /// What the journal of `role`, which `member` has, holds.
    pub(crate) async fn find_records(&self, role: usize, member: &Member) -> IoResult<Found> {
        let journal = &self.journals[role];
        let (array, members, chunk) = (self.meta().array, self.shape.members(), self.shape.chunk());
        let decode = |block: &[u8]| Record::decode(block, array, members, chunk);
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

    /// Reads at `at` of the device. The outer error is that the member is lost, the inner
    /// one that these bytes cannot be read.
    pub(crate) async fn read_meta_retrying(
        &self,
        member: &Member,
        at: Sectors,
        buf: Buf,
    ) -> IoResult<IoResult<Buf>> {
        self.retrying(buf, async |buf| member.read_meta(at, buf).await)
            .await
    }

    /// The same of data.
    pub(crate) async fn read_retrying(
        &self,
        role: usize,
        member: &Member,
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

    /// What cannot be read now may be read at the next start, and must be older then than
    /// what is announced until then.
    #[test]
    fn a_journal_goes_on_above_what_cannot_be_read() {
        let record = |number| {
            Slot::Record(Record {
                array: Uuid::default(),
                number,
                tail: 1,
                durable: 1,
                headers: 2,
                stripe: 0,
                entry: Entry::Revoked,
            })
        };
        assert_eq!(
            weigh(&[record(4), record(1), record(2), record(3)], 1).last,
            4
        );
        for unread in [Slot::Unknown, Slot::Torn] {
            // The two that are not read may be the fifth and the sixth.
            let slots = [record(4), unread.clone(), unread.clone(), record(3)];
            assert!(weigh(&slots, 1).last >= 6, "{unread:?}");
        }
    }
}
