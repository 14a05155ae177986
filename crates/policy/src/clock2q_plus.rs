//! Clock2Q+: S3-FIFO's three queues, where hits that follow an insertion too
//! closely are taken for one access and do not count.
//!
//! Zhai, Marthen and others, "Clock2Q+: a simple and efficient replacement
//! algorithm for metadata cache in VMware vSAN", VLDB 2026 (arXiv 2511.21958).
//! The small queue has a tenth of the slots, the ghost queue remembers nine
//! tenths, and the main queue is a CLOCK with one reference bit. The correlation
//! window is the small queue's share, as in the measured baselines; the paper's
//! default is half of it.
//!
//! Invariant: every node is in the list its `meta` names.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

const REFERENCED: u32 = 1;
const IN_MAIN: u32 = 2;
const IN_GHOST: u32 = 4;
/// The bits of `meta` that are flags.
const FLAGS: u32 = 7;
/// The rest of `meta`: insertions into the small queue up to this line's own.
const SERIAL_SHIFT: u32 = 3;

/// CLOCK with a small queue, a ghost queue and a correlation window.
#[derive(Clone, Debug)]
pub struct Clock2QPlus<I> {
    lines: Lines<I>,
    small: List,
    main: List,
    ghost: List,
    small_max: u32,
    ghost_max: u32,
    window: u32,
    /// The pool has been full; until then newcomers beyond the small queue's
    /// share go to the main queue.
    filled: bool,
    /// Insertions into the small queue, modulo what `meta` has room for.
    serial: u32,
}

impl<I: Index> Clock2QPlus<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Clock2QPlus<I> {
        let mut policy = Clock2QPlus {
            lines: Lines::new(universe, slots, Self::ghosts_max(slots)),
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: List::EMPTY,
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

    fn trim_ghosts(&mut self) {
        while self.ghost.len() > self.ghost_max {
            if let Some(oldest) = self.lines.pop_back(&mut self.ghost) {
                self.lines.drop_node(oldest);
            }
        }
    }

    fn push_main(&mut self, node: u32) {
        self.lines.set_meta(node, IN_MAIN);
        self.lines.push_front(&mut self.main, node);
    }
}

impl<I: Index> ListPolicy for Clock2QPlus<I> {
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
        let age = (self.serial.wrapping_sub(meta >> SERIAL_SHIFT)) << SERIAL_SHIFT >> SERIAL_SHIFT;
        if meta & IN_MAIN != 0 || age >= self.window {
            self.lines.set_meta(node, meta | REFERENCED);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        self.filled = true;
        let mut pinned = 0;
        let mut from_main = self.main.len() > self.main_max();
        while pinned < PINNED_MAX {
            from_main |= self.small.len() == 0;
            let list = if from_main {
                &mut self.main
            } else {
                &mut self.small
            };
            let node = self.lines.pop_back(list)?;
            let referenced = self.lines.meta(node) & REFERENCED != 0;
            if referenced || self.lines.pinned(node, pins) {
                pinned += u32::from(!referenced);
                self.push_main(node);
            } else if from_main {
                return Some(self.lines.evict(node));
            } else {
                let evicted = self.lines.evict_to_ghost(node);
                self.lines.set_meta(node, IN_GHOST);
                self.lines.push_front(&mut self.ghost, node);
                self.trim_ghosts();
                return Some(evicted);
            }
        }
        None
    }

    fn recall(&mut self, node: u32) {
        self.lines.unlink(&mut self.ghost, node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        let spill = !self.filled && self.small.len() >= self.small_max;
        if recalled || spill {
            self.push_main(node);
        } else {
            self.serial = self.serial.wrapping_add(1);
            self.lines.set_meta(node, self.serial << SERIAL_SHIFT);
            self.lines.push_front(&mut self.small, node);
        }
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, uses > 0);
        if uses > 1 {
            let meta = self.lines.meta(node);
            self.lines.set_meta(node, meta | REFERENCED);
        }
    }

    fn resident(&self) -> Vec<&List> {
        vec![&self.small, &self.main]
    }

    fn uses(&self, node: u32) -> u8 {
        let meta = self.lines.meta(node);
        u8::from(meta & IN_MAIN != 0) + u8::from(meta & REFERENCED != 0)
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
        let live = self.lines.slots().live();
        self.small_max = (live / 10).max(1);
        self.window = self.small_max;
        self.ghost_max = (f64::from(live) * 0.9) as u32;
        self.trim_ghosts();
    }

    fn check(&self) {
        self.lines.check(&[&self.small, &self.main, &self.ghost]);
        assert!(self.ghost.len() <= self.ghost_max);
        for (list, place) in [
            (&self.small, 0),
            (&self.main, IN_MAIN),
            (&self.ghost, IN_GHOST),
        ] {
            for node in self.lines.iter(list) {
                assert_eq!(self.lines.meta(node) & FLAGS & !REFERENCED, place);
            }
        }
    }
}
