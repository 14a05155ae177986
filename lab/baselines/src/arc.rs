//! ARC as in its paper: two LRU lists, of lines seen once and of lines seen
//! more often, each continued by ghosts; a hit on a ghost moves the target
//! between them.
//!
//! Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache",
//! FAST 2003, figure 4. Names are the paper's. (The paper's figure deletes the
//! oldest line of T1 without a ghost when T1 fills the cache. Here the line becomes a
//! ghost and is trimmed at once, which is the same.)
//!
//! Invariants, c = live slots:
//!     |T1| + |B1| <= c,  |T1| + |T2| + |B1| + |B2| <= 2c,  p <= c

use policy::lines::{LineArena, ListPolicy};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// Adaptive replacement cache.
#[derive(Clone, Debug)]
pub struct Arc<I> {
    lines: LineArena<I>,
    /// The paper's p: the target length of T1.
    target: f64,
    /// The newcomer was a ghost in B2.
    from_b2: bool,
}

impl<I: Index> Arc<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Arc<I> {
        Arc {
            lines: LineArena::new(universe, slots, Self::ghosts_max(slots)),
            target: 0.0,
            from_b2: false,
        }
    }

    fn len(&self, list: usize) -> u32 {
        self.lines.len(list)
    }

    /// Forgets ghosts until the invariants hold.
    fn trim(&mut self) {
        let c = self.lines.slots().live();
        self.lines.trim(B1, c.saturating_sub(self.len(T1)));
        let total: u64 = (T1..=B2).map(|list| u64::from(self.len(list))).sum();
        let over = total.saturating_sub(2 * u64::from(c)) as u32;
        let rest = over.saturating_sub(self.len(B2));
        self.lines.trim(B2, self.len(B2).saturating_sub(over));
        self.lines.trim(B1, self.len(B1).saturating_sub(rest));
    }
}

impl<I: Index> ListPolicy for Arc<I> {
    type Index = I;

    const RESIDENT: &'static [usize] = &[T1, T2];

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        // One more while a victim is a ghost and the newcomer not yet placed.
        slots + 1
    }

    #[inline]
    fn hit(&mut self, node: u32) {
        self.lines.unlink(node);
        self.lines.push(T2, node);
    }

    /// REPLACE of the paper.
    fn evict(&mut self, ghost: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let from_b2 = ghost && self.from_b2;
        let t1 = f64::from(self.len(T1));
        let over = t1 > self.target || (from_b2 && t1 == self.target);
        let order = if t1 > 0.0 && over { [T1, T2] } else { [T2, T1] };
        let node = order
            .iter()
            .find_map(|list| self.lines.oldest(*list, pins))?;
        let ghosts = if self.lines.list(node) == T1 { B1 } else { B2 };
        self.lines.unlink(node);
        let evicted = self.lines.evict_to_ghost(node);
        self.lines.push(ghosts, node);
        Some(evicted)
    }

    fn recall(&mut self, node: u32) {
        let (b1, b2) = (f64::from(self.len(B1)), f64::from(self.len(B2)));
        self.from_b2 = self.lines.list(node) == B2;
        self.target = if self.from_b2 {
            (self.target - (b1 / b2).max(1.0)).max(0.0)
        } else {
            let c = f64::from(self.lines.slots().live());
            (self.target + (b2 / b1).max(1.0)).min(c)
        };
        self.lines.unlink(node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        self.lines.push(if recalled { T2 } else { T1 }, node);
        self.trim();
    }

    fn uses(&self, node: u32) -> u8 {
        u8::from(self.lines.list(node) == T2)
    }

    fn resized(&mut self) {
        self.target = self.target.min(f64::from(self.lines.slots().live()));
        self.trim();
    }

    fn check(&self) {
        self.lines.check();
        let c = self.lines.slots().live();
        assert!(self.len(T1) + self.len(B1) <= c);
        assert!((T1..=B2).map(|list| self.len(list)).sum::<u32>() <= 2 * c);
        assert!(self.target <= f64::from(c));
    }
}
