//! Which slots are free, used or retired.
//!
//! Invariants:
//!     a slot is in exactly one of: free, used, retired
//!     `take` returns the lowest free slot, so that an empty pool fills in order
//!     a summary bit is set ⟺ its word below is not zero
//!
//! Two bits a slot and a summary of 1/64 per level above; `take` costs one
//! step a level, five levels at the most.

use std::ops::Range;

/// A place for one line in the pool; dense from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SlotNumber(pub u32);

/// The state of every slot.
#[derive(Clone, Debug)]
pub struct SlotStates {
    total: u32,
    free: u32,
    retired: u32,
    /// `levels[0]` has a bit per slot, set if free; `levels[n + 1]` a bit per
    /// word of `levels[n]`; the last level is one word.
    levels: Vec<Vec<u64>>,
    retired_bits: Vec<u64>,
}

impl SlotStates {
    /// `total` slots, all free.
    pub fn new(total: u32) -> SlotStates {
        let mut slots = SlotStates {
            total: 0,
            free: 0,
            retired: 0,
            levels: vec![vec![0]],
            retired_bits: Vec::new(),
        };
        slots.grow(total);
        slots
    }

    /// Slots that exist, retired ones included.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Slots that exist and are not retired: the capacity in lines.
    pub fn live(&self) -> u32 {
        self.total - self.retired
    }

    /// Slots that hold nothing and may be handed out.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Slots that hold a line.
    pub fn used(&self) -> u32 {
        self.live() - self.free
    }

    /// True if `slot` exists and was retired.
    pub fn is_retired(&self, slot: SlotNumber) -> bool {
        slot.0 < self.total && bit(&self.retired_bits, slot.0)
    }

    /// True if `slot` exists and is free.
    pub fn is_free(&self, slot: SlotNumber) -> bool {
        slot.0 < self.total && bit(&self.levels[0], slot.0)
    }

    /// True if `slot` exists and holds a line.
    pub fn is_used(&self, slot: SlotNumber) -> bool {
        slot.0 < self.total && !self.is_free(slot) && !self.is_retired(slot)
    }

    /// Takes the lowest free slot.
    pub(crate) fn take(&mut self) -> Option<SlotNumber> {
        if self.free == 0 {
            return None;
        }
        let word = self.levels.iter().rev().fold(0usize, |word, level| {
            word * 64 + level[word].trailing_zeros() as usize
        });
        self.set_free(word as u32, false);
        Some(SlotNumber(word as u32))
    }

    /// Takes `slot` if it is free.
    pub(crate) fn take_this(&mut self, slot: SlotNumber) -> bool {
        let free = self.is_free(slot);
        if free {
            self.set_free(slot.0, false);
        }
        free
    }

    /// Frees a used slot.
    pub(crate) fn release(&mut self, slot: SlotNumber) {
        assert!(self.is_used(slot), "{slot:?} released but not in use");
        self.set_free(slot.0, true);
    }

    /// Makes the slots `..total` exist.
    pub(crate) fn grow(&mut self, total: u32) {
        let old = self.total;
        if total <= old {
            return;
        }
        self.total = total;
        self.retired_bits.resize(words(total), 0);
        self.levels[0].resize(words(total), 0);
        for slot in old..total {
            self.levels[0][slot as usize / 64] |= 1 << (slot % 64);
        }
        self.free += total - old;
        self.levels.truncate(1);
        while self.levels[self.levels.len() - 1].len() > 1 {
            let below = &self.levels[self.levels.len() - 1];
            let mut level = vec![0; words(below.len() as u32)];
            for (i, _) in below.iter().enumerate().filter(|(_, word)| **word != 0) {
                level[i / 64] |= 1 << (i % 64);
            }
            self.levels.push(level);
        }
    }

    /// Retires the slots of `range` that exist; none of them may be in use.
    pub(crate) fn retire(&mut self, range: Range<u32>) {
        for slot in range.start..range.end.min(self.total) {
            if !bit(&self.retired_bits, slot) {
                assert!(
                    self.is_free(SlotNumber(slot)),
                    "slot {slot} retired while in use"
                );
                self.set_free(slot, false);
                self.retired_bits[slot as usize / 64] |= 1 << (slot % 64);
                self.retired += 1;
            }
        }
    }

    /// Frees the retired slots of `range`.
    pub(crate) fn revive(&mut self, range: Range<u32>) {
        for slot in range.start..range.end.min(self.total) {
            if bit(&self.retired_bits, slot) {
                self.retired_bits[slot as usize / 64] &= !(1 << (slot % 64));
                self.retired -= 1;
                self.set_free(slot, true);
            }
        }
    }

    fn set_free(&mut self, slot: u32, free: bool) {
        self.free = if free { self.free + 1 } else { self.free - 1 };
        let mut at = slot as usize;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            if free {
                *word |= 1 << (at % 64);
            } else {
                *word &= !(1 << (at % 64));
            }
            if was_empty == (*word == 0) {
                break;
            }
            at /= 64;
        }
    }
}

fn words(bits: u32) -> usize {
    bits.div_ceil(64) as usize
}

fn bit(words: &[u64], at: u32) -> bool {
    words[at as usize / 64] >> (at % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_the_lowest_free_slot() {
        for total in [2, 63, 64, 65, 4096, 5000] {
            let mut slots = SlotStates::new(total);
            for i in 0..total {
                assert_eq!(slots.take(), Some(SlotNumber(i)));
            }
            assert_eq!(slots.take(), None);
            slots.release(SlotNumber(total - 1));
            slots.release(SlotNumber(total / 3));
            assert_eq!(slots.take(), Some(SlotNumber(total / 3)));
        }
    }

    #[test]
    fn retired_slots_are_not_handed_out_until_revived() {
        let mut slots = SlotStates::new(200);
        slots.retire(10..190);
        slots.retire(10..190);
        assert_eq!((slots.live(), slots.free()), (20, 20));
        let taken: Vec<u32> = std::iter::from_fn(|| slots.take()).map(|s| s.0).collect();
        assert_eq!(taken, (0..10).chain(190..200).collect::<Vec<_>>());
        slots.revive(100..101);
        assert_eq!(slots.take(), Some(SlotNumber(100)));
        slots.grow(300);
        assert_eq!(slots.take(), Some(SlotNumber(200)));
        assert!(!slots.take_this(SlotNumber(50)));
        assert!(slots.take_this(SlotNumber(299)));
    }

    #[test]
    fn no_slots_is_a_state_like_any_other() {
        let mut slots = SlotStates::new(0);
        assert_eq!(slots.take(), None);
        assert!(!slots.is_free(SlotNumber(0)) && !slots.is_retired(SlotNumber(0)));
    }
}
