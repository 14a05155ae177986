//! LIRS: ranks lines by the recency of their last *re*-use; lines of low
//! inter-reference recency (LIR) own 99% of the slots, the others (HIR) pass
//! through a short queue and rise when reused while still in the stack.
//!
//! Jiang and Zhang, "LIRS: an efficient low inter-reference recency set
//! replacement policy", SIGMETRICS 2002. Names are the paper's: stack S, queue
//! Q. HIR lines that were evicted stay in S as ghosts, at most two for each
//! slot, and leave it oldest first.
//!
//! Invariants:
//!     the bottom of S is an LIR line, unless there is none
//!     resident HIR lines = Q;  ghosts are in S and in the queue of ghosts

use policy::lines::{LineArena, ListPolicy, PINNED_MAX};
use policy::{Index, LineKey, SlotNumber, VictimVeto};

/// S; its nodes are linked by their own links.
const STACK: usize = 0;
const LIR: u32 = 1;
const IN_S: u32 = 2;
const NONE: u32 = u32::MAX;
/// Ghosts for each slot.
const GHOSTS_PER_SLOT: u32 = 2;

/// Low inter-reference recency set.
#[derive(Clone, Debug)]
pub struct Lirs<I> {
    lines: LineArena<I>,
    /// Q and the ghosts, through links of their own: a line is in one of them
    /// and in S at once.
    links: Vec<LirsLink>,
    queue: LirsQueue,
    ghosts: LirsQueue,
    lir: u32,
    lir_max: u32,
}

#[derive(Clone, Copy, Debug)]
struct LirsLink {
    older: u32,
    newer: u32,
}

/// A FIFO queue through [`Lirs::links`].
#[derive(Clone, Copy, Debug)]
struct LirsQueue {
    oldest: u32,
    newest: u32,
    len: u32,
}

impl LirsQueue {
    const EMPTY: LirsQueue = LirsQueue {
        oldest: NONE,
        newest: NONE,
        len: 0,
    };

    fn push(&mut self, links: &mut [LirsLink], id: u32) {
        links[id as usize] = LirsLink {
            older: self.newest,
            newer: NONE,
        };
        match self.newest {
            NONE => self.oldest = id,
            newest => links[newest as usize].newer = id,
        }
        self.newest = id;
        self.len += 1;
    }

    fn unlink(&mut self, links: &mut [LirsLink], id: u32) {
        let LirsLink { older, newer } = links[id as usize];
        match older {
            NONE => self.oldest = newer,
            older => links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => links[newer as usize].older = older,
        }
        self.len -= 1;
    }
}

impl<I: Index> Lirs<I> {
    /// A policy for up to `slots` lines.
    pub fn new(universe: I::Universe, slots: u32) -> Lirs<I> {
        let mut policy = Lirs {
            lines: LineArena::new(universe, slots, Self::ghosts_max(slots)),
            links: Vec::new(),
            queue: LirsQueue::EMPTY,
            ghosts: LirsQueue::EMPTY,
            lir: 0,
            lir_max: 0,
        };
        policy.resized();
        policy
    }

    fn is_lir(&self, node: u32) -> bool {
        self.lines.meta(node) & LIR != 0
    }

    fn push_stack(&mut self, node: u32) {
        let meta = self.lines.meta(node);
        self.lines.set_meta(node, meta | IN_S);
        self.lines.push(STACK, node);
    }

    fn unlink_stack(&mut self, node: u32) {
        let meta = self.lines.meta(node);
        if meta & IN_S != 0 {
            self.lines.set_meta(node, meta & !IN_S);
            self.lines.unlink(node);
        }
    }

    fn make_lir(&mut self, node: u32) {
        let meta = self.lines.meta(node);
        self.lines.set_meta(node, meta | LIR);
        self.lir += 1;
    }

    /// Removes lines that are not LIR from the bottom of S.
    fn prune(&mut self) {
        while let Some(bottom) = self.lines.back(STACK) {
            if self.is_lir(bottom) {
                break;
            }
            self.unlink_stack(bottom);
            if self.lines.slot(bottom).is_none() {
                self.ghosts.unlink(&mut self.links, bottom);
                self.lines.drop_node(bottom);
            }
        }
    }

    /// Turns the LIR line at the bottom of S into the newest HIR line of Q.
    fn demote_bottom(&mut self) {
        self.prune();
        if let Some(bottom) = self.lines.back(STACK) {
            self.unlink_stack(bottom);
            self.lines.set_meta(bottom, 0);
            self.lir -= 1;
            self.queue.push(&mut self.links, bottom);
            self.prune();
        }
    }

    fn trim_ghosts(&mut self, max: u32) {
        while self.ghosts.len > max {
            let oldest = self.ghosts.oldest;
            self.ghosts.unlink(&mut self.links, oldest);
            self.unlink_stack(oldest);
            self.lines.drop_node(oldest);
        }
        self.prune();
    }

