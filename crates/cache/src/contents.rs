//! The content of each slot of the pool: a validity bit and a checksum a block.
//!
//! Invariants:
//!     valid(b) ⟹ the pool's copy of b equals the origin's, and its
//!                 CRC32C is crc(b)
//!     a pool write to b in flight ⟹ not valid(b)
//!     b stops being valid ⟹ the generation of its slot has changed
//!
//! Two flat arrays, 33 bits a block; nothing is allocated between calls of
//! `grow`. Which line a slot belongs to is the policy's to know.

use crate::durable::changes::{Changes, PendingRecord};
use crate::lines::{BlockRun, LineShape};
use block::{Generations, Nanos, SECTOR_BYTES, Sectors};
use layout::{LayoutPlan, Mask, SlotChange};
use policy::{LineKey, LineParts, SlotNumber};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of memory of a line of `line_bytes` beside the policy's. Included is the memory to read
/// its map back, which is used for a while.
pub fn memory_per_line(line_bytes: u64) -> u64 {
    let blocks = line_bytes.div_ceil(layout::BLOCK_BYTES as u64);
    (blocks * 33).div_ceil(8) + READ_BACK_BYTES
}

/// Lines of `line_bytes` bytes that fit on a pool device beside its metadata.
pub fn lines_on(device_bytes: u64, line_bytes: u64) -> u32 {
    let line_blocks = u32::try_from(line_bytes / layout::BLOCK_BYTES as u64);
    let sectors = Sectors(device_bytes / SECTOR_BYTES);
    let plan = line_blocks.map(|blocks| LayoutPlan::new(sectors, blocks));
    plan.ok().and_then(Result::ok).map_or(0, |plan| plan.slots)
}

/// Bytes of a line's key, its rank and its flags.
const READ_BACK_BYTES: u64 = 8 + 20 + 2;

/// Returns `zeroes` with `table` copied to its front: no other page is touched before its use.
fn grown<T: Copy>(table: &[T], mut zeroes: Vec<T>) -> Vec<T> {
    zeroes[..table.len()].copy_from_slice(table);
    zeroes
}

pub(crate) struct PoolContents {
    shape: LineShape,
    valid: Vec<u64>,
    crc: Vec<u32>,
    /// Changes that are not on the devices yet; `None` for a pool that is not remembered.
    changes: Option<Changes>,
    /// Slots of bypassed devices: no change of them is to be kept.
    hidden: Vec<Range<u32>>,
    generations: Arc<Generations>,
}

impl PoolContents {
    /// An empty map; `remembers` is true if the pool's devices keep it. Its located reads wait for
    /// a disk as long as `limit`.
    pub(crate) fn new(shape: LineShape, remembers: bool, limit: Nanos) -> PoolContents {
        PoolContents {
            shape,
            valid: Vec::new(),
            crc: Vec::new(),
            changes: remembers.then(Changes::default),
            hidden: Vec::new(),
            generations: Arc::new(Generations::new(limit, shape.blocks())),
        }
    }

    /// Refuse the located reads of slots, on any shard.
    pub(crate) fn generations(&self) -> &Arc<Generations> {
        &self.generations
    }

