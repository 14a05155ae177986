//! LRU: the line unused for longest makes room.
//!
//! Stack algorithms: Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques
//! for storage hierarchies", IBM Systems Journal 1970.

use crate::lines::{LineArena, ListPolicy};
use crate::{Index, LineKey, SlotNumber, VictimVeto};

const LIST: usize = 0;

/// Least recently used.
#[derive(Clone, Debug)]
pub struct Lru<I> {
    lines: LineArena<I>,
}

impl<I: Index> Lru<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Lru<I> {
        Lru {
            lines: LineArena::new(universe, slots, 0),
        }
    }
}

impl<I: Index> ListPolicy for Lru<I> {
    type Index = I;

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        self.lines.move_to_front(node);
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let node = self.lines.oldest(LIST, pins)?;
        self.lines.unlink(node);
        Some(self.lines.evict(node))
    }

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push(LIST, node);
    }
}
