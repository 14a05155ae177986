//! Belady's optimum: evicts the line with its next use farthest ahead.
//! Offline: the policy is given the future, and serves as a bound in simulations only.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer",
//! IBM Systems Journal 1966. Every miss is admitted, as in the paper.

use policy::lines::{LineArena, ListPolicy, META_BITS, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The next use of a line that is not used again.
pub const NEVER: u32 = u32::MAX;

/// Uses from this one on count as equally far ahead.
const NEXT_MAX: u32 = (1 << META_BITS) - 1;
const LIST: usize = 0;

/// The offline optimum.
#[derive(Clone, Debug)]
pub struct Belady<I> {
    lines: LineArena<I>,
    /// Index of the next access to the line of each access.
    next_use: Arc<Vec<u32>>,
    accesses: usize,
    /// (next use, node); stale where the node's `meta` says otherwise.
    heap: BinaryHeap<(u32, u32)>,
}

impl<I: Index> Belady<I> {
    /// A policy for up to `slots` lines. `next_use[i]` is the index of the next access to the line
    /// of access `i`, or [`NEVER`].
    pub fn new(universe: I::Universe, slots: u32, next_use: Arc<Vec<u32>>) -> Belady<I> {
        Belady {
            lines: LineArena::new(universe, slots, 0),
            next_use,
            accesses: 0,
            heap: BinaryHeap::new(),
        }
    }

    fn used(&mut self, node: u32) {
        let next = self.next_use.get(self.accesses).copied().unwrap_or(NEVER);
        let next = next.min(NEXT_MAX);
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

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn hit(&mut self, node: u32) {
        self.used(node);
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
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
        self.lines.unlink(node);
        Some(self.lines.evict(node))
    }

    fn place(&mut self, node: u32, _: bool) {
        self.lines.push(LIST, node);
        self.used(node);
    }
}
