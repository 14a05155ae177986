//! The durability of a volume's writes on its origin, and the losses among them.
//!
//! Invariants:
//!     a flush of the origin failed, in any call ⟹ the next flush of the
//!         volume's user fails      (`FlushErrors`)
//!     it failed while a write was in flight ⟹ so does the next after the write has ended,
//!         for the origin may have had the write before the loss
//!     a flush of the origin failed ⟹ no line is valid that a write may have
//!         been in since the last flush that succeeded, nor do earlier reads
//!         or writes make one valid
//!
//! The regions written since then are those that the pool's devices have marked: a bit is cleared
//! only after a flush that succeeded. A pool that remembers nothing has no bitmap, and drops every
//! line of the volume.

mod flush;

use crate::flights::OriginOpsInFlight;
use block::{BoxDevice, FlushErrors, SeenFailures};
use std::cell::Cell;
use std::rc::Rc;

/// Writes of a volume's origin that ended, and how many of them are durable.
/// Writes before the volume count as one that is not.
pub(crate) struct OriginDurability {
    origin: BoxDevice,
    flights: Rc<OriginOpsInFlight>,
    /// The part of the keys of the volume's lines.
    id: Cell<u32>,
    ended: Cell<u64>,
    flushed: Cell<u64>,
    errors: FlushErrors,
    /// Failures seen by the volume's user, and by the caller that quiesces the volume.
    user: Cell<SeenFailures>,
    back_end: Cell<SeenFailures>,
}

impl OriginDurability {
    pub(crate) fn new(
        id: u32,
        origin: BoxDevice,
        flights: Rc<OriginOpsInFlight>,
    ) -> OriginDurability {
        OriginDurability {
            origin,
            flights,
            id: Cell::new(id),
            ended: Cell::new(1),
            flushed: Cell::new(0),
            errors: FlushErrors::default(),
            user: Cell::default(),
            back_end: Cell::default(),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.id.get()
    }

    pub(crate) fn set_id(&self, id: u32) {
        self.id.set(id);
    }

    /// The losses that are known when a write begins, for [`OriginDurability::end`].
    pub(crate) fn begin(&self) -> SeenFailures {
        self.errors.sample()
    }

    /// A write has ended that began when `known` was.
    pub(crate) fn end(&self, known: SeenFailures) {
        self.ended.set(self.ended.get() + 1);
        if known != self.errors.sample() {
            self.errors.report_again(&self.user);
        }
    }

    /// True if the origin was flushed since the volume was added.
    pub(crate) fn began_durable(&self) -> bool {
        self.flushed.get() > 0
    }

    pub(crate) fn are_durable(&self) -> bool {
        self.flushed.get() == self.ended.get()
    }
}
