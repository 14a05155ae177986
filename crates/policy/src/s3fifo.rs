//! S3-FIFO: a small queue filters out lines touched once, a main queue keeps
//! the rest, and a ghost queue recognises those that were let go too early.
//!
//! Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache
//! eviction", SOSP 2023. As there: the small queue has a tenth of the slots,
//! the ghost queue remembers as many lines as the main queue holds, a line
//! leaves the small queue for the main one if it was hit more than once, and
//! the main queue reinserts while its two-bit counter lasts.
//!
//! Invariant: every node is in the list its `meta` names.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

/// The two low bits of `meta` count hits, up to this many.
const HITS_MAX: u32 = 3;
/// Hits that carry a line from the small queue to the main one.
const HITS_TO_STAY: u32 = 2;
const IN_MAIN: u32 = 4;
const IN_GHOST: u32 = 8;

/// Simple, scalable FIFO queues.
#[derive(Clone, Debug)]
pub struct S3Fifo<I> {
    lines: Lines<I>,
    small: List,
    main: List,
    ghost: List,
    small_max: u32,
}

impl<I: Index> S3Fifo<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> S3Fifo<I> {
        let mut policy = S3Fifo {
            lines: Lines::new(universe, slots, Self::ghosts_max(slots)),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: List::EMPTY,
            small_max: 0,
        };
        policy.resized();
        policy
    }

    fn main_max(&self) -> u32 {
        self.lines.slots().live().saturating_sub(self.small_max)
    }

    fn remember(&mut self, node: u32) {
        self.lines.set_meta(node, IN_GHOST);
        self.lines.push_front(&mut self.ghost, node);
        self.trim_ghosts();
    }

    fn trim_ghosts(&mut self) {
        while self.ghost.len() > self.main_max() {
            if let Some(oldest) = self.lines.pop_back(&mut self.ghost) {
                self.lines.drop_node(oldest);
            }
        }
    }

    fn push_main(&mut self, node: u32, hits: u32) {
        self.lines.set_meta(node, IN_MAIN | hits);
        self.lines.push_front(&mut self.main, node);
    }

    /// One step over the oldest line of the small queue.
    fn step_small(&mut self, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let node = self.lines.pop_back(&mut self.small)?;
        let hits = self.lines.meta(node) & HITS_MAX;
        if hits >= HITS_TO_STAY || self.lines.pinned(node, pins) {
            self.push_main(node, 0);
            return None;
        }
        let evicted = self.lines.evict_to_ghost(node);
        self.remember(node);
        Some(evicted)
    }

    /// One step over the oldest line of the main queue.
    fn step_main(&mut self, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let node = self.lines.pop_back(&mut self.main)?;
        let hits = self.lines.meta(node) & HITS_MAX;
        if hits > 0 || self.lines.pinned(node, pins) {
            self.push_main(node, hits.saturating_sub(1));
            return None;
        }
        Some(self.lines.evict(node))
    }
}

impl<I: Index> ListPolicy for S3Fifo<I> {
    type Index = I;

    fn lines(&self) -> &Lines<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut Lines<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        slots
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        let meta = self.lines.meta(node);
        if meta & HITS_MAX < HITS_MAX {
            self.lines.set_meta(node, meta + 1);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        // A line is passed over once for each hit it holds, a pinned one once.
        let steps = u64::from(self.lines.slots().live()) * u64::from(HITS_MAX + 2);
        let mut pinned = 0;
        let mut from_main = self.main.len() > self.main_max();
        for _ in 0..steps {
            from_main |= self.small.len() == 0;
            let list = if from_main { &self.main } else { &self.small };
            let oldest = list.back()?;
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

    fn recall(&mut self, node: u32) {
        self.lines.unlink(&mut self.ghost, node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        if recalled {
            self.push_main(node, 0);
        } else {
            self.lines.set_meta(node, 0);
            self.lines.push_front(&mut self.small, node);
        }
    }

    fn resident(&self) -> Vec<&List> {
        vec![&self.small, &self.main]
    }

    fn uses(&self, node: u32) -> u8 {
        let meta = self.lines.meta(node);
        let hits = meta & HITS_MAX;
        match meta & IN_MAIN {
            0 => u8::from(hits >= HITS_TO_STAY),
            _ => 1 + hits as u8,
        }
    }

    fn unlink(&mut self, node: u32) {
        let list = match self.lines.meta(node) & (IN_MAIN | IN_GHOST) {
            IN_MAIN => &mut self.main,
            IN_GHOST => &mut self.ghost,
            _ => &mut self.small,
        };
        self.lines.unlink(list, node);
    }

    fn resized(&mut self) {
        self.small_max = (self.lines.slots().live() / 10).max(1);
        self.trim_ghosts();
    }

    fn check(&self) {
        self.lines.check(&[&self.small, &self.main, &self.ghost]);
        assert!(self.ghost.len() <= self.main_max());
        for (list, place) in [
            (&self.small, 0),
            (&self.main, IN_MAIN),
            (&self.ghost, IN_GHOST),
        ] {
            for node in self.lines.iter(list) {
                assert_eq!(self.lines.meta(node) & (IN_MAIN | IN_GHOST), place);
                assert_eq!(self.lines.slot(node).is_none(), place == IN_GHOST);
            }
        }
    }
}
