//! Which slots are free, used or retired.
//!
//! Invariants:
//!     a slot is in exactly one of: free, used, retired
//!     `take` returns the lowest free slot of the part in turn, so that parts fill side by side
//!     a summary bit is set ⟺ its word below is not zero
//!
//! Two bits a slot and a summary of 1/64 per level above; `take` costs one
//! step a level, five levels at the most, for each part.
//!
//! Parts take turns in proportion to their slots, by the smooth weighted round robin of nginx
//! (`ngx_http_upstream_round_robin.c`): each part gains its weight, the richest has the turn and
//! pays all weights. A slow part passes its turn on in a share of its turns.

use std::ops::Range;

/// A place for one line in the pool; dense from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SlotNumber(pub u32);

/// Slots of one device, as a share of new lines.
#[derive(Clone, PartialEq, Debug)]
pub struct SlotPart {
    /// The slots; ranges of parts are disjoint.
    pub slots: Range<u32>,
    /// The share of its turns that the part uses, above 0 and at most 1.
    pub service: f32,
}

/// A part and its turns.
#[derive(Clone, Debug)]
struct PartTurns {
    part: SlotPart,
    /// Weights gained and not yet paid, in slots.
    credit: i64,
    /// Turns to pass on, in parts of a turn.
    slack: f32,
}

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
    parts: Vec<PartTurns>,
    /// Turns that slow parts passed on since `share` was last called.
    passed_on: u64,
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
            parts: Vec::new(),
            passed_on: 0,
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

    /// Lets `parts` take turns from now on. Returns the turns that slow parts have passed on since
    /// the last call.
    pub(crate) fn share(&mut self, parts: &[SlotPart]) -> u64 {
        let turns = parts.iter().map(|part| {
            let same = |turns: &&PartTurns| turns.part.slots == part.slots;
            let before = self.parts.iter().find(same);
            PartTurns {
                part: part.clone(),
                credit: before.map_or(0, |before| before.credit),
                slack: before.map_or(0.0, |before| before.slack),
            }
        });
        self.parts = turns.collect();
        std::mem::take(&mut self.passed_on)
    }

    /// Takes the lowest free slot of the part in turn.
    pub(crate) fn take(&mut self) -> Option<SlotNumber> {
        let slot = match self.parts.len() {
            0 | 1 => None,
            _ => self.next_of_turn(),
        };
        let slot = slot.or_else(|| self.next_free(0))?;
        self.set_free(slot, false);
        Some(SlotNumber(slot))
    }

    /// The lowest free slot of the part in turn; `None` if no part has one.
    fn next_of_turn(&mut self) -> Option<u32> {
        let mut weights = 0;
        // The parts with the greatest credit and the next one, with a free slot of each.
        let (mut first, mut second) = (None, None);
        for at in 0..self.parts.len() {
            let slots = &self.parts[at].part.slots;
            let (weight, end) = (i64::from(slots.end - slots.start), slots.end);
            let Some(slot) = self.next_free(slots.start).filter(|slot| *slot < end) else {
                continue;
            };
            self.parts[at].credit += weight;
            weights += weight;
            let rank = Some((self.parts[at].credit, std::cmp::Reverse(at), slot));
            second = second.max(rank.min(first));
            first = first.max(rank);
        }
        let (_, std::cmp::Reverse(turn), slot) = first?;
        let turns = &mut self.parts[turn];
        turns.credit -= weights;
        turns.slack += 1.0 - turns.part.service;
        if let Some((_, _, another)) = second
            && turns.slack >= 1.0
        {
            turns.slack -= 1.0;
            self.passed_on += 1;
            return Some(another);
        }
        turns.slack = turns.slack.min(1.0);
        Some(slot)
    }

    /// The lowest free slot from `from` on.
    fn next_free(&self, from: u32) -> Option<u32> {
        let mut at = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let (word, bit) = (at / 64, at % 64);
            let rest = level.get(word)? & (u64::MAX << bit);
            if rest != 0 {
                let found = word * 64 + rest.trailing_zeros() as usize;
                let below = self.levels[..height].iter().rev();
                let slot = below.fold(found, |word, level| {
                    word * 64 + level[word].trailing_zeros() as usize
                });
                return Some(slot as u32);
            }
            at = word + 1;
        }
        None
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

    fn parts(services: [f32; 2]) -> [SlotPart; 2] {
        let part = |slots, service| SlotPart { slots, service };
        [part(0..300, services[0]), part(300..400, services[1])]
    }

    /// Slots of the second part among the next `count`.
    fn of_the_second(slots: &mut SlotStates, count: usize) -> usize {
        let taken = std::iter::from_fn(|| slots.take()).take(count);
        taken.filter(|slot| slot.0 >= 300).count()
    }

    #[test]
    fn parts_fill_side_by_side_in_proportion_to_their_slots() {
        let mut slots = SlotStates::new(400);
        slots.share(&parts([1.0, 1.0]));
        for _ in 0..10 {
            assert_eq!(of_the_second(&mut slots, 40), 10);
        }
        assert_eq!((slots.take(), slots.share(&[])), (None, 0));
        (0..100).for_each(|slot| slots.release(SlotNumber(slot)));
        assert_eq!(of_the_second(&mut slots, 100), 0);
    }

    #[test]
    fn a_slow_part_gets_its_share_of_its_turns_until_it_alone_has_room() {
        let mut slots = SlotStates::new(400);
        slots.share(&parts([0.25, 1.0]));
        assert_eq!(of_the_second(&mut slots, 80), 65);
        assert_eq!(slots.share(&parts([0.25, 1.0])), 45);
        assert_eq!(of_the_second(&mut slots, 320), 35);
        assert_eq!(slots.free(), 0);
    }

    #[test]
    fn the_next_free_slot_is_found_over_all_levels() {
        for total in [1, 64, 65, 5000, 300_000] {
            let mut slots = SlotStates::new(total);
            slots.retire(0..total - 1);
            assert_eq!(slots.next_free(0), Some(total - 1));
            assert_eq!(slots.next_free(total - 1), Some(total - 1));
            assert_eq!(slots.next_free(total), None);
            assert_eq!(slots.take(), Some(SlotNumber(total - 1)));
            assert_eq!(slots.next_free(0), None);
        }
    }

    #[test]
    fn no_slots_is_a_state_like_any_other() {
        let mut slots = SlotStates::new(0);
        assert_eq!(slots.take(), None);
        assert!(!slots.is_free(SlotNumber(0)) && !slots.is_retired(SlotNumber(0)));
    }
}
