//! A replacement policy made of lists: the differences between such policies, and below them the
//! common part.

use super::{LineArena, NONE};
use crate::{
    BypassReason, Heat, Index, Instruction, LineKey, LineParts, Policy, PolicyRequest, SlotNumber,
    SlotPart, SlotStates, VictimVeto,
};
use std::ops::Range;

/// The decisions of one such policy over [`LineArena`].
pub trait ListPolicy {
    /// The index from key to node.
    type Index: Index;

    /// Its lists.
    fn lines(&self) -> &LineArena<Self::Index>;
    /// The same.
    fn lines_mut(&mut self) -> &mut LineArena<Self::Index>;

    /// The lists that hold resident nodes, in the order of export.
    const RESIDENT: &'static [usize] = &[0];

    /// Ghosts to make room for beside `slots` resident lines.
    fn ghosts_max(_slots: u32) -> u32 {
        0
    }

    /// A resident node was accessed.
    fn hit(&mut self, node: u32);

    /// Evicts one of the resident lines, and returns its slot and key. `ghost` is true if the
    /// newcomer is remembered. `None`, with no line evicted, if all lines examined are pinned.
    fn evict(&mut self, ghost: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)>;

    /// Notes the request of a ghost, before room is made: learns from the ghost and takes it out of
    /// its list. Its `meta` is carried to [`ListPolicy::place`].
    fn recall(&mut self, node: u32) {
        self.unlink(node);
    }

    /// Puts a node, in no list, into the list where newcomers or recalled ghosts start. The node
    /// gets its slot afterwards.
    fn place(&mut self, node: u32, recalled: bool);

    /// Puts a resident node, in no list, into the place of a line with `uses` uses since its
    /// admission.
    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, uses > 0);
        for _ in 1..uses {
            self.hit(node);
        }
    }

    /// Resident nodes in none of those lists; exported before the others.
    fn rest(&self) -> Vec<u32> {
        Vec::new()
    }

    /// [`Heat::uses`] of a resident node.
    fn uses(&self, _node: u32) -> u8 {
        0
    }

    /// Takes a node, resident or ghost, out of its list.
    fn unlink(&mut self, node: u32) {
        self.lines_mut().unlink(node);
    }

    /// The node last unlinked has been dropped.
    fn removed(&mut self) {}

    /// The number of live slots changed: adjusts targets and drops ghosts.
    fn resized(&mut self) {}

    /// Panics if an invariant does not hold.
    fn check(&self) {
        self.lines().check();
    }
}

impl<P: ListPolicy> Policy for P {
    #[inline(always)]
    fn touch(&mut self, key: LineKey, _: &PolicyRequest) -> Option<SlotNumber> {
        let node = self.lines().find(key)?;
        let slot = self.lines().slot(node)?;
        self.hit(node);
        Some(slot)
    }

    #[inline(never)]
    fn insert(&mut self, key: LineKey, _: &PolicyRequest, pins: &dyn VictimVeto) -> Instruction {
        if self.slots().live() == 0 {
            return Instruction::Bypass(BypassReason::NoSlots);
        }
        let ghost = self.lines().find(key);
        if let Some(node) = ghost {
            self.recall(node);
        }
        let room = match self.lines_mut().slots.take() {
            Some(slot) => Some((slot, None)),
            None => self
                .evict(ghost.is_some(), pins)
                .map(|(slot, victim)| (slot, Some(victim))),
        };
        let Some((slot, victim)) = room else {
            if let Some(node) = ghost {
                self.lines_mut().drop_node(node);
            }
            return Instruction::Bypass(BypassReason::AllPinned);
        };
        let node = ghost.unwrap_or_else(|| self.lines_mut().add(key));
        self.place(node, ghost.is_some());
        self.lines_mut().set_slot(node, slot);
        match victim {
            None => Instruction::Admit(slot),
            Some(victim) => Instruction::Replace { slot, victim },
        }
    }

    fn peek(&self, key: LineKey) -> Option<SlotNumber> {
        self.lines().slot(self.lines().find(key)?)
    }

    fn remove(&mut self, key: LineKey) -> Option<SlotNumber> {
        let node = self.lines().find(key)?;
        self.unlink(node);
        let slot = self.lines_mut().drop_node(node);
        self.removed();
        slot
    }

    fn adopt(&mut self, key: LineKey, slot: SlotNumber, heat: Heat, _: LineParts) -> bool {
        if self.peek(key).is_some() || !self.lines_mut().slots.take_this(slot) {
            return false;
        }
        let ghost = self.lines().find(key);
        if let Some(node) = ghost {
            self.recall(node);
        }
        let node = ghost.unwrap_or_else(|| self.lines_mut().add(key));
        self.lines_mut().set_slot(node, slot);
        let uses = heat.uses().max(u8::from(ghost.is_some()));
        self.place_used(node, uses);
        true
    }

    fn export(&self, visit: &mut dyn FnMut(LineKey, SlotNumber, Heat)) {
        let lines = self.lines();
        let listed = P::RESIDENT
            .iter()
            .flat_map(|list| std::iter::successors(lines.back(*list), |node| lines.newer(*node)));
        for node in self.rest().into_iter().chain(listed) {
            if let Some(slot) = lines.slot(node) {
                visit(lines.key(node), slot, Heat::of_uses(self.uses(node)));
            }
        }
    }

    fn grow(&mut self, total: u32) {
        let nodes = total + P::ghosts_max(total);
        let lines = self.lines_mut();
        if total <= lines.slots.total() {
            return;
        }
        lines.slots.grow(total);
        lines.index.grow(nodes, |n| lines.nodes[n as usize].key);
        lines.add_nodes(nodes);
        self.resized();
    }

    fn retire(&mut self, range: Range<u32>) {
        for id in 0..self.lines().nodes.len() as u32 {
            if self.lines().slot(id).is_some_and(|s| range.contains(&s.0)) {
                self.unlink(id);
                self.lines_mut().drop_node(id);
                self.removed();
            }
        }
        self.lines_mut().slots.retire(range);
        self.resized();
    }

    fn revive(&mut self, slots: &[Range<u32>]) {
        for range in slots {
            self.lines_mut().slots.revive(range.clone());
        }
        self.resized();
    }

    fn share(&mut self, parts: &[SlotPart]) -> u64 {
        self.lines_mut().slots.share(parts)
    }

    fn slots(&self) -> &SlotStates {
        self.lines().slots()
    }

    fn for_each(&self, visit: &mut dyn FnMut(LineKey, SlotNumber)) {
        for node in &self.lines().nodes {
            if node.slot != NONE {
                visit(node.key, SlotNumber(node.slot));
            }
        }
    }

    fn check(&self) {
        ListPolicy::check(self);
    }
}
