//! The limit of bytes in flight to the pool.
//!
//! Invariants:
//!     bytes of live permits = `in_flight` <= `in_flight_max`
//!     `in_flight` <= `window`, or one permit alone is out, or was before the window shrank
//!     bytes granted at a rate in any span t <= rate * (t + 1 s)
//!
//! A device that cannot keep up makes writes late that wait in its queue, and hits behind those
//! writes. The window is halved then, at most once in the time limit of a write. The window grows
//! by a part of `in_flight_max` a tick once it keeps promotions out again: additive increase and
//! multiplicative decrease, as in TCP (RFC 5681).
//!
//! The allowance grows by `refill`, called at every tick of the watchdog, so that no request reads
//! the clock.

use crate::counters::Counter;
use crate::watchdog::TICKS_MAX;
use block::Nanos;
use std::cell::Cell;
use std::rc::Rc;

/// The window grows by this part of the most in flight: by a default line in the time limit of a
/// write, before which the effect is unknown.
const GROWTH_PARTS: u64 = 512;
/// With this part of the most in flight, no sound device makes a hit late.
const FLOOR_PARTS: u64 = 64;

#[derive(Debug)]
pub(crate) struct PromotionBudget {
    in_flight: Cell<u64>,
    in_flight_max: u64,
    /// The bytes that may be in flight now, as far as the devices keep up.
    window: Cell<u64>,
    /// The window has kept a promotion out since the last tick.
    narrow: Cell<bool>,
    /// Ticks until the window may be halved again.
    settling: Cell<u32>,
    /// Bytes a second.
    rate: Option<u64>,
    /// Bytes that may be promoted now; unused without a rate.
    allowance: Cell<u64>,
    refilled: Cell<Nanos>,
}

impl PromotionBudget {
    pub(crate) fn new(in_flight_max: u64, rate: Option<u64>, now: Nanos) -> Rc<PromotionBudget> {
        Rc::new(PromotionBudget {
            in_flight: Cell::new(0),
            in_flight_max,
            window: Cell::new(in_flight_max),
            narrow: Cell::new(false),
            settling: Cell::new(0),
            rate,
            allowance: Cell::new(rate.unwrap_or(0)),
            refilled: Cell::new(now),
        })
    }

    /// Returns the reason why `bytes` could not be promoted now, if there is one.
    #[inline]
    pub(crate) fn room(&self, bytes: u64) -> Result<(), Counter> {
        if !self.fits(bytes) {
            Err(Counter::RejectedInFlight)
        } else if self.rate.is_some() && self.allowance.get() < bytes {
            Err(Counter::RejectedRate)
        } else {
            Ok(())
        }
    }

    /// Leave to promote `bytes`.
    pub(crate) fn promote(self: &Rc<Self>, bytes: u64) -> Result<PromotionPermit, Counter> {
        self.room(bytes)?;
        self.allowance
            .set(self.allowance.get().saturating_sub(bytes));
        Ok(self.grant(bytes))
    }

    /// Permits `bytes` of a client's write to a resident line: they replace bytes in the pool, so
    /// they do not count against the rate.
    pub(crate) fn update(self: &Rc<Self>, bytes: u64) -> Result<PromotionPermit, Counter> {
        if !self.fits(bytes) {
            return Err(Counter::RejectedInFlight);
        }
        Ok(self.grant(bytes))
    }

    #[inline]
    fn fits(&self, bytes: u64) -> bool {
        let in_flight = self.in_flight.get();
        let all = in_flight + bytes;
        if all <= self.window.get() || in_flight == 0 && all <= self.in_flight_max {
            return true;
        }
        self.narrow.set(true);
        false
    }

    /// True if fewer bytes in flight may help a device with hits that wait behind writes.
    pub(crate) fn may_shrink(&self) -> bool {
        let window = self.window.get();
        window > self.in_flight_max / FLOOR_PARTS || self.in_flight.get() > window
    }

