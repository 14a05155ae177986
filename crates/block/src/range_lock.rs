//! Keeps overlapping requests apart: readers share a range, a writer has it
//! alone.
//!
//! Invariants:
//!     two held ranges overlap ⟹ both are shared
//!     a request waits exactly while it conflicts with a held range or with an
//!     earlier request that waits ⟹ order of arrival, no starvation
//!
//! A scan over the held ranges beats a tree at the few hundred requests that a
//! frontend lets in; readers among readers need not even that.

use crate::units::Extent;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The way a range is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// With other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// The lock over one device's sectors.
#[derive(Default)]
pub struct RangeLock {
    state: RefCell<LockState>,
}

#[derive(Default)]
struct LockState {
    /// A held range keeps its place until its release.
    held: Vec<Option<LockEntry>>,
    vacant: Vec<usize>,
    /// The number of held ranges that are exclusive.
    exclusive: usize,
    waiting: VecDeque<(LockEntry, Waker)>,
    next_id: u64,
}

#[derive(Clone, Copy)]
struct LockEntry {
    id: u64,
    extent: Extent,
    access: Access,
}

impl LockEntry {
    fn conflicts(&self, other: &LockEntry) -> bool {
        (self.access == Access::Exclusive || other.access == Access::Exclusive)
            && self.extent.overlaps(other.extent)
    }
}

impl RangeLock {
    /// A lock without holders.
    pub fn new() -> RangeLock {
        RangeLock::default()
    }

    /// Waits until `extent` can be held; released when the guard is dropped.
    #[inline]
    pub fn lock(&self, extent: Extent, access: Access) -> Acquire<'_> {
        Acquire {
            lock: self,
            extent,
            access,
            id: None,
        }
    }

    /// The number of ranges that are held and waited for.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.held.len() - state.vacant.len(), state.waiting.len())
    }

    #[inline]
    fn release(&self, place: usize) {
        let mut state = self.state.borrow_mut();
        let entry = state.held[place].take().expect("released once");
        state.exclusive -= usize::from(entry.access == Access::Exclusive);
        state.vacant.push(place);
        if !state.waiting.is_empty() {
            state.grant();
        }
    }

    /// Ends an abandoned wait, perhaps after its grant.
    #[cold]
    fn give_up(&self, id: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(i) = state.waiting.iter().position(|(e, _)| e.id == id) {
            state.waiting.remove(i);
            state.grant();
        } else {
            let place = state.place_of(id);
            drop(state);
            self.release(place);
        }
    }
}

impl LockState {
    /// True if `entry` conflicts with a held range or with one of the first
    /// `ahead` waiters.
    #[inline]
    fn is_blocked(&self, entry: &LockEntry, ahead: usize) -> bool {
        let alone = entry.access == Access::Shared && self.exclusive == 0;
        !alone && self.held.iter().flatten().any(|e| e.conflicts(entry))
            || self
                .waiting
                .iter()
                .take(ahead)
                .any(|(e, _)| e.conflicts(entry))
    }

    #[inline]
    fn hold(&mut self, entry: LockEntry) -> usize {
        self.exclusive += usize::from(entry.access == Access::Exclusive);
        match self.vacant.pop() {
            Some(place) => {
                self.held[place] = Some(entry);
                place
            }
            None => {
                self.held.push(Some(entry));
                self.held.len() - 1
            }
        }
    }

    fn place_of(&self, id: u64) -> usize {
        let mut held = self.held.iter();
        let place = held.position(|e| e.is_some_and(|e| e.id == id));
        place.expect("a range that does not wait is held")
    }

    /// Moves every waiter that conflicts with nothing before it to the holders.
    fn grant(&mut self) {
        let mut i = 0;
        while i < self.waiting.len() {
            if self.is_blocked(&self.waiting[i].0, i) {
                i += 1;
                continue;
            }
            let (entry, waker) = self.waiting.remove(i).expect("in range");
            self.hold(entry);
            waker.wake();
        }
    }
}

/// A wait for a range; see [`RangeLock::lock`].
pub struct Acquire<'a> {
    lock: &'a RangeLock,
    extent: Extent,
    access: Access,
    id: Option<u64>,
}

