//! The task that notices operations on the pool that take too long, and passes
//! the budget and the policy the time.
//!
//! A timer for each hit would cost more than the hit's look-up. Instead hits in
//! flight are looked at once a period. The task sleeps for good while nothing
//! happens, so an idle cache sets no timer.

mod watch;

pub(crate) use watch::watch;

use std::cell::Cell;
use std::task::Waker;

/// Ticks of the watchdog after which an operation is late. The first may come
/// right after the start, so at least four periods have passed at the fifth.
pub(crate) const TICKS_MAX: u32 = 4;
/// The watchdog's period as a part of the limit for hits.
pub(crate) const PERIODS_PER_LIMIT: u64 = TICKS_MAX as u64;

#[derive(Default)]
pub(crate) struct Watchdog {
    /// True if an operation has begun or ended since the last tick.
    active: Cell<bool>,
    asleep: Cell<Option<Waker>>,
}

impl Watchdog {
    /// Called for every request.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.active.replace(true) {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.asleep.take() {
            waker.wake();
        }
    }
}
