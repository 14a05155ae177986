//! Writes that wait join one record, so that they share its header and its transfer to the devices.
//!
//! While a record is in flight, writes wait for its end, unless they have gathered [`ALONE`]
//! blocks. Single writes wait for nothing; at a depth the records grow with the depth.
//!
//! Invariants:
//!     records have writes in the order of arrival
//!     a forced write is the last of its record: the next is of another interval
//!     a write without data is alone in its record: a segment has no more extents than blocks
//!
//! Overlapping writes are never here at one time: `block::Gate` keeps them apart.

use block::{Fua, SharedBuf};
use layout::{BLOCK_BYTES, RECORD_BLOCKS_MAX, RecordExtent};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Blocks that wait for no record. With fewer, headers are much of the written bytes; with more,
/// the devices of the log have less to do at once.
const ALONE: u64 = 8;

/// A write that waits for its record to end.
pub(super) struct JoinedWrite {
    pub(super) extent: RecordExtent,
    /// `None` for a zero or a discard, and once a record has the data.
    pub(super) data: Cell<Option<SharedBuf>>,
    /// Blocks of data.
    pub(super) blocks: u32,
    pub(super) fua: Fua,
    /// Number of its record.
    pub(super) record: Cell<Option<u64>>,
}

impl JoinedWrite {
    pub(super) fn new(extent: RecordExtent, data: Option<SharedBuf>, fua: Fua) -> Rc<JoinedWrite> {
        let blocks = data.as_ref().map_or(0, |data| data.len() / BLOCK_BYTES) as u32;
        Rc::new(JoinedWrite {
            extent,
            data: Cell::new(data),
            blocks,
            fua,
            record: Cell::new(None),
        })
    }

    /// Returns the blocks of data; one for a zero or a discard.
    pub(super) fn changes(&self) -> u64 {
        u64::from(self.blocks).max(1)
    }
}

/// Writes without a record, in the order of arrival.
#[derive(Default)]
pub(super) struct JoinQueue {
    waiting: VecDeque<Rc<JoinedWrite>>,
    changes: u64,
    /// Records with writes that are in flight.
    on_their_way: u32,
}

impl JoinQueue {
    pub(super) fn push(&mut self, write: &Rc<JoinedWrite>) {
        self.changes += write.changes();
        self.waiting.push_back(write.clone());
    }

    /// True if the first write need not wait for a record.
    pub(super) fn is_full(&self) -> bool {
        self.changes >= ALONE
    }

    /// True if `write` is to begin a record: it is the first, and need not wait.
    pub(super) fn leads(&self, write: &Rc<JoinedWrite>) -> bool {
        let first = self.waiting.front();
        let is_first = first.is_some_and(|first| Rc::ptr_eq(first, write));
        is_first && (self.on_their_way == 0 || self.is_full())
    }

    /// Removes `write`, which leads, without a record.
    pub(super) fn leave(&mut self, write: &Rc<JoinedWrite>) {
        let first = self.waiting.pop_front();
        assert!(first.is_some_and(|first| Rc::ptr_eq(&first, write)));
        self.changes -= write.changes();
    }

    /// Takes the first write, for which there is room, and those after it that may join, of `room`
    /// blocks of data together.
    pub(super) fn take(&mut self, room: u32) -> Vec<Rc<JoinedWrite>> {
        let room = room.min(RECORD_BLOCKS_MAX);
        let mut joined: Vec<Rc<JoinedWrite>> = Vec::new();
        let mut blocks = 0;
        while let Some(next) = self.waiting.front() {
            if let Some(last) = joined.last() {
                let alone = last.blocks == 0 || next.blocks == 0;
                if alone || last.fua == Fua::Yes || blocks + next.blocks > room {
                    break;
                }
            }
            blocks += next.blocks;
            self.changes -= next.changes();
            joined.extend(self.waiting.pop_front());
        }
        joined
    }

