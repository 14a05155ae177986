//! A spatial sample of the keys, followed whether resident or not: it teaches the hazards, and runs
//! one miniature cache for each rule.
//!
//! Sampling keys by hash keeps every access to a sampled key. So a cache of `rate * lines` over the
//! sample misses like the pool would (Waldspurger, Saemundsson, Ahmad and Park, "Cache modeling and
//! optimization using miniature simulations", ATC 2017).
//!
//! Invariants:
//!     a followed key is in exactly one age queue, that of its age's bucket as
//!     of the last advance; queues are ordered by last access
//!     mini[e][entry.place[e]] = entry, for each rule e it is resident under
//!     the parts of a line in a miniature cache were touched since the key is followed

use super::class::{BUCKET_ENDS, BUCKETS, LineClass};
use super::expert::{EXPERTS, Expert, score};
use super::hazard::Hazards;
use super::line::PackedLine;
use super::random::UniformNumbers;
use super::scale::AgeScale;
use crate::{HashIndex, Index, LineKey, PolicyOp, PolicyRequest};

/// Lines of a miniature cache, unless the pool has fewer.
const MINI_LINES: u32 = 4096;
/// Keys followed for each line of a miniature cache.
const FOLLOWED_PER_LINE: u32 = 8;
/// Resident lines looked at for a victim.
pub(crate) const SAMPLES: u32 = 32;
/// Neighbours looked at together, as they share a cache line.
const GROUP: u32 = 4;
/// Resident keys passed over in each queue when a followed key is given up.
const TURNS: u32 = 8;
const NONE: u32 = u32::MAX;
/// Place of an entry that is not in a miniature cache.
const NOWHERE: u16 = u16::MAX;
const _: () = assert!(MINI_LINES < NOWHERE as u32);

#[derive(Clone, Copy, Debug)]
struct MonitorEntry {
    key: LineKey,
    line: PackedLine,
    bucket: u8,
    older: u32,
    newer: u32,
    place: [u16; EXPERTS],
}

/// A line of a miniature cache; its history again, to be near its neighbours.
#[derive(Clone, Copy, Debug)]
struct MonitorLine {
    entry: u32,
    line: PackedLine,
}

#[derive(Clone, Copy, Debug)]
struct MonitorQueue {
    oldest: u32,
    newest: u32,
}

/// The sample.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    /// A key is sampled if its hash is below this.
    threshold: u32,
    index: HashIndex,
    entries: Vec<MonitorEntry>,
    entries_max: u32,
    queues: [MonitorQueue; BUCKETS],
    minis: [Vec<MonitorLine>; EXPERTS],
    mini_lines: u32,
    /// Time at which the queues were last examined.
    advanced: u32,
    random: UniformNumbers,
}

impl Monitor {
    /// For a pool of `lines`.
    pub(crate) fn new(lines: u32) -> Monitor {
        let mini_lines = lines.clamp(1, MINI_LINES);
        let rate = f64::from(mini_lines) / f64::from(lines.max(1));
        let entries_max = mini_lines * FOLLOWED_PER_LINE + 64;
        Monitor {
            threshold: (rate * f64::from(u32::MAX)) as u32,
            index: HashIndex::new(0, entries_max),
            entries: Vec::with_capacity(entries_max as usize),
            entries_max,
            queues: [MonitorQueue {
                oldest: NONE,
                newest: NONE,
            }; BUCKETS],
            minis: [(); EXPERTS].map(|()| Vec::with_capacity(mini_lines as usize)),
            mini_lines,
            advanced: 0,
            random: UniformNumbers::new(1),
        }
    }

    /// Lines of a miniature cache.
    pub(crate) fn mini_lines(&self) -> u32 {
        self.mini_lines
    }

    /// True if a key of this hash is in the sample.
    #[inline]
    pub(crate) fn sampled(&self, hash: u32) -> bool {
        hash <= self.threshold
    }

