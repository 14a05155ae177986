//! ARC as in its paper: two LRU lists, of lines seen once and of lines seen
//! more often, each continued by ghosts; a hit on a ghost moves the target
//! between them.
//!
//! Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache",
//! FAST 2003, figure 4. Names are the paper's. (The paper's figure deletes the
//! oldest line of T1 without a ghost when T1 fills the cache; here it becomes a
//! ghost and is trimmed at once, which is the same.)
//!
//! Invariants, c = live slots:
//!     |T1| + |B1| <= c,  |T1| + |T2| + |B1| + |B2| <= 2c,  p <= c
//!     every node is in the list its `meta` names

use crate::lines::{Lines, List, ListPolicy, PINNED_MAX};
use crate::{Index, Key, Pins, Slot};

const T1: u32 = 0;
const T2: u32 = 1;
const B1: u32 = 2;
const B2: u32 = 3;

/// Adaptive replacement cache.
#[derive(Clone, Debug)]
pub struct Arc<I> {
    lines: Lines<I>,
    /// T1, T2, B1, B2.
    lists: [List; 4],
    /// The paper's p: the target length of T1.
    target: f64,
    /// The newcomer was a ghost in B2.
    from_b2: bool,
}

impl<I: Index> Arc<I> {
    /// For up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Arc<I> {
        Arc {
            lines: Lines::new(universe, slots, Self::ghosts_max(slots)),
            lists: [List::EMPTY; 4],
            target: 0.0,
            from_b2: false,
        }
    }

    fn len(&self, list: u32) -> u32 {
        self.lists[list as usize].len()
    }

    fn push(&mut self, list: u32, node: u32) {
        self.lines.set_meta(node, list);
        self.lines.push_front(&mut self.lists[list as usize], node);
    }

    fn trim(&mut self) {
        let c = self.lines.slots().live();
        while self.len(B1) > 0 && self.len(T1) + self.len(B1) > c {
            self.drop_oldest(B1);
        }
        let total = |arc: &Self| (T1..=B2).map(|list| u64::from(arc.len(list))).sum::<u64>();
        while total(self) > 2 * u64::from(c) && self.len(B1) + self.len(B2) > 0 {
            self.drop_oldest(if self.len(B2) > 0 { B2 } else { B1 });
        }
    }

    fn drop_oldest(&mut self, list: u32) {
        if let Some(node) = self.lines.pop_back(&mut self.lists[list as usize]) {
            self.lines.drop_node(node);
        }
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
}

impl<I: Index> ListPolicy for Arc<I> {
    type Index = I;

    fn lines(&self) -> &Lines<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut Lines<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        // One more while a victim is a ghost and the newcomer not yet placed.
        slots + 1
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        self.unlink(node);
        self.push(T2, node);
    }

    /// REPLACE of the paper.
    fn evict(&mut self, ghost: bool, pins: &dyn Pins) -> Option<(Slot, Key)> {
        let from_b2 = ghost && self.from_b2;
        let t1 = f64::from(self.len(T1));
        let over = t1 > self.target || (from_b2 && t1 == self.target);
        let order = if t1 > 0.0 && over { [T1, T2] } else { [T2, T1] };
        let node = order.iter().find_map(|list| self.oldest(*list, pins))?;
        let ghost_list = if self.lines.meta(node) == T1 { B1 } else { B2 };
        self.unlink(node);
        let evicted = self.lines.evict_to_ghost(node);
        self.push(ghost_list, node);
        Some(evicted)
    }

    fn recall(&mut self, node: u32) {
        let (b1, b2) = (f64::from(self.len(B1)), f64::from(self.len(B2)));
        self.from_b2 = self.lines.meta(node) == B2;
        self.target = if self.from_b2 {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        } else {
            let c = f64::from(self.lines.slots().live());
            (self.target + (b2 / b1).max(1.0)).min(c)
        };
        self.unlink(node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        self.push(if recalled { T2 } else { T1 }, node);
        self.trim();
    }

    fn resident(&self) -> Vec<&List> {
        self.lists[T1 as usize..=T2 as usize].iter().collect()
    }

    fn uses(&self, node: u32) -> u8 {
        u8::from(self.lines.meta(node) == T2)
    }

    fn unlink(&mut self, node: u32) {
        let list = self.lines.meta(node) as usize;
        self.lines.unlink(&mut self.lists[list], node);
    }

    fn resized(&mut self) {
        self.target = self.target.min(f64::from(self.lines.slots().live()));
        self.trim();
    }

    fn check(&self) {
        let lists: Vec<&List> = self.lists.iter().collect();
        self.lines.check(&lists);
        let c = self.lines.slots().live();
        assert!(self.len(T1) + self.len(B1) <= c);
        assert!((T1..=B2).map(|list| self.len(list)).sum::<u32>() <= 2 * c);
        assert!(self.target <= f64::from(c));
    }
}
