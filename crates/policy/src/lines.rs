//! What the policies made of linked lists share: nodes, lists, slots.
//!
//! A node describes a key, either resident (it has a slot) or remembered after
//! its eviction (a ghost). Index, arena and lists are of fixed size between
//! calls of `grow`.
//!
//! Invariants:
//!     a node is either vacant or in the index, never both
//!     a node is in at most one list, the list its policy says
//!     resident nodes = used slots
//!
//! 24 bytes a node and 6.7 in the index.

use crate::{Heat, Index, Instruction, Key, Pins, Reason, Replacement, Request, Slot, Slots};
use std::ops::Range;

/// No node, or no slot.
const NONE: u32 = u32::MAX;

/// How many pinned lines a search for a victim passes over before it gives up.
pub(crate) const PINNED_MAX: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    prev: u32,
    next: u32,
    slot: u32,
    /// The policy's own: which list, reference bits.
    meta: u32,
}

/// A doubly linked list through the arena; the front is the newest end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List {
        front: NONE,
        back: NONE,
        len: 0,
    };

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn back(&self) -> Option<u32> {
        (self.back != NONE).then_some(self.back)
    }
}

/// The arena, its index, and the slots.
#[derive(Clone, Debug)]
pub(crate) struct Lines<I> {
    index: I,
    nodes: Vec<Node>,
    /// Vacant nodes, linked by `next`.
    vacant: u32,
    slots: Slots,
}

impl<I: Index> Lines<I> {
    /// Room for `slots` resident lines and `ghosts` remembered ones.
    pub(crate) fn new(universe: I::Universe, slots: u32, ghosts: u32) -> Lines<I> {
        let mut lines = Lines {
            index: I::new(universe, slots + ghosts),
            nodes: Vec::new(),
            vacant: NONE,
            slots: Slots::new(slots),
        };
        lines.add_nodes(slots + ghosts);
        lines
    }