    /// Follows one access to a sampled key, and returns the rules that missed it: a read also
    /// misses where the line is, but lacks a requested part.
    pub(crate) fn access(
        &mut self,
        key: LineKey,
        request: &PolicyRequest,
        hazards: &mut Hazards,
        scale: &AgeScale,
        now: u32,
    ) -> [bool; EXPERTS] {
        self.advance(hazards, now);
        let id = match self.index.get(key, |n| self.entries[n as usize].key) {
            Some(id) => {
                let entry = self.entries[id as usize];
                hazards.left(entry.line.class(), entry.bucket as usize, true);
                if request.op == PolicyOp::Read {
                    hazards.read(entry.line, request.parts);
                }
                self.unlink(id);
                self.entries[id as usize].line.touch(now, request, scale);
                id
            }
            None => {
                let class = LineClass::of(1, None, request, scale);
                let line = PackedLine::new(now, class, 1, request.parts);
                self.follow(key, line, hazards)
            }
        };
        self.push(id, 0);
        let mut missed = [false; EXPERTS];
        for expert in Expert::ALL {
            let e = expert as usize;
            let MonitorEntry { place, line, .. } = self.entries[id as usize];
            missed[e] = place[e] == NOWHERE;
            if missed[e] {
                self.admit(id, request, expert, hazards, scale);
            } else {
                let held = &mut self.minis[e][place[e] as usize].line;
                missed[e] = request.op == PolicyOp::Read && !held.held.cover(request.parts);
                *held = line.resident(*held, request.parts);
            }
        }
        missed
    }

    /// Moves the keys that grew older into the queues of their age.
    ///
    /// A bucket is looked at once in a sixteenth of its age, so that an access
    /// looks at two on average.
    fn advance(&mut self, hazards: &mut Hazards, now: u32) {
        let changed = now ^ std::mem::replace(&mut self.advanced, now);
        let due = (BUCKETS - 1).min(2 * (u32::BITS - changed.leading_zeros() + 4) as usize);
        if changed == 0 {
            return;
        }
        for (b, end) in BUCKET_ENDS.iter().enumerate().take(due) {
            while let Some(entry) = self.entries.get(self.queues[b].oldest as usize) {
                if now.wrapping_sub(entry.line.last) < *end {
                    break;
                }
                hazards.left(entry.line.class(), b, false);
                self.age_oldest(b);
            }
        }
    }

