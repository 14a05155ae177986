//! The task that notices operations on the pool that take too long, and tells
//! the budget and the policy the time.
//!
//! A timer for each hit would cost more than the hit's look-up. Instead hits in
//! flight are looked at once a period. The task sleeps for good while nothing
//! happens, so an idle cache sets no timer.

use crate::cache::Core;
use block::{Device, Nanos, Timer};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Weak;
use std::task::{Poll, Waker};

/// How often policies are told the time.
const POLICY_TICK: Nanos = Nanos::from_secs(1);

#[derive(Default)]
pub(crate) struct Watchdog {
    /// Something has happened since the last tick.
    active: Cell<bool>,
    asleep: Cell<Option<Waker>>,
}

impl Watchdog {
    /// Called for every request.
    #[inline]
    pub(crate) fn note(&self) {
        if !self.active.replace(true) {
            self.rouse();
        }
    }

    pub(crate) fn rouse(&self) {
        if let Some(waker) = self.asleep.take() {
            waker.wake();
        }
    }
}

/// Watches over `core` until it is gone.
pub(crate) async fn watch<P: Device>(core: Weak<Core<P>>, timer: Timer, period: Nanos) {
    let mut policy_told = timer.now();
    loop {
        let alive = poll_fn(|cx| match core.upgrade() {
            None => Poll::Ready(false),
            Some(core) if core.watchdog.active.replace(false) => Poll::Ready(true),
            Some(core) => {
                core.watchdog.asleep.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        });
        if !alive.await {
            return;
        }
        timer.sleep(period).await;
        let Some(core) = core.upgrade() else { return };
        let now = timer.now();
        let mut state = core.state.borrow_mut();
        state.tick(now);
        if now.since(policy_told) >= POLICY_TICK {
            state.policy.tick(now);
            policy_told = now;
        }
        if !state.busy.is_idle() {
            core.watchdog.active.set(true);
        }
    }
}