    fn add_nodes(&mut self, total: u32) {
        let old = self.nodes.len() as u32;
        self.nodes.reserve_exact(total.saturating_sub(old) as usize);
        for id in old..total {
            self.nodes.push(Node {
                key: Key(0),
                prev: NONE,
                next: if id + 1 == total { self.vacant } else { id + 1 },
                slot: NONE,
                meta: 0,
            });
        }
        if old < total {
            self.vacant = old;
        }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<u32> {
        self.index.get(key, |n| self.nodes[n as usize].key)
    }

    #[inline]
    pub(crate) fn slot(&self, node: u32) -> Option<Slot> {
        let slot = self.nodes[node as usize].slot;
        (slot != NONE).then_some(Slot(slot))
    }

    #[inline]
    pub(crate) fn key(&self, node: u32) -> Key {
        self.nodes[node as usize].key
    }

    #[inline]
    pub(crate) fn meta(&self, node: u32) -> u32 {
        self.nodes[node as usize].meta
    }

    #[inline]
    pub(crate) fn set_meta(&mut self, node: u32, meta: u32) {
        self.nodes[node as usize].meta = meta;
    }

    /// The node before `node`, towards the front.
    pub(crate) fn newer(&self, node: u32) -> Option<u32> {
        let prev = self.nodes[node as usize].prev;
        (prev != NONE).then_some(prev)
    }

    /// A node for `key`, which has none; in no list, without a slot.
    pub(crate) fn add(&mut self, key: Key) -> u32 {
        let id = self.vacant;
        assert!(id != NONE, "a policy kept more ghosts than it asked for");
        let node = &mut self.nodes[id as usize];
        self.vacant = node.next;
        *node = Node {
            key,
            prev: NONE,
            next: NONE,
            slot: NONE,
            meta: 0,
        };
        self.index.insert(key, id);
        id
    }

    /// Forgets a node that is in no list, and frees its slot if it has one.
    pub(crate) fn drop_node(&mut self, id: u32) -> Option<Slot> {
        let slot = self.take_slot(id);
        if let Some(slot) = slot {
            self.slots.release(slot);
        }
        self.index.remove(self.nodes[id as usize].key, id);
        self.nodes[id as usize].next = self.vacant;
        self.vacant = id;
        slot
    }

    /// Forgets a resident node that is in no list; its slot stays taken, for
    /// the newcomer.
    pub(crate) fn evict(&mut self, id: u32) -> (Slot, Key) {
        let evicted = self.evict_to_ghost(id);
        self.drop_node(id);
        evicted
    }

    /// Turns a resident node into a ghost; its slot stays taken, for the
    /// newcomer.
    pub(crate) fn evict_to_ghost(&mut self, id: u32) -> (Slot, Key) {
        let slot = self.take_slot(id).expect("a resident node has a slot");
        (slot, self.key(id))
    }

    fn take_slot(&mut self, id: u32) -> Option<Slot> {
        let slot = std::mem::replace(&mut self.nodes[id as usize].slot, NONE);
        (slot != NONE).then_some(Slot(slot))
    }

    fn set_slot(&mut self, id: u32, slot: Slot) {
        self.nodes[id as usize].slot = slot.0;
    }

    #[inline]
    pub(crate) fn push_front(&mut self, list: &mut List, id: u32) {
        let old = list.front;
        let node = &mut self.nodes[id as usize];
        node.prev = NONE;
        node.next = old;
        if old == NONE {
            list.back = id;
        } else {
            self.nodes[old as usize].prev = id;
        }
        list.front = id;
        list.len += 1;
    }

    #[inline]
    pub(crate) fn unlink(&mut self, list: &mut List, id: u32) {
        let Node { prev, next, .. } = self.nodes[id as usize];
        if prev == NONE {
            list.front = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NONE {
            list.back = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
        list.len -= 1;
    }

    #[inline]
    pub(crate) fn move_to_front(&mut self, list: &mut List, id: u32) {
        if list.front != id {
            self.unlink(list, id);
            self.push_front(list, id);
        }
    }

    /// Removes the oldest node of `list` from it.
    pub(crate) fn pop_back(&mut self, list: &mut List) -> Option<u32> {
        let id = list.back()?;
        self.unlink(list, id);
        Some(id)
    }

    /// Whether the engine forbids the eviction of resident node `id`.
    pub(crate) fn pinned(&self, id: u32, pins: &dyn Pins) -> bool {
        self.slot(id).is_some_and(|slot| pins.pinned(slot))
    }

    /// The nodes of `list` from front to back.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = u32> {
        let mut at = list.front;
        std::iter::from_fn(move || {
            let id = (at != NONE).then_some(at)?;
            at = self.nodes[id as usize].next;
            Some(id)
        })
    }

    /// Panics unless `lists` hold each node once, and all nodes that are not
    /// vacant, and each resident node has a slot of its own.
    pub(crate) fn check(&self, lists: &[&List]) {
        let mut seen = vec![false; self.nodes.len()];
        let mut slots = vec![false; self.slots.total() as usize];
        for list in lists {
            let mut len = 0;
            let mut last = NONE;
            for id in self.iter(list) {
                assert!(!std::mem::replace(&mut seen[id as usize], true));
                assert_eq!(self.nodes[id as usize].prev, last);
                assert_eq!(self.find(self.key(id)), Some(id));
                if let Some(slot) = self.slot(id) {
                    assert!(self.slots.is_used(slot));
                    assert!(!std::mem::replace(&mut slots[slot.0 as usize], true));
                }
                last = id;
                len += 1;
            }
            assert_eq!((len, last), (list.len, list.back));
        }
        let resident = slots.iter().filter(|taken| **taken).count();
        assert_eq!(resident, self.slots.used() as usize);
        let mut vacant = 0;
        let mut at = self.vacant;
        while at != NONE {
            assert!(!seen[at as usize]);
            vacant += 1;
            at = self.nodes[at as usize].next;
        }
        let listed = seen.iter().filter(|in_list| **in_list).count();
        assert_eq!(listed + vacant, self.nodes.len());
    }
}

/// A replacement policy made of lists over one [`Lines`]; what differs between
/// such policies is here, what does not is in the implementation below.
pub(crate) trait ListPolicy {
    type Index: Index;

    fn lines(&self) -> &Lines<Self::Index>;
    fn lines_mut(&mut self) -> &mut Lines<Self::Index>;

    /// Ghosts to make room for beside `slots` resident lines.
    fn ghosts_max(slots: u32) -> u32;

    /// A resident node was accessed.
    fn hit(&mut self, node: u32);

    /// Makes one of the resident lines give way and returns what it held; it is
    /// no longer resident. `ghost` says whether the newcomer is remembered.
    /// `None`, with no line evicted, if all that were looked at are pinned.
    fn evict(&mut self, ghost: bool, pins: &dyn Pins) -> Option<(Slot, Key)>;

    /// A ghost was asked for, before room is made for it; learns from it and
    /// takes it out of its list. Its `meta` is carried to [`ListPolicy::place`].
    fn recall(&mut self, node: u32);

    /// Puts a node, in no list, into the list where newcomers or recalled
    /// ghosts start. It is given its slot afterwards.
    fn place(&mut self, node: u32, recalled: bool);

    /// Puts a resident node, in no list, where it belongs after that many uses
    /// since it came.
    fn place_used(&mut self, node: u32, uses: u8) {
        self.place(node, uses > 0);
        for _ in 1..uses {
            self.hit(node);
        }
    }

    /// The lists that hold the resident nodes, in the order of export.
    fn resident(&self) -> Vec<&List>;

    /// Resident nodes in none of those lists; exported before the others.
    fn rest(&self) -> Vec<u32> {
        Vec::new()
    }

    /// What [`Heat::uses`] says of a resident node.
    fn uses(&self, node: u32) -> u8;

    /// Takes a node, resident or ghost, out of its list.
    fn unlink(&mut self, node: u32);

    /// The node last unlinked has been dropped.
    fn removed(&mut self) {}

    /// The number of live slots changed: adjusts targets and drops ghosts.
    fn resized(&mut self);

    fn check(&self);
}

impl<P: ListPolicy> Replacement for P {
    #[inline]
    fn touch(&mut self, key: Key, _: &Request) -> Option<Slot> {
        let node = self.lines().find(key)?;
        let slot = self.lines().slot(node)?;
        self.hit(node);
        Some(slot)
    }

    fn insert(&mut self, key: Key, _: &Request, pins: &dyn Pins) -> Instruction {
        if self.slots().live() == 0 {
            return Instruction::Bypass(Reason::NoSlots);
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
            return Instruction::Bypass(Reason::AllPinned);
        };
        let node = ghost.unwrap_or_else(|| self.lines_mut().add(key));
        self.place(node, ghost.is_some());
        self.lines_mut().set_slot(node, slot);
        match victim {
            None => Instruction::Admit(slot),
            Some(victim) => Instruction::Replace { slot, victim },
        }
    }

    fn peek(&self, key: Key) -> Option<Slot> {
        self.lines().slot(self.lines().find(key)?)
    }

    fn remove(&mut self, key: Key) -> Option<Slot> {
        let node = self.lines().find(key)?;
        self.unlink(node);
        let slot = self.lines_mut().drop_node(node);
        self.removed();
        slot
    }

    fn adopt(&mut self, key: Key, slot: Slot, heat: Heat) -> bool {
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

    fn export(&self, visit: &mut dyn FnMut(Key, Slot, Heat)) {
        let lines = self.lines();
        let listed = self
            .resident()
            .into_iter()
            .flat_map(|list| std::iter::successors(list.back(), |node| lines.newer(*node)));
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

    fn slots(&self) -> &Slots {
        self.lines().slots()
    }

    fn for_each(&self, visit: &mut dyn FnMut(Key, Slot)) {
        for node in &self.lines().nodes {
            if node.slot != NONE {
                visit(node.key, Slot(node.slot));
            }
        }
    }

    fn check(&self) {
        ListPolicy::check(self);
    }
}
