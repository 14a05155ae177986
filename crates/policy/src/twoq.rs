//! 2Q, the full version: newcomers pass through a FIFO; only those asked for
//! again after leaving it enter the LRU list of hot lines.
//!
//! Johnson and Shasha, "2Q: a low overhead high performance buffer management
//! replacement algorithm", VLDB 1994, with the paper's Kin = 25% and Kout = 50%
//! of the slots.
//!
//! Invariant: every node is in the list its `meta` names.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

const IN_RECENT: u32 = 0;
const IN_HOT: u32 = 1;
const IN_GHOST: u32 = 2;

/// Two queues and a ghost queue.
#[derive(Clone, Debug)]
pub struct TwoQ<I> {
    lines: Lines<I>,
    /// A1in of the paper.
    recent: List,
    /// A1out.
    ghost: List,
    /// Am.
    hot: List,
    recent_max: u32,
    ghost_max: u32,
}

impl<I: Index> TwoQ<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> TwoQ<I> {
        let mut policy = TwoQ {
            lines: Lines::new(universe, slots, Self::ghosts_max(slots)),
            recent: List::EMPTY,
            ghost: List::EMPTY,
            hot: List::EMPTY,
            recent_max: 0,
            ghost_max: 0,
        };
        policy.resized();
        policy
    }

    fn list(&mut self, node: u32) -> &mut List {
        match self.lines.meta(node) {
            IN_RECENT => &mut self.recent,
            IN_HOT => &mut self.hot,
            _ => &mut self.ghost,
        }
    }

    fn trim_ghosts(&mut self) {
        while self.ghost.len() > self.ghost_max {
            if let Some(oldest) = self.lines.pop_back(&mut self.ghost) {
                self.lines.drop_node(oldest);
            }
        }
    }

    /// The oldest line of `list` that is not pinned.
    fn oldest(&self, list: &List, pins: &dyn Pins) -> Option<u32> {
        let mut node = list.back()?;
        for _ in 0..PINNED_MAX {
            if !self.lines.pinned(node, pins) {
                return Some(node);
            }
            node = self.lines.newer(node)?;
        }
        None
    }
}

impl<I: Index> ListPolicy for TwoQ<I> {
    type Index = I;

    fn lines(&self) -> &Lines<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut Lines<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        slots / 2 + 1
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        if self.lines.meta(node) == IN_HOT {
            self.lines.move_to_front(&mut self.hot, node);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let (first, second) = if self.recent.len() > self.recent_max || self.hot.len() == 0 {
            (&self.recent, &self.hot)
        } else {
            (&self.hot, &self.recent)
        };
        let node = self
            .oldest(first, pins)
            .or_else(|| self.oldest(second, pins))?;
        let from_recent = self.lines.meta(node) == IN_RECENT;
        self.unlink(node);
        if !from_recent {
            return Some(self.lines.evict(node));
        }
        let evicted = self.lines.evict_to_ghost(node);
        self.lines.set_meta(node, IN_GHOST);
        self.lines.push_front(&mut self.ghost, node);
        self.trim_ghosts();
        Some(evicted)
    }

    fn recall(&mut self, node: u32) {
        self.lines.unlink(&mut self.ghost, node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        if recalled {
            self.lines.set_meta(node, IN_HOT);
            self.lines.push_front(&mut self.hot, node);
        } else {
            self.lines.set_meta(node, IN_RECENT);
            self.lines.push_front(&mut self.recent, node);
        }
    }

    fn resident(&self) -> Vec<&List> {
        vec![&self.recent, &self.hot]
    }

    fn uses(&self, node: u32) -> u8 {
        u8::from(self.lines.meta(node) == IN_HOT)
    }

    fn unlink(&mut self, node: u32) {
        let mut list = *self.list(node);
        self.lines.unlink(&mut list, node);
        *self.list(node) = list;
    }

    fn resized(&mut self) {
        let live = self.lines.slots().live();
        self.recent_max = (live / 4).max(1);
        self.ghost_max = live / 2;
        self.trim_ghosts();
    }

    fn check(&self) {
        self.lines.check(&[&self.recent, &self.hot, &self.ghost]);
        assert!(self.ghost.len() <= self.ghost_max);
    }
}