    /// Notes that a record has `writes`, and is in flight.
    pub(super) fn sent(&mut self, writes: &[Rc<JoinedWrite>], record: u64) {
        self.on_their_way += 1;
        writes
            .iter()
            .for_each(|write| write.record.set(Some(record)));
    }

    /// Notes that no copy of a record with `writes` is in flight any more.
    pub(super) fn ended(&mut self, writes: &[Rc<JoinedWrite>]) {
        self.on_their_way -= u32::from(!writes.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Pool;
    use layout::Became;
    use proptest::prelude::*;

    fn write(block: u64, blocks: u32, fua: Fua) -> Rc<JoinedWrite> {
        let pool = Pool::new(8 << 20);
        let data = (blocks > 0).then(|| pool.take(blocks as usize * BLOCK_BYTES).share());
        let became = [Became::Zero, Became::Data][usize::from(blocks > 0)];
        let count = blocks.max(1);
        let extent = RecordExtent {
            block,
            count,
            became,
        };
        JoinedWrite::new(extent, data, fua)
    }

    #[test]
    fn one_write_waits_for_nobody_and_the_next_for_its_record_or_for_eight_blocks() {
        let mut queue = JoinQueue::default();
        let all: Vec<_> = (0..10).map(|at| write(at, 1, Fua::No)).collect();
        queue.push(&all[0]);
        assert!(queue.leads(&all[0]));
        let first = queue.take(255);
        queue.sent(&first, 7);
        assert_eq!((first.len(), all[0].record.get()), (1, Some(7)));
        for next in &all[1..8] {
            queue.push(next);
            assert!(!queue.leads(&all[1]), "a record is on its way");
        }
        queue.push(&all[8]);
        assert!(queue.leads(&all[1]) && !queue.leads(&all[2]));
        let second = queue.take(255);
        assert_eq!(second.len(), 8);
        queue.sent(&second, 8);
        queue.push(&all[9]);
        queue.ended(&first);
        assert!(!queue.leads(&all[9]), "one is left");
        queue.ended(&second);
        assert!(queue.leads(&all[9]));
        queue.leave(&all[9]);
        assert_eq!(queue.changes, 0);
    }

    proptest! {
        /// Records take all writes in order. A forced write ends a record, a write without data is
        /// alone, and only a first write may exceed the room.
        #[test]
        fn records_keep_the_order_and_forced_writes_end_them(
            writes in prop::collection::vec((0u32..20, prop::bool::weighted(0.2)), 1..60),
            room in 1u32..200,
        ) {
            let writes: Vec<_> = (0..).zip(&writes).map(|(at, (blocks, forced))| {
                let fua = if *forced && *blocks > 0 { Fua::Yes } else { Fua::No };
                write(at * 100, *blocks, fua)
            }).collect();
            let mut queue = JoinQueue::default();
            writes.iter().for_each(|write| queue.push(write));
            let mut taken = Vec::new();
            while taken.len() < writes.len() {
                prop_assert!(queue.leads(&writes[taken.len()]));
                let joined = queue.take(room);
                prop_assert!(!joined.is_empty());
                let (last, before) = joined.split_last().unwrap();
                prop_assert!(before.iter().all(|write| write.fua == Fua::No));
                let blocks: u32 = joined.iter().map(|write| write.blocks).sum();
                if joined.len() > 1 {
                    prop_assert!(blocks <= room.min(RECORD_BLOCKS_MAX));
                    prop_assert!(joined.iter().all(|write| write.blocks > 0));
                }
                let next = writes.get(taken.len() + joined.len());
                if let Some(next) = next {
                    let fits = blocks + next.blocks <= room.min(RECORD_BLOCKS_MAX);
                    let both = last.blocks > 0 && next.blocks > 0;
                    prop_assert!(!(fits && both && last.fua == Fua::No), "it might have joined");
                }
                taken.extend(joined.iter().map(|write| write.extent.block));
            }
            let came: Vec<_> = writes.iter().map(|write| write.extent.block).collect();
            prop_assert_eq!((taken, queue.changes), (came, 0));
        }
    }
}
