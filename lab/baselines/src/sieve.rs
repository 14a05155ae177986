//! SIEVE: a hand moves over a FIFO from old to new, clears reference bits, and
//! evicts the first line without one; survivors keep their place.
//!
//! Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI
//! 2024.
//!
//! Invariant: the hand is a node of the list, or `None` for the oldest.

use policy::lines::{LineArena, ListPolicy, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const LIST: usize = 0;

/// SIEVE, one reference bit a line.
#[derive(Clone, Debug)]
pub struct Sieve<I> {
    lines: LineArena<I>,
    hand: Option<u32>,
}

impl<I: Index> Sieve<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Sieve<I> {
        Sieve {
            lines: LineArena::new(universe, slots, 0),
            hand: None,
        }
    }
}

impl<I: Index> ListPolicy for Sieve<I> {
    type Index = I;

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        self.lines.set_meta(node, 1);
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let mut pinned = 0;
        let mut at = self.hand.or(self.lines.back(LIST))?;
        while pinned < PINNED_MAX {
            let referenced = self.lines.meta(at) == 1;
            if !referenced && !self.lines.pinned(at, pins) {
                self.hand = self.lines.newer(at);
                self.lines.unlink(at);
                return Some(self.lines.evict(at));
            }
            pinned += u32::from(!referenced);
            self.lines.set_meta(at, 0);
            at = self.lines.newer(at).or(self.lines.back(LIST))?;
            self.hand = Some(at);
        }
        None
    }

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push(LIST, node);
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, false);
        self.lines.set_meta(node, u32::from(uses > 0));
    }

    fn uses(&self, node: u32) -> u8 {
        self.lines.meta(node) as u8
    }

    fn unlink(&mut self, node: u32) {
        if self.hand == Some(node) {
            self.hand = self.lines.newer(node);
        }
        self.lines.unlink(node);
    }

    fn check(&self) {
        self.lines.check();
        assert!(self.hand.is_none_or(|hand| self.lines.slot(hand).is_some()));
    }
}
