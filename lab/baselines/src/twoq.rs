//! 2Q, the full version: newcomers pass through a FIFO. Only lines accessed again after they left
//! the FIFO enter the LRU list of hot lines.
//!
//! Johnson and Shasha, "2Q: a low overhead high performance buffer management
//! replacement algorithm", VLDB 1994, with the paper's Kin = 25% and Kout = 50%
//! of the slots.

use policy::lines::{LineArena, ListPolicy};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

/// A1in of the paper.
const RECENT: usize = 0;
/// Am.
const HOT: usize = 1;
/// A1out.
const GHOST: usize = 2;

/// Two queues and a ghost queue.
#[derive(Clone, Debug)]
pub struct TwoQ<I> {
    lines: LineArena<I>,
    recent_max: u32,
    ghost_max: u32,
}

impl<I: Index> TwoQ<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> TwoQ<I> {
        let mut policy = TwoQ {
            lines: LineArena::new(universe, slots, Self::ghosts_max(slots)),
            recent_max: 0,
            ghost_max: 0,
        };
        policy.resized();
        policy
    }
}

impl<I: Index> ListPolicy for TwoQ<I> {
    type Index = I;

    const RESIDENT: &'static [usize] = &[RECENT, HOT];

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        slots / 2 + 1
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        if self.lines.list(node) == HOT {
            self.lines.move_to_front(node);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let lines = &mut self.lines;
        let order = if lines.len(RECENT) > self.recent_max || lines.len(HOT) == 0 {
            [RECENT, HOT]
        } else {
            [HOT, RECENT]
        };
        let node = order.iter().find_map(|list| lines.oldest(*list, pins))?;
        lines.unlink(node);
        if lines.list(node) == HOT {
            return Some(lines.evict(node));
        }
        let evicted = lines.evict_to_ghost(node);
        lines.push(GHOST, node);
        lines.trim(GHOST, self.ghost_max);
        Some(evicted)
    }

    fn place(&mut self, node: u32, recalled: bool) {
        self.lines.push(if recalled { HOT } else { RECENT }, node);
    }

    fn uses(&self, node: u32) -> u8 {
        u8::from(self.lines.list(node) == HOT)
    }

    fn resized(&mut self) {
        let live = self.lines.slots().live();
        self.recent_max = (live / 4).max(1);
        self.ghost_max = live / 2;
        self.lines.trim(GHOST, self.ghost_max);
    }

    fn check(&self) {
        self.lines.check();
        assert!(self.lines.len(GHOST) <= self.ghost_max);
    }
}