    /// Makes the slots `..total` exist; those added hold nothing.
    pub(crate) fn grow(&mut self, total: u32) {
        let blocks = (total as usize) << self.shape.shift();
        if blocks > self.crc.len() {
            self.valid = grown(&self.valid, vec![0; blocks.div_ceil(64)]);
            self.crc = grown(&self.crc, vec![0; blocks]);
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.valid.capacity() * 8 + self.crc.capacity() * 4
    }

    /// Blocks that are valid. Costs O(blocks / 64).
    pub(crate) fn valid_blocks(&self) -> u64 {
        self.valid.iter().map(|w| u64::from(w.count_ones())).sum()
    }

    fn index(&self, slot: SlotNumber, block: u32) -> usize {
        ((slot.0 as usize) << self.shape.shift()) + block as usize
    }

    /// True if the first block of `run` is valid, and how many blocks from
    /// there on are the same.
    #[inline]
    pub(crate) fn leading(&self, slot: SlotNumber, run: BlockRun) -> (bool, u32) {
        let start = self.index(slot, run.first);
        let valid = self.valid[start / 64] >> (start % 64) & 1 == 1;
        if run.count == 1 {
            return (valid, 1);
        }
        let mut len = 0;
        while len < run.count {
            let at = start + len as usize;
            let word = self.valid[at / 64] >> (at % 64);
            let same = if valid {
                (!word).trailing_zeros()
            } else {
                word.trailing_zeros()
            };
            let here = (64 - at as u32 % 64).min(run.count - len);
            len += same.min(here);
            if same < here {
                break;
            }
        }
        (valid, len)
    }

    /// The parts of a slot's line in which a block is valid.
    pub(crate) fn held(&self, slot: SlotNumber) -> LineParts {
        let blocks = (0..self.shape.blocks()).map(|first| BlockRun { first, count: 1 });
        let valid = blocks.filter(|block| self.leading(slot, *block).0);
        valid
            .map(|block| self.shape.touched(block))
            .fold(LineParts::NONE, LineParts::with)
    }

    /// Applies `change` to each word of `run` with the mask of its bits.
    fn words(&mut self, slot: SlotNumber, run: BlockRun, mut change: impl FnMut(&mut u64, u64)) {
        let start = self.index(slot, run.first);
        let end = start + run.count as usize;
        let mut at = start;
        while at < end {
            let here = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - here)) << (at % 64);
            change(&mut self.valid[at / 64], mask);
            at += here;
        }
    }

    /// Returns the notes of changes to `slot`, if changes are to be kept.
    #[inline]
    fn noted(&mut self, slot: SlotNumber) -> Option<&mut Changes> {
        let hidden = self.hidden.iter().any(|slots| slots.contains(&slot.0));
        self.changes.as_mut().filter(|_| !hidden)
    }

    pub(crate) fn validate(&mut self, slot: SlotNumber, run: BlockRun) {
        self.words(slot, run, |word, mask| *word |= mask);
        if let Some(changes) = self.noted(slot) {
            changes.validated(slot, run);
        }
    }

    /// The number of blocks that were valid.
    pub(crate) fn invalidate(&mut self, slot: SlotNumber, run: BlockRun) -> u32 {
        let mut were = 0;
        self.words(slot, run, |word, mask| {
            were += (*word & mask).count_ones();
            *word &= !mask;
        });
        if were > 0 {
            self.generations.change(slot.0);
            if let Some(changes) = self.noted(slot) {
                changes.touched(slot);
            }
        }
        were
    }

    /// Gives the slot to `key`, without valid blocks.
    pub(crate) fn enter(&mut self, slot: SlotNumber, key: LineKey) {
        self.clear(slot.0..slot.0 + 1);
        if let Some(changes) = &mut self.changes {
            changes.entered(slot, key);
        }
    }

    /// The device of these slots is lost: nothing is valid, nothing to be kept.
    pub(crate) fn lose(&mut self, slots: &Range<u32>) {
        self.clear(slots.clone());
        if let Some(changes) = &mut self.changes {
            changes.forget(slots);
        }
    }

    /// Notes that the device of these slots is bypassed: valid blocks stay valid, and no change is
    /// to be kept.
    pub(crate) fn hide(&mut self, slots: &Range<u32>) {
        if let Some(changes) = &mut self.changes {
            changes.forget(slots);
        }
        self.show(slots);
        self.hidden.push(slots.clone());
    }

    /// The device of these slots is used again, or has left.
    pub(crate) fn show(&mut self, slots: &Range<u32>) {
        self.hidden.retain(|hidden| hidden != slots);
    }

    /// Takes the changes that the device of `slots` does not have yet.
    pub(crate) fn take_changes(&mut self, slots: &Range<u32>) -> BTreeMap<u32, PendingRecord> {
        let changes = self.changes.as_mut();
        changes.map_or_else(BTreeMap::new, |changes| changes.take(slots))
    }

    /// Slots that differ from the devices' entries.
    pub(crate) fn changes_due(&self) -> usize {
        self.changes.as_ref().map_or(0, Changes::len)
    }

    /// A device's entry of a slot that is not in use yet.
    pub(crate) fn restore(&mut self, slot: SlotNumber, valid: &Mask, crcs: &[u32]) {
        self.wipe(slot);
        let at = self.index(slot, 0);
        self.crc[at..at + crcs.len()].copy_from_slice(crcs);
        self.set_valid(slot, valid);
    }

    /// A log record's entry of a slot that is not in use yet.
    pub(crate) fn replay(&mut self, slot: SlotNumber, change: &SlotChange) {
        self.wipe(slot);
        self.set_valid(slot, &change.valid);
        let blocks = (0..256).filter(|b| change.changed[*b as usize / 64] >> (b % 64) & 1 == 1);
        for (block, crc) in blocks.zip(&change.crcs) {
            self.set_crc(slot, block, *crc);
        }
    }

    /// Clears the slot; its device knows that no block is valid.
    pub(crate) fn wipe(&mut self, slot: SlotNumber) {
        self.generations.change(slot.0);
        self.words(slot, self.whole_line(), |word, mask| *word &= !mask);
    }

    /// Marks the slot to be logged again, without a change here.
    pub(crate) fn mark_dirty(&mut self, slot: SlotNumber) {
        if let Some(changes) = &mut self.changes {
            changes.touched(slot);
        }
    }

    fn set_valid(&mut self, slot: SlotNumber, valid: &Mask) {
        for block in 0..self.shape.blocks() {
            if valid[block as usize / 64] >> (block % 64) & 1 == 1 {
                let at = self.index(slot, block);
                self.valid[at / 64] |= 1 << (at % 64);
            }
        }
    }

    /// The valid blocks of the slot.
    pub(crate) fn valid_mask(&self, slot: SlotNumber) -> Mask {
        let mut mask = Mask::default();
        for block in 0..self.shape.blocks() {
            let at = self.index(slot, block);
            let valid = self.valid[at / 64] >> (at % 64) & 1;
            mask[block as usize / 64] |= valid << (block % 64);
        }
        mask
    }

    /// Invalidates all of each slot.
    pub(crate) fn clear(&mut self, slots: Range<u32>) {
        let line = self.whole_line();
        for slot in slots {
            self.invalidate(SlotNumber(slot), line);
        }
    }

    pub(crate) fn is_empty(&self, slot: SlotNumber) -> bool {
        self.leading(slot, self.whole_line()) == (false, self.shape.blocks())
    }

    pub(crate) fn crc(&self, slot: SlotNumber, block: u32) -> u32 {
        self.crc[self.index(slot, block)]
    }

    pub(crate) fn set_crc(&mut self, slot: SlotNumber, block: u32, crc: u32) {
        let at = self.index(slot, block);
        self.crc[at] = crc;
    }

    fn whole_line(&self) -> BlockRun {
        BlockRun {
            first: 0,
            count: self.shape.blocks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_an_array_of_flags() {
        for line_bytes in [4096u32, 32768, 65536, 1 << 20] {
            let shape = LineShape::new(line_bytes);
            let mut contents = PoolContents::new(shape, true, Nanos::ZERO);
            contents.grow(5);
            let mut model = vec![false; 5 * shape.blocks() as usize];
            let mut x = 9u64;
            for _ in 0..3000 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let slot = (x >> 33) as u32 % 5;
                let first = (x >> 36) as u32 % shape.blocks();
                let count = 1 + (x >> 48) as u32 % (shape.blocks() - first);
                let run = BlockRun { first, count };
                let flags =
                    &mut model[(slot * shape.blocks() + first) as usize..][..count as usize];
                let same = flags.iter().take_while(|v| **v == flags[0]).count() as u32;
                assert_eq!(contents.leading(SlotNumber(slot), run), (flags[0], same));
                if x >> 62 & 1 == 0 {
                    contents.validate(SlotNumber(slot), run);
                    flags.fill(true);
                } else {
                    let were = flags.iter().filter(|v| **v).count() as u32;
                    assert_eq!(contents.invalidate(SlotNumber(slot), run), were);
                    flags.fill(false);
                }
                let line = &model[(slot * shape.blocks()) as usize..][..shape.blocks() as usize];
                assert_eq!(contents.is_empty(SlotNumber(slot)), !line.contains(&true));
            }
            let mut again = PoolContents::new(shape, true, Nanos::ZERO);
            again.grow(5);
            for slot in (0..5).map(SlotNumber) {
                let crcs: Vec<u32> = (0..shape.blocks()).map(|b| contents.crc(slot, b)).collect();
                again.restore(slot, &contents.valid_mask(slot), &crcs);
            }
            assert_eq!(again.valid, contents.valid);
            assert_eq!((contents.changes_due(), again.changes_due()), (5, 0));
            contents.clear(0..5);
            assert!((0..5).all(|s| contents.is_empty(SlotNumber(s))));
        }
    }

    #[test]
    fn a_record_sets_the_checksums_of_the_blocks_it_names() {
        let shape = LineShape::new(1 << 20);
        let mut contents = PoolContents::new(shape, true, Nanos::ZERO);
        contents.grow(2);
        let named = [0u32, 1, 63, 64, 130, 191, 192, 255];
        let mut changed = Mask::default();
        named
            .iter()
            .for_each(|b| changed[*b as usize / 64] |= 1 << (b % 64));
        let change = SlotChange {
            slot: 1,
            key: Some(7),
            valid: changed,
            changed,
            crcs: (1..=8).collect(),
        };
        contents.replay(SlotNumber(1), &change);
        let crcs: Vec<u32> = (0..256)
            .map(|block| contents.crc(SlotNumber(1), block))
            .collect();
        let mut expected = [0; 256];
        (1..)
            .zip(named)
            .for_each(|(crc, block)| expected[block as usize] = crc);
        assert_eq!(crcs, expected);
        assert_eq!(contents.valid_mask(SlotNumber(1)), changed);
        assert!(contents.is_empty(SlotNumber(0)));
    }

    #[test]
    fn nothing_is_due_for_what_was_not_there_or_is_lost() {
        let shape = LineShape::new(65536);
        let mut contents = PoolContents::new(shape, true, Nanos::ZERO);
        contents.grow(4);
        contents.clear(0..4);
        assert_eq!(contents.changes_due(), 0);
        let line = BlockRun {
            first: 0,
            count: 16,
        };
        (0..4).for_each(|slot| contents.validate(SlotNumber(slot), line));
        contents.lose(&(1..3));
        let empty: Vec<bool> = (0..4)
            .map(|slot| contents.is_empty(SlotNumber(slot)))
            .collect();
        assert_eq!(empty, [false, true, true, false]);
        assert_eq!(contents.changes_due(), 2);
    }

    #[test]
    fn costs_thirty_three_bits_a_block() {
        let mut contents = PoolContents::new(LineShape::new(65536), false, Nanos::ZERO);
        contents.grow(1000);
        assert_eq!(contents.memory_bytes(), 16_000 * 33 / 8);
    }
}
