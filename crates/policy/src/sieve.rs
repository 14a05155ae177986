//! SIEVE: a hand moves over a FIFO from old to new, clears reference bits, and
//! evicts the first line without one; survivors keep their place.
//!
//! Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI
//! 2024.
//!
//! Invariant: the hand is a node of the list, or `None` for the oldest.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

/// SIEVE, one reference bit a line.
#[derive(Clone, Debug)]
pub struct Sieve<I> {
    lines: Lines<I>,
    list: List,
    hand: Option<u32>,
}

impl<I: Index> Sieve<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Sieve<I> {
        Sieve {
            lines: Lines::new(universe, slots, 0),
            list: List::EMPTY,
            hand: None,
        }
    }
}

impl<I: Index> ListPolicy for Sieve<I> {
    type Index = I;

    fn lines(&self) -> &Lines<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut Lines<I> {
        &mut self.lines
    }

    fn ghosts_max(_: u32) -> u32 {
        0
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        self.lines.set_meta(node, 1);
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let mut pinned = 0;
        let mut at = self.hand.or(self.list.back())?;
        while pinned < PINNED_MAX {
            let referenced = self.lines.meta(at) == 1;
            if !referenced && !self.lines.pinned(at, pins) {
                self.hand = self.lines.newer(at);
                self.lines.unlink(&mut self.list, at);
                return Some(self.lines.evict(at));
            }
            pinned += u32::from(!referenced);
            self.lines.set_meta(at, 0);
            at = self.lines.newer(at).or(self.list.back())?;
            self.hand = Some(at);
        }
        None
    }

    fn recall(&mut self, _: u32) {}

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push_front(&mut self.list, node);
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, false);
        self.lines.set_meta(node, u32::from(uses > 0));
    }

    fn resident(&self) -> Vec<&List> {
        vec![&self.list]
    }

    fn uses(&self, node: u32) -> u8 {
        self.lines.meta(node) as u8
    }

    fn unlink(&mut self, node: u32) {
        if self.hand == Some(node) {
            self.hand = self.lines.newer(node);
        }
        self.lines.unlink(&mut self.list, node);
    }

    fn resized(&mut self) {}

    fn check(&self) {
        self.lines.check(&[&self.list]);
        assert!(self.hand.is_none_or(|hand| self.lines.slot(hand).is_some()));
    }
}