    fn oldest_unpinned(&self, pins: &dyn VictimVeto) -> Option<u32> {
        let mut node = self.queue.oldest;
        for _ in 0..PINNED_MAX {
            if node == NONE {
                return None;
            }
            if !self.lines.pinned(node, pins) {
                return Some(node);
            }
            node = self.links[node as usize].newer;
        }
        None
    }
}

impl<I: Index> ListPolicy for Lirs<I> {
    type Index = I;

    fn lines(&self) -> &LineArena<I> {
        &self.lines
    }

    fn lines_mut(&mut self) -> &mut LineArena<I> {
        &mut self.lines
    }

    fn ghosts_max(slots: u32) -> u32 {
        slots * GHOSTS_PER_SLOT + 1
    }

    fn hit(&mut self, node: u32) {
        let meta = self.lines.meta(node);
        if meta & LIR != 0 {
            self.lines.move_to_front(node);
            self.prune();
            return;
        }
        self.queue.unlink(&mut self.links, node);
        if meta & IN_S != 0 {
            self.lines.move_to_front(node);
            self.make_lir(node);
            self.demote_bottom();
        } else {
            self.push_stack(node);
            self.queue.push(&mut self.links, node);
        }
    }

    fn evict(&mut self, _: bool, pins: &dyn VictimVeto) -> Option<(SlotNumber, LineKey)> {
        let mut node = self.oldest_unpinned(pins);
        for _ in 0..PINNED_MAX {
            if node.is_some() || self.lir == 0 {
                break;
            }
            self.demote_bottom();
            let newest = self.queue.newest;
            node = (!self.lines.pinned(newest, pins)).then_some(newest);
        }
        let node = node?;
        self.queue.unlink(&mut self.links, node);
        if self.lines.meta(node) & IN_S == 0 {
            return Some(self.lines.evict(node));
        }
        let evicted = self.lines.evict_to_ghost(node);
        self.ghosts.push(&mut self.links, node);
        let live = self.lines.slots().live();
        self.trim_ghosts(live * GHOSTS_PER_SLOT);
        Some(evicted)
    }

    fn recall(&mut self, node: u32) {
        self.ghosts.unlink(&mut self.links, node);
        self.unlink_stack(node);
    }

    fn place(&mut self, node: u32, recalled: bool) {
        self.push_stack(node);
        if self.lir < self.lir_max {
            self.make_lir(node);
            // Below the first LIR line nothing stays in S.
            self.prune();
        } else if recalled {
            self.make_lir(node);
            self.demote_bottom();
        } else {
            self.queue.push(&mut self.links, node);
        }
    }

    fn place_used(&mut self, node: u32, uses: u8) {
        self.lines.set_meta(node, 0);
        self.push_stack(node);
        if uses > 0 && self.lir < self.lir_max {
            self.make_lir(node);
        } else {
            self.queue.push(&mut self.links, node);
        }
        self.prune();
    }

    /// The HIR lines that have left S.
    fn rest(&self) -> Vec<u32> {
        let node = |id: u32| (id != NONE).then_some(id);
        let queued = std::iter::successors(node(self.queue.oldest), |id| {
            node(self.links[*id as usize].newer)
        });
        queued
            .filter(|id| self.lines.meta(*id) & IN_S == 0)
            .collect()
    }

    fn uses(&self, node: u32) -> u8 {
        u8::from(self.is_lir(node))
    }

    fn unlink(&mut self, node: u32) {
        if self.is_lir(node) {
            self.lir -= 1;
            self.unlink_stack(node);
        } else {
            self.unlink_stack(node);
            let queue = match self.lines.slot(node) {
                Some(_) => &mut self.queue,
                None => &mut self.ghosts,
            };
            queue.unlink(&mut self.links, node);
        }
        self.lines.set_meta(node, 0);
    }

    fn removed(&mut self) {
        self.prune();
    }

    fn resized(&mut self) {
        let (live, total) = (self.lines.slots().live(), self.lines.slots().total());
        let link = LirsLink {
            older: NONE,
            newer: NONE,
        };
        let nodes = (total + Self::ghosts_max(total)) as usize;
        self.links.resize(nodes.max(self.links.len()), link);
        self.lir_max = live - (live / 100).max(1).min(live);
        while self.lir > self.lir_max {
            self.demote_bottom();
        }
        self.trim_ghosts(live * GHOSTS_PER_SLOT);
    }

    fn check(&self) {
        let bottom = self.lines.back(STACK);
        assert!(self.lir == 0 || bottom.is_some_and(|node| self.is_lir(node)));
        let in_stack: Vec<u32> = self.lines.iter(STACK).collect();
        let lir = in_stack.iter().filter(|node| self.is_lir(**node)).count();
        assert_eq!(lir, self.lir as usize);
        let ghosts = in_stack.iter().filter(|n| self.lines.slot(**n).is_none());
        assert_eq!(ghosts.count(), self.ghosts.len as usize);
        assert_eq!(self.lir + self.queue.len, self.lines.slots().used());
        let mut at = self.queue.oldest;
        for _ in 0..self.queue.len {
            assert!(!self.is_lir(at) && self.lines.slot(at).is_some());
            at = self.links[at as usize].newer;
        }
        assert_eq!(at, NONE);
    }
}