    /// Moves the oldest entry of a queue to the next; the two calls of `unlink` and
    /// `push` in half of their instructions.
    fn age_oldest(&mut self, b: usize) {
        let [from, to] = &mut self.queues[b..b + 2] else {
            unreachable!("the last bucket has no end");
        };
        let id = from.oldest;
        let older = std::mem::replace(&mut to.newest, id);
        let entry = &mut self.entries[id as usize];
        from.oldest = std::mem::replace(&mut entry.newer, NONE);
        entry.older = older;
        entry.bucket = b as u8 + 1;
        match self.entries.get_mut(from.oldest as usize) {
            Some(next) => next.older = NONE,
            None => from.newest = NONE,
        }
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = id,
            None => to.oldest = id,
        }
    }

    /// Returns an entry for a key that is not followed; if none is left, another key is given up.
    fn follow(&mut self, key: LineKey, line: PackedLine, hazards: &mut Hazards) -> u32 {
        let entry = MonitorEntry {
            key,
            line,
            bucket: 0,
            older: NONE,
            newer: NONE,
            place: [NOWHERE; EXPERTS],
        };
        let id = if (self.entries.len() as u32) < self.entries_max {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let id = self.stalest();
            let old = self.entries[id as usize];
            hazards.left(old.line.class(), old.bucket as usize, false);
            self.unlink(id);
            self.index.remove(old.key, id);
            self.entries[id as usize] = entry;
            id
        };
        self.index.insert(key, id);
        id
    }

    /// Returns the key to give up: the one unused for longest of those resident under no rule. A
    /// few of these are examined at each age. A rule may keep a line that is never used.
    fn stalest(&mut self) -> u32 {
        for b in (0..BUCKETS).rev() {
            for _ in 0..TURNS {
                let id = self.queues[b].oldest;
                if id == NONE {
                    break;
                }
                if self.entries[id as usize].place == [NOWHERE; EXPERTS] {
                    return id;
                }
                self.unlink(id);
                self.push(id, b);
            }
        }
        let mut oldest = self.queues.iter().rev().map(|queue| queue.oldest);
        let id = oldest.find(|id| *id != NONE);
        let id = id.expect("every entry is in a queue");
        for e in 0..EXPERTS {
            self.expel(id, e);
        }
        id
    }

    /// Takes an entry out of a miniature cache, if present.
    fn expel(&mut self, id: u32, e: usize) {
        let place = std::mem::replace(&mut self.entries[id as usize].place[e], NOWHERE);
        if place != NOWHERE {
            self.minis[e].swap_remove(place as usize);
            if let Some(moved) = self.minis[e].get(place as usize) {
                self.entries[moved.entry as usize].place[e] = place;
            }
        }
    }

    fn admit(
        &mut self,
        id: u32,
        request: &PolicyRequest,
        expert: Expert,
        hazards: &Hazards,
        scale: &AgeScale,
    ) {
        let e = expert as usize;
        let line = self.entries[id as usize].line.entering(request.parts);
        let now = line.last;
        let resident = MonitorLine { entry: id, line };
        if self.minis[e].len() < self.mini_lines as usize {
            self.entries[id as usize].place[e] = self.minis[e].len() as u16;
            self.minis[e].push(resident);
            return;
        }
        let mut worst = (f32::INFINITY, 0, 0);
        for _ in 0..SAMPLES / GROUP {
            let first = self
                .random
                .below(self.mini_lines.saturating_sub(GROUP - 1).max(1))
                as usize;
            let group = self.minis[e][first..].iter().take(GROUP as usize);
            for (place, MonitorLine { line, .. }) in (first..).zip(group) {
                let found = score(expert, hazards, scale, *line, now);
                let age = now.wrapping_sub(line.last);
                if found < worst.0 || (found == worst.0 && age > worst.1) {
                    worst = (found, age, place);
                }
            }
        }
        if score(expert, hazards, scale, line, now) < worst.0 {
            return;
        }
        let place = worst.2;
        let victim = std::mem::replace(&mut self.minis[e][place], resident);
        self.entries[victim.entry as usize].place[e] = NOWHERE;
        self.entries[id as usize].place[e] = place as u16;
    }

    fn push(&mut self, id: u32, b: usize) {
        let older = std::mem::replace(&mut self.queues[b].newest, id);
        let entry = &mut self.entries[id as usize];
        entry.bucket = b as u8;
        entry.older = older;
        entry.newer = NONE;
        match older {
            NONE => self.queues[b].oldest = id,
            older => self.entries[older as usize].newer = id,
        }
    }

    fn unlink(&mut self, id: u32) {
        let MonitorEntry {
            bucket,
            older,
            newer,
            ..
        } = self.entries[id as usize];
        let queue = &mut self.queues[bucket as usize];
        match older {
            NONE => queue.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => queue.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for (e, mini) in self.minis.iter().enumerate() {
            assert!(mini.len() <= self.mini_lines as usize);
            for (place, resident) in mini.iter().enumerate() {
                let entry = &self.entries[resident.entry as usize];
                assert_eq!(usize::from(entry.place[e]), place);
                let (followed, held) = (entry.line, resident.line);
                assert_eq!(
                    (followed.last, followed.class(), followed.count()),
                    (held.last, held.class(), held.count())
                );
                assert!(followed.held.cover(held.held));
            }
        }
        let mut followed = 0;
        for b in 0..BUCKETS {
            let mut at = self.queues[b].oldest;
            while at != NONE {
                assert_eq!(self.entries[at as usize].bucket as usize, b);
                followed += 1;
                at = self.entries[at as usize].newer;
            }
        }
        assert_eq!(followed, self.entries.len());
    }
}
