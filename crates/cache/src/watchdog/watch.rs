//! The task of the watchdog.

use crate::core::CacheCore;
use block::{Device, Nanos, Timer};
use std::future::poll_fn;
use std::rc::Weak;
use std::task::Poll;

/// The period in which policies get the time.
const POLICY_TICK: Nanos = Nanos::from_secs(1);

/// Watches over `core` until the cache is gone.
pub(crate) async fn watch<P: Device>(core: Weak<CacheCore<P>>, timer: Timer, period: Nanos) {
    let mut policy_ticked = timer.now();
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
        if now.since(policy_ticked) >= POLICY_TICK {
            state.policy.tick(now);
            state.share();
            policy_ticked = now;
        }
        if !state.busy.is_idle() {
            core.watchdog.active.set(true);
        }
    }
}
