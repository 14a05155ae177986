//! Pending events of a model, in order of time, and of entry at the same time.

use block::Nanos;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Pending events, each with its time.
#[derive(Debug)]
pub(super) struct Agenda<T> {
    heap: BinaryHeap<Reverse<AgendaEntry<T>>>,
    entered: u64,
}

#[derive(Debug)]
struct AgendaEntry<T> {
    at: Nanos,
    order: u64,
    what: T,
}

impl<T> Agenda<T> {
    pub fn new() -> Agenda<T> {
        Agenda {
            heap: BinaryHeap::new(),
            entered: 0,
        }
    }

    pub fn enter(&mut self, at: Nanos, what: T) {
        let order = self.entered;
        self.entered += 1;
        self.heap.push(Reverse(AgendaEntry { at, order, what }));
    }

    /// Time of the next event.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes out the next event if due at `now`.
    pub fn take_due(&mut self, now: Nanos) -> Option<(Nanos, T)> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> AgendaEntry<T> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.order)
    }
}

impl<T> PartialEq for AgendaEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for AgendaEntry<T> {}

impl<T> PartialOrd for AgendaEntry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for AgendaEntry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A resource that serves one at a time, in order of call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SerialResource {
    free_at: Nanos,
}

impl SerialResource {
    /// Serves for `span` from `now` on, or from the end of earlier work; returns the end.
    pub fn serve(&mut self, now: Nanos, span: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now) + span;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_first_for_one_instant_comes_first() {
        let mut agenda = Agenda::new();
        agenda.enter(Nanos(5), 'b');
        agenda.enter(Nanos(9), 'd');
        agenda.enter(Nanos(5), 'c');
        agenda.enter(Nanos(1), 'a');
        let due: String = std::iter::from_fn(|| agenda.take_due(Nanos(5)))
            .map(|(_, what)| what)
            .collect();
        assert_eq!(due, "abc");
        assert_eq!(agenda.next_at(), Some(Nanos(9)));
    }

    #[test]
    fn a_server_serves_one_at_a_time() {
        let mut server = SerialResource::default();
        assert_eq!(server.serve(Nanos(10), Nanos(5)), Nanos(15));
        assert_eq!(server.serve(Nanos(12), Nanos(5)), Nanos(20));
        assert_eq!(server.serve(Nanos(30), Nanos(5)), Nanos(35));
    }
}
