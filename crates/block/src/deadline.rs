//! The time limit of a device, counted while the process runs.
//!
//! A clock runs on while the process is paused: a signal, a freezer, a suspended machine. The
//! device had none of that time. Threads that work for the device were paused as well, and its
//! answers waited unread. A deadline is therefore a number of ticks. A tick that ends much later
//! than its due time is set again.
//!
//! Invariants:
//!     a deadline has passed ⟹ all of its ticks have ended, the last of them in time or twice
//!     a pause of the process, of whatever length, costs a device at most one tick
//!     a process that is late at each tick waits for at most twice the ticks
//!
//! Not here: the fate of a device after its deadline.

use crate::buf::{Buf, SharedBuf};
use crate::device::{Content, Device, Geometry};
use crate::env::{Env, Sleep, Timer, first_of};
use crate::error::{IoErrorKind, IoResult};
use crate::units::{Extent, Fua, Lba, Nanos};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Ticks of a deadline. An operation that ends within the first costs one timer.
const TICKS: u64 = 8;

/// Ends when a span has passed in which the process ran.
pub struct Deadline {
    sleep: Sleep,
    tick: Nanos,
    /// Ticks after this one.
    left: u64,
    /// This tick is a second attempt: the first ended late.
    repeated: bool,
}

impl Deadline {
    /// `limit` from now on.
    pub fn new(timer: &Timer, limit: Nanos) -> Deadline {
        let tick = Nanos(limit.0 / TICKS);
        let left = TICKS - 1;
        Deadline {
            sleep: timer.sleep(Nanos(limit.0 - tick.0 * left)),
            tick,
            left,
            repeated: false,
        }
    }

    /// Runs `work` until the deadline has passed; `None` if `work` did not end by then and is
    /// dropped.
    pub async fn bound<T>(self, work: impl Future<Output = T>) -> Option<T> {
        first_of(work, self).await
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            ready!(Pin::new(&mut this.sleep).poll(cx));
            let late = this.sleep.overshot() > Nanos(this.tick.0 / 2);
            if late && !this.repeated {
                this.repeated = true;
            } else if this.left == 0 {
                return Poll::Ready(());
            } else {
                this.repeated = false;
                this.left -= 1;
            }
            this.sleep.again(this.tick, !late);
        }
    }
}

/// A device that fails requests with `Timeout` if they are not answered within a limit.
///
/// Requests in flight may still be carried out: the user no longer trusts the device.
#[derive(Clone)]
pub struct WithDeadline<D> {
    device: D,
    env: Env,
    limit: Nanos,
}

impl<D: Device> WithDeadline<D> {
    /// `device`, which may take as long as `limit`.
    pub fn new(device: D, env: Env, limit: Nanos) -> WithDeadline<D> {
        WithDeadline { device, env, limit }
    }

    fn deadline(&self) -> Deadline {
        Deadline::new(&self.env.timer, self.limit)
    }

    async fn within(&self, work: impl Future<Output = IoResult>) -> IoResult {
        let ended = self.deadline().bound(work).await;
        ended.unwrap_or_else(|| self.unresponsive())
    }

    fn unresponsive(&self) -> IoResult {
        let what = "has not answered in time; see to it or its controller";
        Err(self.device.geometry().error(IoErrorKind::Timeout, what))
    }
}

impl<D: Device> Device for WithDeadline<D> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let bytes = buf.len();
        match self.deadline().bound(self.device.read(at, buf)).await {
            Some(read) => read,
            // The device has the other.
            None => (self.env.pool.take(bytes), self.unresponsive()),
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.within(self.device.write(at, data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.within(self.device.zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        self.within(self.device.flush()).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.within(self.device.discard(extent)).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.within(self.device.extents(extent, out)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Executor, TimerKey};
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Waker;

    const LIMIT: Nanos = Nanos::from_secs(8);

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Clock(Cell<Nanos>);

    impl Executor for Clock {
        fn spawn(&self, _: Pin<Box<dyn Future<Output = ()>>>) {}
        fn now(&self) -> Nanos {
            self.0.get()
        }
        fn set_timer(&self, at: Nanos, _: Waker) -> TimerKey {
            TimerKey(at.0)
        }
        fn cancel_timer(&self, _: TimerKey) {}
    }

    /// A deadline of eight ticks of a second, and its clock.
    fn begun() -> (Rc<Clock>, Deadline) {
        let clock = Rc::<Clock>::default();
        let env = Env::new(clock.clone(), crate::Pool::new(1 << 20));
        (clock, Deadline::new(&env.timer, LIMIT))
    }

    fn passed_at(clock: &Clock, deadline: &mut Deadline, at: Nanos) -> bool {
        clock.0.set(at);
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(deadline).poll(&mut cx).is_ready()
    }

    fn when_passed(clock: &Clock, deadline: &mut Deadline, from: Nanos, step: Nanos) -> Nanos {
        let mut at = from;
        while !passed_at(clock, deadline, at) {
            at += step;
        }
        at
    }

    #[test]
    fn it_passes_at_its_limit_while_the_process_runs() {
        let (clock, mut deadline) = begun();
        let step = Nanos::from_millis(10);
        let passed = when_passed(&clock, &mut deadline, Nanos::ZERO, step);
        assert_eq!(passed, LIMIT);
    }

    #[test]
    fn a_pause_of_any_length_at_any_moment_leaves_all_but_one_tick() {
        for begins in (0..800).map(|n| Nanos::from_millis(n * 10 + 5)) {
            for lasts in [
                Nanos::from_secs(2),
                Nanos::from_secs(40),
                Nanos::from_secs(86_400),
            ] {
                let (clock, mut deadline) = begun();
                let step = Nanos::from_millis(10);
                let mut at = Nanos::ZERO;
                while at < begins {
                    assert!(!passed_at(&clock, &mut deadline, at));
                    at += step;
                }
                let resumed = begins + lasts;
                let passed = when_passed(&clock, &mut deadline, resumed, step);
                let ran = passed - lasts;
                let tick = Nanos::from_secs(1);
                assert!(ran + tick >= LIMIT && ran <= LIMIT + tick + step, "{ran}");
                assert!(passed - resumed >= tick, "no time was left after the pause");
            }
        }
    }

    #[test]
    fn a_process_that_is_always_late_waits_for_twice_the_ticks_at_most() {
        let (clock, mut deadline) = begun();
        let step = Nanos::from_secs(5);
        let passed = when_passed(&clock, &mut deadline, Nanos::ZERO, step);
        assert!(passed <= Nanos(step.0 * 17), "{passed}");
    }
}
