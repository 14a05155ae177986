//! Clock2Q+: S3-FIFO's three queues, where hits that follow an insertion too
//! closely count as the same access, not as hits.
//!
//! Zhai, Marthen and others, "Clock2Q+: a simple and efficient replacement
//! algorithm for metadata cache in VMware vSAN", VLDB 2026 (arXiv 2511.21958).
//! The small queue has a tenth of the slots, the ghost queue remembers nine
//! tenths, and the main queue is a CLOCK with one reference bit. The correlation
//! window is the small queue's share, as in the measured baselines; the paper's
//! default is half of that share.

use policy::lines::{LineArena, ListPolicy, META_BITS, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
/// The low bit of `meta`.
const REFERENCED: u32 = 1;
/// The rest of `meta`: insertions into the small queue up to this line's own.
const SERIAL_SHIFT: u32 = 1;
const SERIAL_MASK: u32 = (1 << (META_BITS - SERIAL_SHIFT)) - 1;

/// CLOCK with a small queue, a ghost queue and a correlation window.
#[derive(Clone, Debug)]
pub struct Clock2QPlus<I> {
    lines: LineArena<I>,
    small_max: u32,
    ghost_max: u32,
    window: u32,
    /// The pool has been full; until then newcomers beyond the small queue's
    /// share go to the main queue.
    filled: bool,
    /// Insertions into the small queue, modulo the range of `meta`.
    serial: u32,
}

impl<I: Index> Clock2QPlus<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Clock2QPlus<I> {
        let mut policy = Clock2QPlus {
            lines: LineArena::new(universe, slots, Self::ghosts_max(slots)),
            small_max: 0,
            ghost_max: 0,
            window: 0,
            filled: false,
            serial: 0,
        };
        policy.resized();
        policy
    }

    fn main_max(&self) -> u32 {
        self.lines.slots().live().saturating_sub(self.small_max)
    }

    fn push_main(&mut self, node: u32) {
        self.lines.set_meta(node, 0);
        self.lines.push(MAIN, node);
    }
}

impl<I: Index> ListPolicy for Clock2QPlus<I> {
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
        let meta = self.lines.meta(node);
        let age = self.serial.wrapping_sub(meta >> SERIAL_SHIFT) & SERIAL_MASK;
        if self.lines.list(node) == MAIN || age >= self.window {
            self.lines.set_meta(node, meta | REFERENCED);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        self.filled = true;
        let mut pinned = 0;
        let mut from_main = self.lines.len(MAIN) > self.main_max();
        while pinned < PINNED_MAX {
            from_main |= self.lines.len(SMALL) == 0;
            let list = if from_main { MAIN } else { SMALL };
            let node = self.lines.pop_back(list)?;
            let referenced = self.lines.meta(node) & REFERENCED != 0;
            if referenced || self.lines.pinned(node, pins) {
                pinned += u32::from(!referenced);
                self.push_main(node);
            } else if from_main {
                return Some(self.lines.evict(node));
            } else {
                let evicted = self.lines.evict_to_ghost(node);
                self.lines.push(GHOST, node);
                self.lines.trim(GHOST, self.ghost_max);
                return Some(evicted);
            }
        }
        None
    }

    fn place(&mut self, node: u32, recalled: bool) {
        let spill = !self.filled && self.lines.len(SMALL) >= self.small_max;
        if recalled || spill {
            self.push_main(node);
        } else {
            self.serial = self.serial.wrapping_add(1);
            let serial = self.serial & SERIAL_MASK;
            self.lines.set_meta(node, serial << SERIAL_SHIFT);
            self.lines.push(SMALL, node);
        }
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, uses > 0);
        if uses > 1 {
            let meta = self.lines.meta(node);
            self.lines.set_meta(node, meta | REFERENCED);
        }
    }

    fn uses(&self, node: u32) -> u8 {
        let referenced = self.lines.meta(node) & REFERENCED;
        u8::from(self.lines.list(node) == MAIN) + referenced as u8
    }

    fn resized(&mut self) {
        let live = self.lines.slots().live();
        self.small_max = (live / 10).max(1);
        self.window = self.small_max;
        self.ghost_max = (f64::from(live) * 0.9) as u32;
        self.lines.trim(GHOST, self.ghost_max);
    }

    fn check(&self) {
        self.lines.check();
        assert!(self.lines.len(GHOST) <= self.ghost_max);
    }
}
