//! The clock and the books that every part of the world writes to.

use crate::fault::{Class, Landed, Tally};
use crate::rng::Rng;
use crate::trace_hash::{Event, Trace};
use block::{Nanos, TargetId};

pub(crate) struct Ledger {
    pub now: Nanos,
    pub trace: Trace,
    pub tally: Tally,
    /// Randomness of the faults' effects.
    pub rng: Rng,
}

impl Ledger {
    #[inline]
    pub fn record(&mut self, event: Event) {
        self.trace.record(self.now, event);
    }

    /// Notes a fault that struck.
    pub fn strike(&mut self, class: Class, target: TargetId, place: u64) {
        self.record(Event::Fault {
            class,
            target,
            place,
        });
        let at = self.now;
        self.tally.add(Landed {
            at,
            class,
            target,
            place,
        });
    }
}
