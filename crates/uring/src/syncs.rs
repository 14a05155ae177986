//! Operations of one disk that make writes durable: flushes, and writes that force
//! unit access.
//!
//! The kernel reports lost writes once for each open file: of several such operations
//! in flight one fails, and the others succeed. So a success is held back until every
//! operation in flight at that time has ended, and counts only if the disk is in
//! service then.
//!
//! Invariant: an operation succeeds ⟹ none has failed that was in flight when the kernel
//! answered it.
//!
//! Not here: operations of other shards on the same disk.

/// The disk's operations that make writes durable, by their slots.
pub(crate) struct Syncs {
    begun: u64,
    in_flight: Vec<(usize, u64)>,
    /// Held successes by slot, each with the number of operations begun by then.
    held: Vec<(usize, u64)>,
}

impl Syncs {
    /// None yet, and room for `room` before memory is asked for.
    pub(crate) fn new(room: usize) -> Syncs {
        Syncs {
            begun: 0,
            in_flight: Vec::with_capacity(room),
            held: Vec::with_capacity(room),
        }
    }

    pub(crate) fn begin(&mut self, slot: usize) {
        self.in_flight.push((slot, self.begun));
        self.begun += 1;
    }

    /// The kernel has answered.
    pub(crate) fn end(&mut self, slot: usize) {
        self.in_flight.retain(|(other, _)| *other != slot);
    }

    /// Holds a success back if others are in flight; true if held.
    pub(crate) fn hold(&mut self, slot: usize) -> bool {
        let holds = !self.in_flight.is_empty();
        if holds {
            self.held.push((slot, self.begun));
        }
        holds
    }

    /// One that has been held back long enough.
    pub(crate) fn release(&mut self) -> Option<usize> {
        let oldest = self.in_flight.iter().map(|(_, number)| *number).min();
        let ready = |(_, begun): &(usize, u64)| oldest.is_none_or(|oldest| oldest >= *begun);
        let at = self.held.iter().position(ready)?;
        Some(self.held.remove(at).0)
    }
}
