//! Belady's optimum: the line whose next use lies farthest ahead makes room.
//! Offline: it is told the future, so it serves as a bound in simulations only.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer",
//! IBM Systems Journal 1966. Every miss is admitted, as in the paper.

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The next use of a line that is not used again.
pub const NEVER: u32 = u32::MAX;

/// The offline optimum.
#[derive(Clone, Debug)]
pub struct Belady<I> {
    lines: Lines<I>,
    list: List,
    /// For each access, when the same line is accessed next.
    next_use: Arc<Vec<u32>>,
    accesses: usize,
    /// (next use, node); stale where the node's `meta` says otherwise.
    heap: BinaryHeap<(u32, u32)>,
}

impl<I: Index> Belady<I> {
    /// For up to `slots` lines. `next_use[i]` is the index of the next access
    /// to the line of access `i`, or [`NEVER`].
    pub fn new(universe: I::Universe, slots: u32, next_use: Arc<Vec<u32>>) -> Belady<I> {
        Belady {
            lines: Lines::new(universe, slots, 0),
            list: List::EMPTY,
            next_use,
            accesses: 0,
            heap: BinaryHeap::new(),
        }
    }

    fn used(&mut self, node: u32) {
        let next = self.next_use.get(self.accesses).copied().unwrap_or(NEVER);
        self.accesses += 1;
        self.lines.set_meta(node, next);
        if self.heap.len() > 4 * self.lines.slots().total() as usize + 64 {
            let lines = &self.lines;
            self.heap
                .retain(|(next, node)| lines.slot(*node).is_some() && lines.meta(*node) == *next);
        }
        self.heap.push((next, node));
    }
}

impl<I: Index> ListPolicy for Belady<I> {
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
        self.used(node);
    }

    fn evict(&mut self, _: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let mut pinned = Vec::new();
        let mut found = None;
        while pinned.len() < PINNED_MAX as usize {
            let Some((next, node)) = self.heap.pop() else {
                break;
            };
            if self.lines.slot(node).is_none() || self.lines.meta(node) != next {
                continue;
            }
            if !self.lines.pinned(node, pins) {
                found = Some(node);
                break;
            }
            pinned.push((next, node));
        }
        self.heap.extend(pinned);
        let node = found?;
        self.lines.unlink(&mut self.list, node);
        Some(self.lines.evict(node))
    }

    fn recall(&mut self, _: u32) {}

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push_front(&mut self.list, node);
        self.used(node);
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
