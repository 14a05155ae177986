//! Timers of one shard: a heap by deadline, ties in order of setting.
//!
//! An idle timer is for looks at state that only other work of the shard changes. It waits for
//! its latest time, or for other work: after that it is due at its own time.
//!
//! Invariant: other work is done after an idle timer was set ⟹ the timer fires at its own time.

use block::{Nanos, TimerKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::task::Waker;

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u64)>>,
    wakers: HashMap<u64, SetTimer>,
    /// The times of idle timers that wait for other work.
    waiting: BTreeMap<u64, Nanos>,
    next: u64,
    /// The cached result of [`Timers::next`], which is called every turn.
    upcoming: Option<Nanos>,
}

struct SetTimer {
    waker: Waker,
    is_idle: bool,
}

/// A timer that has fired.
pub(crate) struct FiredTimer {
    pub(crate) waker: Waker,
    /// True for an idle timer, which is no work by itself.
    pub(crate) is_idle: bool,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Nanos, waker: Waker) -> TimerKey {
        let is_idle = false;
        TimerKey(self.add(at, SetTimer { waker, is_idle }))
    }

    /// Sets an idle timer for `at`, or for `latest` if no other work is done before.
    pub(crate) fn set_idle(&mut self, at: Nanos, latest: Nanos, waker: Waker) -> TimerKey {
        let is_idle = true;
        let key = self.add(latest, SetTimer { waker, is_idle });
        if latest > at {
            self.waiting.insert(key, at);
        }
        TimerKey(key)
    }

    fn add(&mut self, at: Nanos, timer: SetTimer) -> u64 {
        let key = self.next;
        self.next += 1;
        self.upcoming = self.upcoming.map(|upcoming| upcoming.min(at));
        self.wakers.insert(key, timer);
        self.heap.push(Reverse((at, key)));
        key
    }

    /// Makes the idle timers that were set for `until` or earlier due at their own times.
    pub(crate) fn hasten(&mut self, until: Nanos) {
        if self.waiting.is_empty() {
            return;
        }
        let heap = &mut self.heap;
        // The other entry of the timer is skipped when it comes up.
        self.waiting.retain(|key, at| {
            let waits = *at > until;
            if !waits {
                heap.push(Reverse((*at, *key)));
            }
            waits
        });
        self.upcoming = None;
    }

    pub(crate) fn cancel(&mut self, key: TimerKey) {
        self.wakers.remove(&key.0);
        self.waiting.remove(&key.0);
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

    /// Takes one timer that is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<FiredTimer> {
        if self.next() > now {
            return None;
        }
        self.upcoming = None;
        while let Some(&Reverse((at, key))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            if let Some(SetTimer { waker, is_idle }) = self.wakers.remove(&key) {
                self.waiting.remove(&key);
                // One wake of an idle shard is for all idle timers that are due.
                self.hasten(if is_idle { now } else { Nanos::MAX });
                return Some(FiredTimer { waker, is_idle });
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

    fn fired(timers: &mut Timers, now: u64) -> usize {
        std::iter::from_fn(|| timers.pop_due(Nanos(now))).count()
    }

    #[test]
    fn idle_timers_wait_together_for_other_work_or_for_the_first_latest_time() {
        let mut timers = Timers::default();
        let idle = |timers: &mut Timers, at, latest| {
            timers.set_idle(Nanos(at), Nanos(latest), Waker::noop().clone())
        };
        idle(&mut timers, 1_000, 10_000);
        idle(&mut timers, 2_000, 12_000);
        idle(&mut timers, 10_500, 20_000);
        assert_eq!(timers.next(), Nanos(10_000));
        assert_eq!(fired(&mut timers, 9_999), 0);
        assert_eq!(fired(&mut timers, 10_000), 2);
        assert_eq!(timers.next(), Nanos(20_000));
        // Other work makes the rest due at its own time.
        timers.hasten(Nanos::MAX);
        assert_eq!(timers.next(), Nanos(10_500));
        assert_eq!(fired(&mut timers, 10_500), 1);
        assert_eq!(timers.next(), Nanos::MAX);
        // Another timer is other work.
        idle(&mut timers, 11_000, 30_000);
        let cancelled = idle(&mut timers, 11_000, 30_000);
        timers.set(Nanos(15_000), Waker::noop().clone());
        timers.cancel(cancelled);
        assert_eq!(timers.next(), Nanos(15_000));
        assert_eq!(fired(&mut timers, 15_000), 2);
        assert_eq!(timers.next(), Nanos::MAX);
    }
}
