//! W-TinyLFU: newcomers live in a small LRU window. A line that leaves the window enters
//! the main region only if its recent frequency is higher than that of the line to
//! replace. The main region is a segmented LRU, four fifths of it protected.
//!
//! Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission
//! policy", ACM Transactions on Storage 2017.

use crate::sketch::Sketch;
use policy::lines::{LineArena, ListPolicy};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Window TinyLFU.
#[derive(Clone, Debug)]
pub struct WTinyLfu<I> {
    lines: LineArena<I>,
    sketch: Sketch,
    window_percent: u32,
    window_max: u32,
    protected_max: u32,
}

impl<I: Index> WTinyLfu<I> {
    /// A policy for up to `slots` lines, `window_percent` of them the window.
    pub fn new(universe: I::Universe, slots: u32, window_percent: u32) -> WTinyLfu<I> {
        let mut policy = WTinyLfu {
            lines: LineArena::new(universe, slots, 0),
            sketch: Sketch::new(slots),
            window_percent,
            window_max: 0,
            protected_max: 0,
        };
        policy.resized();
        policy
    }

    fn frequency(&self, node: u32) -> u64 {
        self.sketch.estimate(self.lines.key(node))
    }

    /// Moves the oldest lines of a list that is too long to the front of
    /// probation.
    fn overflow(&mut self, list: usize, max: u32) {
        while self.lines.len(list) > max {
            if let Some(node) = self.lines.pop_back(list) {
                self.lines.push(PROBATION, node);
            }
        }
    }
}

impl<I: Index> ListPolicy for WTinyLfu<I> {
    type Index = I;

    const RESIDENT: &'static [usize] = &[PROBATION, WINDOW, PROTECTED];

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn hit(&mut self, node: u32) {
        self.sketch.add(self.lines.key(node));
        if self.lines.list(node) == PROBATION {
            self.lines.unlink(node);
            self.lines.push(PROTECTED, node);
            self.overflow(PROTECTED, self.protected_max);
        } else {
            self.lines.move_to_front(node);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let lines = &self.lines;
        let victim = lines
            .oldest(PROBATION, pins)
            .or_else(|| lines.oldest(PROTECTED, pins));
        let full = self.lines.len(WINDOW) >= self.window_max;
        let candidate = if full {
            self.lines.oldest(WINDOW, pins)
        } else {
            None
        };
        let node = match (candidate, victim) {
            (Some(candidate), Some(victim)) => {
                if self.frequency(candidate) > self.frequency(victim) {
                    self.lines.unlink(candidate);
                    self.lines.push(PROBATION, candidate);
                    victim
                } else {
                    candidate
                }
            }
            (candidate, victim) => candidate
                .or(victim)
                .or_else(|| self.lines.oldest(WINDOW, pins))?,
        };
        self.lines.unlink(node);
        Some(self.lines.evict(node))
    }

    fn place(&mut self, node: u32, _: bool) {
        self.sketch.add(self.lines.key(node));
        self.lines.push(WINDOW, node);
        self.overflow(WINDOW, self.window_max);
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.lines
            .push(if uses > 1 { PROTECTED } else { PROBATION }, node);
        self.overflow(PROTECTED, self.protected_max);
        for _ in 0..uses {
            self.sketch.add(self.lines.key(node));
        }
    }

    fn uses(&self, node: u32) -> u8 {
        match self.lines.list(node) {
            PROTECTED => self.frequency(node).clamp(2, 15) as u8,
            _ => u8::from(self.frequency(node) > 1),
        }
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
        self.lines.check();
        assert!(self.lines.len(WINDOW) <= self.window_max);
        assert!(self.lines.len(PROTECTED) <= self.protected_max);
    }
}
