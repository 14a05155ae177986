//! Keeps overlapping requests apart: readers share a range, a writer has it
//! alone.
//!
//! Invariants:
//!     two held ranges overlap ⟹ both are shared
//!     a request waits exactly while it conflicts with a held range or with an
//!     earlier request that waits ⟹ order of arrival, no starvation
//!
//! A scan over the held ranges beats a tree at the few hundred requests that a
//! frontend lets in.

use crate::units::Extent;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// How a range is held.
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
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    held: Vec<Entry>,
    waiting: VecDeque<(Entry, Option<Waker>)>,
    next_id: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    id: u64,
    extent: Extent,
    access: Access,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        (self.access == Access::Exclusive || other.access == Access::Exclusive)
            && self.extent.overlaps(other.extent)
    }
}

impl RangeLock {
    /// A lock that nobody holds.
    pub fn new() -> RangeLock {
        RangeLock::default()
    }

    /// Waits until `extent` can be held; released when the guard is dropped.
    pub fn lock(&self, extent: Extent, access: Access) -> Acquire<'_> {
        Acquire {
            lock: self,
            extent,
            access,
            id: None,
        }
    }

    /// How many ranges are held and waited for.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.held.len(), state.waiting.len())
    }

    fn release(&self, id: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(i) = state.held.iter().position(|e| e.id == id) {
            state.held.swap_remove(i);
        } else if let Some(i) = state.waiting.iter().position(|(e, _)| e.id == id) {
            state.waiting.remove(i);
        }
        state.grant();
    }
}

impl State {
    /// Moves every waiter that conflicts with nothing before it to the holders.
    fn grant(&mut self) {
        let mut i = 0;
        while i < self.waiting.len() {
            let entry = self.waiting[i].0;
            let blocked = self.held.iter().any(|e| e.conflicts(&entry))
                || self
                    .waiting
                    .iter()
                    .take(i)
                    .any(|(e, _)| e.conflicts(&entry));
            if blocked {
                i += 1;
                continue;
            }
            let (entry, waker) = self.waiting.remove(i).expect("in range");
            self.held.push(entry);
            if let Some(waker) = waker {
                waker.wake();
            }
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

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Guard<'a>> {
        let lock = self.lock;
        let mut state = lock.state.borrow_mut();
        let id = match self.id {
            Some(id) => id,
            None => {
                let id = state.next_id;
                state.next_id += 1;
                let entry = Entry {
                    id,
                    extent: self.extent,
                    access: self.access,
                };
                let blocked = state.held.iter().any(|e| e.conflicts(&entry))
                    || state.waiting.iter().any(|(e, _)| e.conflicts(&entry));
                if !blocked {
                    state.held.push(entry);
                    return Poll::Ready(Guard { lock, id });
                }
                state.waiting.push_back((entry, None));
                self.id = Some(id);
                id
            }
        };
        match state.waiting.iter_mut().find(|(e, _)| e.id == id) {
            Some((_, waker)) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => {
                self.id = None;
                Poll::Ready(Guard { lock, id })
            }
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.lock.release(id);
        }
    }
}

/// A held range; dropping it releases the range.
#[must_use = "the range is released when the guard is dropped"]
pub struct Guard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.lock.release(self.id);
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
}
