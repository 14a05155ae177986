//! CLOCK: FIFO with a second chance for lines hit since they were last passed.
//!
//! Corbató, "A paging experiment with the Multics system", MIT Project MAC 1968.
//! The circle is kept as a list: passing a line moves it to the front.

use policy::lines::{LineArena, ListPolicy, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const LIST: usize = 0;

/// Second-chance FIFO, one reference bit a line.
#[derive(Clone, Debug)]
pub struct SecondChance<I> {
    lines: LineArena<I>,
}

impl<I: Index> SecondChance<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> SecondChance<I> {
        SecondChance {
            lines: LineArena::new(universe, slots, 0),
        }
    }
}

impl<I: Index> ListPolicy for SecondChance<I> {
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
        while pinned < PINNED_MAX {
            let node = self.lines.back(LIST)?;
            let referenced = self.lines.meta(node) == 1;
            if !referenced && !self.lines.pinned(node, pins) {
                self.lines.unlink(node);
                return Some(self.lines.evict(node));
            }
            pinned += u32::from(!referenced);
            self.lines.set_meta(node, 0);
            self.lines.move_to_front(node);
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
}
