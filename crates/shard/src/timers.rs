//! Timers of one shard: a heap by deadline, ties in order of setting.

use block::{Nanos, TimerKey};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::task::Waker;

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
    wakers: HashMap<u64, Waker>,
    next: u64,
    /// The cached result of [`Timers::next`], which is called every turn.
    upcoming: Option<Nanos>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Nanos, waker: Waker) -> TimerKey {
        let key = self.next;
        self.next += 1;
        self.upcoming = self.upcoming.map(|upcoming| upcoming.min(at));
        self.wakers.insert(key, waker);
        self.heap.push(Reverse((at, key)));
        TimerKey(key)
    }

    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.wakers.remove(&key.0);
        self.upcoming = None;
        // Cancelled entries are skipped when they come up; a heap that is mostly cancelled is
        // rebuilt so that timeouts cost no memory.
        if self.heap.len() > 64 && self.heap.len() > 4 * self.wakers.len() {
            let wakers = &self.wakers;
            self.heap
                .retain(|Reverse((_, key))| wakers.contains_key(key));
        }
    }

    /// Returns the next deadline; `Nanos::MAX` if none.
    pub(crate) fn next(&mut self) -> Nanos {
        if let Some(upcoming) = self.upcoming {
            return upcoming;
        }
        let upcoming = self.find_next();
        self.upcoming = Some(upcoming);
        upcoming
    }

    fn find_next(&mut self) -> Nanos {
        while let Some(&Reverse((at, key))) = self.heap.peek() {
            if self.wakers.contains_key(&key) {
                return at;
            }
            self.heap.pop();
        }
        Nanos::MAX
    }

    /// Takes the waker of one timer that is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Waker> {
        if self.next() > now {
            return None;
        }
        self.upcoming = None;
        while let Some(&Reverse((at, key))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if let Some(waker) = self.wakers.remove(&key) {
                return Some(waker);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_timers_neither_fire_nor_pile_up() {
        let mut timers = Timers::default();
        let keep = timers.set(Nanos(5_000), Waker::noop().clone());
        for i in 0..1_000 {
            let key = timers.set(Nanos(i), Waker::noop().clone());
            timers.cancel(key);
        }
        assert!(timers.heap.len() <= 65);
        assert_eq!(timers.next(), Nanos(5_000));
        assert!(timers.pop_due(Nanos(4_999)).is_none());
        assert!(timers.pop_due(Nanos(5_000)).is_some());
        timers.cancel(keep);
        assert_eq!(timers.next(), Nanos::MAX);
        let later = timers.set(Nanos(9_000), Waker::noop().clone());
        assert_eq!(timers.next(), Nanos(9_000));
        timers.set(Nanos(8_000), Waker::noop().clone());
        assert_eq!(timers.next(), Nanos(8_000));
        assert!(timers.pop_due(Nanos(8_500)).is_some());
        assert_eq!(timers.next(), Nanos(9_000));
        timers.cancel(later);
        assert_eq!(timers.next(), Nanos::MAX);
    }
}