impl<'a> Future for Acquire<'a> {
    type Output = Guard<'a>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Guard<'a>> {
        let lock = self.lock;
        let mut state = lock.state.borrow_mut();
        let Some(id) = self.id else {
            let id = state.next_id;
            state.next_id += 1;
            let entry = LockEntry {
                id,
                extent: self.extent,
                access: self.access,
            };
            if !state.is_blocked(&entry, state.waiting.len()) {
                let place = state.hold(entry);
                return Poll::Ready(Guard { lock, place });
            }
            state.waiting.push_back((entry, cx.waker().clone()));
            self.id = Some(id);
            return Poll::Pending;
        };
        match state.waiting.iter_mut().find(|(e, _)| e.id == id) {
            Some((_, waker)) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            None => {
                self.id = None;
                let place = state.place_of(id);
                Poll::Ready(Guard { lock, place })
            }
        }
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.lock.give_up(id);
        }
    }
}

/// A held range; dropping it releases the range.
#[must_use = "the range is released when the guard is dropped"]
pub struct Guard<'a> {
    lock: &'a RangeLock,
    place: usize,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Lba, Sectors};

    fn e(start: u64, len: u64) -> Extent {
        Extent::new(Lba(start), Sectors(len))
    }

    fn poll<'a>(f: &mut Pin<Box<Acquire<'a>>>) -> Option<Guard<'a>> {
        match f.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn readers_share_and_writers_wait_their_turn() {
        let lock = RangeLock::new();
        let take = |x, a| Box::pin(lock.lock(x, a));
        let r1 = poll(&mut take(e(0, 8), Access::Shared)).unwrap();
        let r2 = poll(&mut take(e(4, 8), Access::Shared)).unwrap();
        let mut w = take(e(7, 1), Access::Exclusive);
        assert!(poll(&mut w).is_none());
        let mut r3 = take(e(0, 8), Access::Shared);
        assert!(
            poll(&mut r3).is_none(),
            "a reader must not overtake a waiting writer"
        );
        assert!(poll(&mut take(e(100, 8), Access::Exclusive)).is_some());
        drop(r1);
        assert!(poll(&mut w).is_none());
        drop(r2);
        let w = poll(&mut w).expect("readers are gone");
        assert!(poll(&mut r3).is_none());
        drop(w);
        assert!(poll(&mut r3).is_some());
        assert_eq!(lock.load().1, 0);
    }

    #[test]
    fn a_waiter_that_gives_up_frees_those_behind_it() {
        let lock = RangeLock::new();
        let r = poll(&mut Box::pin(lock.lock(e(0, 8), Access::Shared))).unwrap();
        let mut w = Box::pin(lock.lock(e(0, 8), Access::Exclusive));
        assert!(poll(&mut w).is_none());
        let mut r2 = Box::pin(lock.lock(e(0, 8), Access::Shared));
        assert!(poll(&mut r2).is_none());
        drop(w);
        assert!(poll(&mut r2).is_some());
        drop(r);
        drop(r2);
        assert_eq!(lock.load(), (0, 0));
    }

    /// The rule itself: a request holds its range unless an earlier one, not ended yet, conflicts.
    #[test]
    fn whatever_comes_and_goes_the_rule_holds() {
        type Request<'a> = (LockEntry, Option<Pin<Box<Acquire<'a>>>>, Option<Guard<'a>>);
        let lock = RangeLock::new();
        let mut live: Vec<Request> = Vec::new();
        let (mut x, mut granted, mut refused) = (5u64, 0, 0);
        for id in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut random = x >> 20;
            let mut pick = |n: u64| {
                let picked = random % n;
                random /= n;
                picked
            };
            if live.len() < 12 && pick(2) == 0 {
                let extent = e(pick(20), 1 + pick(6));
                let access = [Access::Shared, Access::Shared, Access::Exclusive][pick(3) as usize];
                let entry = LockEntry { id, extent, access };
                let mut wait = Box::pin(lock.lock(extent, access));
                let guard = poll(&mut wait);
                live.push((entry, guard.is_none().then_some(wait), guard));
            } else if !live.is_empty() {
                // Ended, given up, or given up just after the grant.
                live.remove(pick(live.len() as u64) as usize);
            }
            for i in 0..live.len() {
                let (before, rest) = live.split_at_mut(i);
                let (entry, wait, guard) = &mut rest[0];
                if let Some(waiting) = wait
                    && pick(2) == 0
                {
                    *guard = poll(waiting);
                    let free = !before.iter().any(|(other, ..)| other.conflicts(entry));
                    assert_eq!(guard.is_some(), free, "request {}", entry.id);
                    granted += u32::from(free);
                    refused += u32::from(!free);
                    if free {
                        *wait = None;
                    }
                } else if guard.is_some() {
                    assert!(!before.iter().any(|(other, ..)| other.conflicts(entry)));
                }
            }
        }
        assert!(granted > 500 && refused > 500, "{granted} and {refused}");
        live.clear();
        assert_eq!(lock.load(), (0, 0));
    }
}
