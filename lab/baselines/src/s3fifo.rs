//! S3-FIFO: a small queue filters out lines touched once, a main queue keeps
//! the rest, and a ghost queue recognises those that were evicted too early.
//!
//! Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache
//! eviction", SOSP 2023. As there: the small queue has a tenth of the slots,
//! the ghost queue remembers as many lines as the main queue holds, a line
//! leaves the small queue for the main one if it was hit more than once, and
//! the main queue reinserts while its two-bit counter lasts.

use policy::lines::{LineArena, ListPolicy, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// The `meta` of a line counts its hits, up to this many.
const HITS_MAX: u32 = 3;
/// Hits that carry a line from the small queue to the main one.
const HITS_TO_STAY: u32 = 2;

/// Simple, scalable FIFO queues.
#[derive(Clone, Debug)]
pub struct S3Fifo<I> {
    lines: LineArena<I>,
    small_max: u32,
}

impl<I: Index> S3Fifo<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> S3Fifo<I> {
        let mut policy = S3Fifo {
            lines: LineArena::new(universe, slots, Self::ghosts_max(slots)),
            small_max: 0,
        };
        policy.resized();
        policy
    }

    fn main_max(&self) -> u32 {
        self.lines.slots().live().saturating_sub(self.small_max)
    }

    fn push(&mut self, list: usize, node: u32, hits: u32) {
        self.lines.set_meta(node, hits);
        self.lines.push(list, node);
    }

    /// One step over the oldest line of the small queue.
    fn step_small(&mut self, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let node = self.lines.pop_back(SMALL)?;
        let hits = self.lines.meta(node);
        if hits >= HITS_TO_STAY || self.lines.pinned(node, pins) {
            self.push(MAIN, node, 0);
            return None;
        }
        let evicted = self.lines.evict_to_ghost(node);
        self.lines.push(GHOST, node);
        self.lines.trim(GHOST, self.main_max());
        Some(evicted)
    }

    /// One step over the oldest line of the main queue.
    fn step_main(&mut self, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let node = self.lines.pop_back(MAIN)?;
        let hits = self.lines.meta(node);
        if hits > 0 || self.lines.pinned(node, pins) {
            self.push(MAIN, node, hits.saturating_sub(1));
            return None;
        }
        Some(self.lines.evict(node))
    }
}

impl<I: Index> ListPolicy for S3Fifo<I> {
    type Index = I;

    const RESIDENT: &'static [usize] = &[SMALL, MAIN];

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        slots
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        let hits = self.lines.meta(node);
        if hits < HITS_MAX {
            self.lines.set_meta(node, hits + 1);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        // A line is passed over once for each of its hits, a pinned line once.
        let steps = u64::from(self.lines.slots().live()) * u64::from(HITS_MAX + 2);
        let mut pinned = 0;
        let mut from_main = self.lines.len(MAIN) > self.main_max();
        for _ in 0..steps {
            from_main |= self.lines.len(SMALL) == 0;
            let oldest = self.lines.back(if from_main { MAIN } else { SMALL })?;
            pinned += u32::from(self.lines.pinned(oldest, pins));
            if pinned > PINNED_MAX {
                return None;
            }
            let evicted = if from_main {
                self.step_main(pins)
            } else {
                self.step_small(pins)
            };
            if evicted.is_some() {
                return evicted;
            }
        }
        None
    }

    fn place(&mut self, node: u32, recalled: bool) {
        self.push(if recalled { MAIN } else { SMALL }, node, 0);
    }

    fn uses(&self, node: u32) -> u8 {
        let hits = self.lines.meta(node);
        match self.lines.list(node) {
            SMALL => u8::from(hits >= HITS_TO_STAY),
            _ => 1 + hits as u8,
        }
    }

    fn resized(&mut self) {
        self.small_max = (self.lines.slots().live() / 10).max(1);
        self.lines.trim(GHOST, self.main_max());
    }

    fn check(&self) {
        self.lines.check();
        assert!(self.lines.len(GHOST) <= self.main_max());
        for list in [SMALL, MAIN, GHOST] {
            for node in self.lines.iter(list) {
                assert_eq!(self.lines.slot(node).is_none(), list == GHOST);
            }
        }
    }
}
