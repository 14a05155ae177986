//! W-TinyLFU: newcomers live in a small LRU window; a line leaving it enters
//! the main region only if it was seen more often lately than the line it would
//! replace. The main region is a segmented LRU, four fifths of it protected.
//!
//! Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission
//! policy", ACM Transactions on Storage 2017.
//!
//! Invariant: every node is in the list its `meta` names.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::sketch::Sketch;
use crate::{Index, Key, Pins, Slot};

const WINDOW: u32 = 0;
const PROBATION: u32 = 1;
const PROTECTED: u32 = 2;

/// Window TinyLFU.
#[derive(Clone, Debug)]
pub struct WTinyLfu<I> {
    lines: Lines<I>,
    /// Window, probation, protected.
    lists: [List; 3],
    sketch: Sketch,
    window_percent: u32,
    window_max: u32,
    protected_max: u32,
}

impl<I: Index> WTinyLfu<I> {
    /// For up to `slots` lines, `window_percent` of them the window.
    pub fn new(universe: I::Universe, slots: u32, window_percent: u32) -> WTinyLfu<I> {
        let mut policy = WTinyLfu {
            lines: Lines::new(universe, slots, 0),
            lists: [List::EMPTY; 3],
            sketch: Sketch::new(slots),
            window_percent,
            window_max: 0,
            protected_max: 0,
        };
        policy.resized();
        policy
    }

    fn push(&mut self, list: u32, node: u32) {
        self.lines.set_meta(node, list);
        self.lines.push_front(&mut self.lists[list as usize], node);
    }

    fn oldest(&self, list: u32, pins: &dyn Pins) -> Option<u32> {
        let mut node = self.lists[list as usize].back()?;
        for _ in 0..PINNED_MAX {
            if !self.lines.pinned(node, pins) {
                return Some(node);
            }
            node = self.lines.newer(node)?;
        }
        None
    }

    fn frequency(&self, node: u32) -> u64 {
        self.sketch.estimate(self.lines.key(node))
    }

    /// Moves the oldest lines of a list that is too long to the front of
    /// probation.
    fn overflow(&mut self, list: u32, max: u32) {
        while self.lists[list as usize].len() > max {
            if let Some(node) = self.lines.pop_back(&mut self.lists[list as usize]) {
                self.push(PROBATION, node);
            }
        }
    }
}

impl<I: Index> ListPolicy for WTinyLfu<I> {
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

    fn hit(&mut self, node: u32) {
        self.sketch.add(self.lines.key(node));
        let list = self.lines.meta(node);
        if list == PROBATION {
            self.unlink(node);
            self.push(PROTECTED, node);
            self.overflow(PROTECTED, self.protected_max);
        } else {
            self.lines
                .move_to_front(&mut self.lists[list as usize], node);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let victim = self
            .oldest(PROBATION, pins)
            .or_else(|| self.oldest(PROTECTED, pins));
        let full = self.lists[WINDOW as usize].len() >= self.window_max;
        let candidate = if full {
            self.oldest(WINDOW, pins)
        } else {
            None
        };
        let node = match (candidate, victim) {
            (Some(candidate), Some(victim)) => {
                if self.frequency(candidate) > self.frequency(victim) {
                    self.unlink(candidate);
                    self.push(PROBATION, candidate);
                    victim
                } else {
                    candidate
                }
            }
            (candidate, victim) => candidate.or(victim).or_else(|| self.oldest(WINDOW, pins))?,
        };
        self.unlink(node);
        Some(self.lines.evict(node))
    }

    fn recall(&mut self, _: u32) {}

    fn place(&mut self, node: u32, _: bool) {
        self.sketch.add(self.lines.key(node));
        self.push(WINDOW, node);
        self.overflow(WINDOW, self.window_max);
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.push(if uses > 1 { PROTECTED } else { PROBATION }, node);
        self.overflow(PROTECTED, self.protected_max);
        for _ in 0..uses {
            self.sketch.add(self.lines.key(node));
        }
    }

    fn resident(&self) -> Vec<&List> {
        let [window, probation, protected] = &self.lists;
        vec![probation, window, protected]
    }

    fn uses(&self, node: u32) -> u8 {
        match self.lines.meta(node) {
            PROTECTED => self.frequency(node).clamp(2, 15) as u8,
            _ => u8::from(self.frequency(node) > 1),
        }
    }

    fn unlink(&mut self, node: u32) {
        let list = self.lines.meta(node) as usize;
        self.lines.unlink(&mut self.lists[list], node);
    }

    fn resized(&mut self) {
        let live = self.lines.slots().live();
        let window = u64::from(live) * u64::from(self.window_percent) / 100;
        self.window_max = (window as u32).max(1);
        let main = live.saturating_sub(self.window_max);
        self.protected_max = (u64::from(main) * 4 / 5) as u32;
        self.overflow(WINDOW, self.window_max);
        self.overflow(PROTECTED, self.protected_max);
        self.sketch.fit(live);
    }

    fn check(&self) {
        let [window, probation, protected] = &self.lists;
        self.lines.check(&[window, probation, protected]);
        assert!(window.len() <= self.window_max);
        assert!(protected.len() <= self.protected_max);
    }
}
