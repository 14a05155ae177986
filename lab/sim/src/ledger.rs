//! The clock and the books that every part of the world writes to.

use crate::fault::{FaultClass, FaultTally, Landed};
use crate::rng::SimRng;
use crate::trace_hash::{TraceEvent, WorldTrace};
use block::{Nanos, TargetId};

pub(crate) struct BufferLedger {
    pub now: Nanos,
    pub trace: WorldTrace,
    pub tally: FaultTally,
    /// Randomness of the faults' effects.
    pub rng: SimRng,
}

impl BufferLedger {
    #[inline]
    pub fn record(&mut self, event: TraceEvent) {
        self.trace.record(self.now, event);
    }

    /// Notes a fault that struck.
    pub fn strike(&mut self, class: FaultClass, target: TargetId, place: u64) {
        self.record(TraceEvent::Fault {
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
