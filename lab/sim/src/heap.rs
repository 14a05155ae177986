//! Events to come: a heap in order of time.
//!
//! Events of one instant come out in an order drawn by seed, because nothing
//! in the world promises an order among them.

use block::Nanos;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct HeapEntry<E> {
    at: Nanos,
    /// Random in the high half; the low half numbers the entries, so that the
    /// order is total.
    tie: u64,
    event: E,
}

/// The events to come.
pub(crate) struct EventHeap<E> {
    entries: BinaryHeap<HeapEntry<E>>,
    pushed: u32,
}

impl<E> EventHeap<E> {
    pub fn new() -> EventHeap<E> {
        EventHeap {
            entries: BinaryHeap::new(),
            pushed: 0,
        }
    }

    /// Adds `event` at `at`; `random` orders the events of one instant.
    #[inline]
    pub fn push(&mut self, at: Nanos, random: u64, event: E) {
        self.pushed = self.pushed.wrapping_add(1);
        let tie = (random & !0xffff_ffff) | u64::from(self.pushed);
        self.entries.push(HeapEntry { at, tie, event });
    }

    /// Time of the first event.
    #[inline]
    pub fn next_at(&self) -> Option<Nanos> {
        self.entries.peek().map(|e| e.at)
    }

    /// The first event, if due by `now`.
    #[inline]
    pub fn pop_due(&mut self, now: Nanos) -> Option<E> {
        if self.next_at()? > now {
            return None;
        }
        self.entries.pop().map(|e| e.event)
    }
}

impl<E> Ord for HeapEntry<E> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: `BinaryHeap` gives its greatest first.
        (other.at, other.tie).cmp(&(self.at, self.tie))
    }
}

impl<E> PartialOrd for HeapEntry<E> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for HeapEntry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for HeapEntry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_first_then_the_random_order() {
        let mut heap = EventHeap::new();
        for (at, random, event) in [(2, 0, 'c'), (1, 9 << 32, 'b'), (1, 3 << 32, 'a')] {
            heap.push(Nanos(at), random, event);
        }
        assert_eq!(heap.pop_due(Nanos(0)), None);
        assert_eq!(heap.pop_due(Nanos(1)), Some('a'));
        assert_eq!(heap.pop_due(Nanos(1)), Some('b'));
        assert_eq!(heap.pop_due(Nanos(1)), None);
        assert_eq!(heap.next_at(), Some(Nanos(2)));
    }
}