    /// Ends a period, in which operations that wait for others became `late` or not.
    pub(crate) fn adapt(&self, late: bool) {
        let narrow = self.narrow.take();
        let settling = self.settling.get();
        self.settling.set(settling.saturating_sub(1));
        let window = self.window.get();
        if late && settling == 0 {
            self.window.set((window / 2).max(1));
            self.settling.set(TICKS_MAX);
        } else if !late && narrow {
            let grown = window + self.in_flight_max / GROWTH_PARTS;
            self.window.set(grown.min(self.in_flight_max));
        }
    }

    fn grant(self: &Rc<Self>, bytes: u64) -> PromotionPermit {
        self.in_flight.set(self.in_flight.get() + bytes);
        PromotionPermit {
            budget: self.clone(),
            bytes,
        }
    }

    pub(crate) fn refill(&self, now: Nanos) {
        let Some(rate) = self.rate else { return };
        let elapsed = now.since(self.refilled.get());
        let grown = u128::from(rate) * u128::from(elapsed.0) / 1_000_000_000;
        if grown > 0 {
            let allowance = u128::from(self.allowance.get()) + grown;
            self.allowance.set(allowance.min(u128::from(rate)) as u64);
            self.refilled.set(now);
        }
    }
}

/// Leave to have bytes in flight to the pool, until dropped.
#[derive(Debug)]
pub(crate) struct PromotionPermit {
    budget: Rc<PromotionBudget>,
    bytes: u64,
}

impl PromotionPermit {
    /// Takes leave for `bytes` out of this one.
    pub(crate) fn split(&mut self, bytes: u64) -> PromotionPermit {
        assert!(
            bytes <= self.bytes,
            "{bytes} out of a permit for {}",
            self.bytes
        );
        self.bytes -= bytes;
        PromotionPermit {
            budget: self.budget.clone(),
            bytes,
        }
    }
}

impl Drop for PromotionPermit {
    fn drop(&mut self) {
        let budget = &self.budget;
        budget.in_flight.set(budget.in_flight.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_halved_once_for_what_was_in_flight_and_grows_where_it_is_in_the_way() {
        let budget = PromotionBudget::new(1024, None, Nanos::ZERO);
        let window = |budget: &PromotionBudget| budget.window.get();
        for _ in 0..=TICKS_MAX {
            budget.adapt(true);
        }
        assert_eq!(window(&budget), 512);
        budget.adapt(true);
        assert_eq!(window(&budget), 256);
        (0..100).for_each(|_| budget.adapt(false));
        assert_eq!(window(&budget), 256, "nobody wanted more");
        let alone = budget.promote(1000).expect("one alone may always");
        assert!(budget.room(1).is_err());
        budget.adapt(false);
        assert_eq!(window(&budget), 256 + 1024 / GROWTH_PARTS);
        drop(alone);
        assert!(budget.room(1025).is_err());
    }

    #[test]
    fn permits_bound_what_is_in_flight() {
        let budget = PromotionBudget::new(100, None, Nanos::ZERO);
        let mut whole = budget.promote(100).expect("room");
        assert_eq!(budget.room(1), Err(Counter::RejectedInFlight));
        let part = whole.split(30);
        drop(whole);
        assert!(budget.room(70).is_ok() && budget.room(71).is_err());
        assert!(budget.update(71).is_err());
        drop(part);
        assert!(budget.room(100).is_ok());
    }

    #[test]
    fn the_rate_holds_over_time_and_spares_updates() {
        let budget = PromotionBudget::new(1 << 30, Some(1000), Nanos::ZERO);
        let mut granted = 0;
        for ms in 0..10_000 {
            budget.refill(Nanos::from_millis(ms));
            while budget.promote(7).is_ok() {
                granted += 7;
            }
        }
        assert!((10_900..=11_000).contains(&granted), "{granted}");
        assert_eq!(budget.room(7), Err(Counter::RejectedRate));
        assert!(budget.update(5000).is_ok());
    }
}
