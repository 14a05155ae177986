//! LRU: the line unused for longest makes room.
//!
//! Stack algorithms: Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques
//! for storage hierarchies", IBM Systems Journal 1970.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

/// Least recently used.
#[derive(Clone, Debug)]
pub struct Lru<I> {
    lines: Lines<I>,
    list: List,
}

impl<I: Index> Lru<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Lru<I> {
        Lru {
            lines: Lines::new(universe, slots, 0),
            list: List::EMPTY,
        }
    }
}

impl<I: Index> ListPolicy for Lru<I> {
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
        self.lines.move_to_front(&mut self.list, node);
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let mut node = self.list.back()?;
        for _ in 0..PINNED_MAX {
            if !self.lines.pinned(node, pins) {
                self.lines.unlink(&mut self.list, node);
                return Some(self.lines.evict(node));
            }
            node = self.lines.newer(node)?;
        }
        None
    }

    fn recall(&mut self, _: u32) {}

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push_front(&mut self.list, node);
    }

    fn resident(&self) -> Vec<&List> {
        vec![&self.list]
    }

    fn uses(&self, _: u32) -> u8 {
        0
    }

    fn unlink(&mut self, node: u32) {
        self.lines.unlink(&mut self.list, node);
    }

    fn resized(&mut self) {}

    fn check(&self) {
        self.lines.check(&[&self.list]);
    }
}
