//! Nodes, lists and slots of the policies made of linked lists.
//!
//! A node describes a key, either resident (it has a slot) or remembered after
//! its eviction (a ghost). Index, arena and lists are of fixed size between
//! calls of `grow`.
//!
//! Invariants:
//!     a node is either vacant or in the index, never both
//!     a node is in at most one list, the one it names
//!     resident nodes = used slots
//!
//! 24 bytes a node and 6.7 in the index.

mod policy;

pub use policy::ListPolicy;

use crate::{Index, LineKey, SlotNumber, SlotStates, VictimVeto};

/// No node, or no slot.
const NONE: u32 = u32::MAX;

/// The most pinned lines that a search for a victim passes over.
pub const PINNED_MAX: u32 = 64;

/// The most lists that a policy has.
const LISTS: usize = 4;
/// The bits of [`ArenaNode::tag`] that name a list.
const LIST_BITS: u32 = 2;
const LIST_MASK: u32 = (1 << LIST_BITS) - 1;
/// The bits of a node that are the policy's own.
pub const META_BITS: u32 = u32::BITS - LIST_BITS;

#[derive(Clone, Copy, Debug)]
struct ArenaNode {
    key: LineKey,
    prev: u32,
    next: u32,
    slot: u32,
    /// Number of its list or of its last one, and above that the policy's own bits.
    tag: u32,
}

/// A doubly linked list through the arena; the front is the newest end.
#[derive(Clone, Copy, Debug)]
struct LineList {
    front: u32,
    back: u32,
    len: u32,
}

impl LineList {
    const EMPTY: LineList = LineList {
        front: NONE,
        back: NONE,
        len: 0,
    };
}

/// The arena, its index, the lists, which the policy numbers, and the slots.
#[derive(Clone, Debug)]
pub struct LineArena<I> {
    index: I,
    nodes: Vec<ArenaNode>,
    lists: [LineList; LISTS],
    /// Vacant nodes, linked by `next`.
    vacant: u32,
    slots: SlotStates,
}

impl<I: Index> LineArena<I> {
    /// Room for `slots` resident lines and `ghosts` remembered ones.
    pub fn new(universe: I::Universe, slots: u32, ghosts: u32) -> LineArena<I> {
        let mut lines = LineArena {
            index: I::new(universe, slots + ghosts),
            nodes: Vec::new(),
            lists: [LineList::EMPTY; LISTS],
            vacant: NONE,
            slots: SlotStates::new(slots),
        };
        lines.add_nodes(slots + ghosts);
        lines
    }

    fn add_nodes(&mut self, total: u32) {
        let old = self.nodes.len() as u32;
        self.nodes.reserve_exact(total.saturating_sub(old) as usize);
        for id in old..total {
            self.nodes.push(ArenaNode {
                key: LineKey(0),
                prev: NONE,
                next: if id + 1 == total { self.vacant } else { id + 1 },
                slot: NONE,
                tag: 0,
            });
        }
        if old < total {
            self.vacant = old;
        }
    }

    /// The slots.
    pub fn slots(&self) -> &SlotStates {
        &self.slots
    }

    /// The node of `key`, resident or remembered.
    #[inline]
    pub fn find(&self, key: LineKey) -> Option<u32> {
        self.index.get(key, |n| self.nodes[n as usize].key)
    }

    /// The slot of a resident node.
    #[inline]
    pub fn slot(&self, node: u32) -> Option<SlotNumber> {
        let slot = self.nodes[node as usize].slot;
        (slot != NONE).then_some(SlotNumber(slot))
    }

    /// The key of a node.
    #[inline]
    pub fn key(&self, node: u32) -> LineKey {
        self.nodes[node as usize].key
    }

    /// The policy's own bits of a node.
    #[inline]
    pub fn meta(&self, node: u32) -> u32 {
        self.nodes[node as usize].tag >> LIST_BITS
    }

    /// Sets the policy's own bits of a node.
    #[inline]
    pub fn set_meta(&mut self, node: u32, meta: u32) {
        let tag = &mut self.nodes[node as usize].tag;
        *tag = meta << LIST_BITS | *tag & LIST_MASK;
    }

    /// The list that a node is in, or was in last.
    #[inline]
    pub fn list(&self, node: u32) -> usize {
        (self.nodes[node as usize].tag & LIST_MASK) as usize
    }

    /// The nodes of a list.
    pub fn len(&self, list: usize) -> u32 {
        self.lists[list].len
    }

    /// The oldest node of a list.
    pub fn back(&self, list: usize) -> Option<u32> {
        let back = self.lists[list].back;
        (back != NONE).then_some(back)
    }

    /// The oldest node of a list that may be evicted, if one is near its end.
    pub fn oldest(&self, list: usize, pins: &dyn VictimVeto) -> Option<u32> {
        let mut node = self.back(list)?;
        for _ in 0..PINNED_MAX {
            if !self.pinned(node, pins) {
                return Some(node);
            }
            node = self.newer(node)?;
        }
        None
    }

    /// The node before `node`, towards the front.
    pub fn newer(&self, node: u32) -> Option<u32> {
        let prev = self.nodes[node as usize].prev;
        (prev != NONE).then_some(prev)
    }

    /// A node for `key`, which has none; in no list, without a slot.
    pub fn add(&mut self, key: LineKey) -> u32 {
        let id = self.vacant;
        assert!(id != NONE, "a policy kept more ghosts than it asked for");
        let node = &mut self.nodes[id as usize];
        self.vacant = node.next;
        *node = ArenaNode {
            key,
            prev: NONE,
            next: NONE,
            slot: NONE,
            tag: 0,
        };
        self.index.insert(key, id);
        id
    }

    /// Forgets a node that is in no list, and frees its slot, if any.
    pub fn drop_node(&mut self, id: u32) -> Option<SlotNumber> {
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
    pub fn evict(&mut self, id: u32) -> (SlotNumber, LineKey) {
        let evicted = self.evict_to_ghost(id);
        self.drop_node(id);
        evicted
    }

    /// Turns a resident node into a ghost; its slot stays taken, for the
    /// newcomer.
    pub fn evict_to_ghost(&mut self, id: u32) -> (SlotNumber, LineKey) {
        let slot = self.take_slot(id).expect("a resident node has a slot");
        (slot, self.key(id))
    }

    fn take_slot(&mut self, id: u32) -> Option<SlotNumber> {
        let slot = std::mem::replace(&mut self.nodes[id as usize].slot, NONE);
        (slot != NONE).then_some(SlotNumber(slot))
    }

    fn set_slot(&mut self, id: u32, slot: SlotNumber) {
        self.nodes[id as usize].slot = slot.0;
    }

    /// Puts a node, in no list, at the front of `list`.
    #[inline]
    pub fn push(&mut self, list: usize, id: u32) {
        let ends = &mut self.lists[list];
        let old = std::mem::replace(&mut ends.front, id);
        if old == NONE {
            ends.back = id;
        } else {
            self.nodes[old as usize].prev = id;
        }
        ends.len += 1;
        let node = &mut self.nodes[id as usize];
        node.prev = NONE;
        node.next = old;
        node.tag = node.tag & !LIST_MASK | list as u32;
    }

    /// Takes a node out of its list.
    #[inline]
    pub fn unlink(&mut self, id: u32) {
        let ArenaNode { prev, next, .. } = self.nodes[id as usize];
        let list = self.list(id);
        if prev == NONE {
            self.lists[list].front = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NONE {
            self.lists[list].back = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
        self.lists[list].len -= 1;
    }

    /// Makes a node the newest of its list.
    #[inline]
    pub fn move_to_front(&mut self, id: u32) {
        let list = self.list(id);
        if self.lists[list].front != id {
            self.unlink(id);
            self.push(list, id);
        }
    }

    /// Removes the oldest node of a list.
    pub fn pop_back(&mut self, list: usize) -> Option<u32> {
        let id = self.back(list)?;
        self.unlink(id);
        Some(id)
    }

    /// Forgets the oldest nodes of a list that is longer than `max`.
    pub fn trim(&mut self, list: usize, max: u32) {
        while self.len(list) > max {
            let oldest = self.pop_back(list).expect("a list that is not empty");
            self.drop_node(oldest);
        }
    }

    /// True if the engine forbids the eviction of resident node `id`.
    pub fn pinned(&self, id: u32, pins: &dyn VictimVeto) -> bool {
        self.slot(id).is_some_and(|slot| pins.pinned(slot))
    }

    /// The nodes of a list from front to back.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = u32> {
        let mut at = self.lists[list].front;
        std::iter::from_fn(move || {
            let id = (at != NONE).then_some(at)?;
            at = self.nodes[id as usize].next;
            Some(id)
        })
    }

    /// Panics unless the lists hold each node once, and all nodes that are not
    /// vacant, and each resident node has a slot of its own.
    pub fn check(&self) {
        let mut seen = vec![false; self.nodes.len()];
        let mut slots = vec![false; self.slots.total() as usize];
        for list in 0..LISTS {
            let mut len = 0;
            let mut last = NONE;
            for id in self.iter(list) {
                assert!(!std::mem::replace(&mut seen[id as usize], true));
                assert_eq!(self.nodes[id as usize].prev, last);
                assert_eq!(self.list(id), list);
                assert_eq!(self.find(self.key(id)), Some(id));
                if let Some(slot) = self.slot(id) {
                    assert!(self.slots.is_used(slot));
                    assert!(!std::mem::replace(&mut slots[slot.0 as usize], true));
                }
                last = id;
                len += 1;
            }
            assert_eq!((len, last), (self.lists[list].len, self.lists[list].back));
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
