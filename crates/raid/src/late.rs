//! Changes that go on although their callers have given up: an array carries them through, and a
//! device may still execute a write that it got long ago.
//!
//! Invariants:
//!     a device is taken (back), or an array is assembled of it ⟹ no earlier change of it can
//!         still land
//!     a flush of an array has ended ⟹ nor can one of an array that was given up

use crate::core::ArrayCore;
use crate::member::ArrayMember;
use block::{BoxDevice, Deadline, Device, Env, IoErrorKind, IoResult, Nanos, Signal};
use std::cell::Cell;
use std::rc::{Rc, Weak};

/// Interval of looking for the answer of a device.
const ASKED_PAUSE: Nanos = Nanos::from_millis(1);

/// Most bytes that a device may hold without a flush, if their number is unknown.
const UNFLUSHED_MAX: u64 = 1 << 30;

/// Number of changes in flight, and of those that a caller waits for.
#[derive(Default)]
pub(crate) struct LateChanges {
    under_way: Cell<u32>,
    waited_for: Cell<u32>,
    flushes: Signal,
}

/// Counts one while it is held.
pub(crate) struct Counted<'a> {
    late: &'a LateChanges,
    count: &'a Cell<u32>,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.late.flushes.notify();
    }
}

impl LateChanges {
    /// Begins a change.
    pub fn begin(&self) -> Counted<'_> {
        self.counted(&self.under_way)
    }

    /// Counts a caller that waits for a change.
    pub fn wait(&self) -> Counted<'_> {
        self.counted(&self.waited_for)
    }

    fn counted<'a>(&'a self, count: &'a Cell<u32>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted { late: self, count }
    }

    /// Waits until a caller waits for every change in flight.
    pub async fn ended(&self) {
        let none = || self.under_way.get() <= self.waited_for.get();
        self.flushes.until(none).await;
    }
}

impl ArrayCore {
    /// Waits until no earlier operation on the device of `member` can land any more, whichever
    /// member it was then.
    pub async fn late_ended(&self, member: &ArrayMember) -> IoResult {
        // An operation that a caller waits for would be given up after the flush, which waits for
        // operations given up before it.
        while self.is_asked(&member.name) {
            self.env.timer.sleep(ASKED_PAUSE).await;
        }
        member.late_ended().await
    }

    /// True if an operation on the device `name` is waited for.
    fn is_asked(&self, name: &str) -> bool {
        let members = self.members.borrow();
        let mut known = members.iter().filter_map(Weak::upgrade);
        known.any(|known| *known.name == *name && known.in_flight.get() > 0)
    }

    /// Registers a member: its answers may be waited for after its eviction.
    pub fn know(&self, member: &Rc<ArrayMember>) {
        let mut members = self.members.borrow_mut();
        let it = Rc::as_ptr(member);
        members.retain(|known| known.strong_count() > 0 && known.as_ptr() != it);
        members.push(Rc::downgrade(member));
    }
}

impl ArrayMember {
    /// Waits until no earlier operation on the device can land any more, by a flush, which waits
    /// for that.
    pub async fn late_ended(&self) -> IoResult {
        match self.flush().await {
            // A server that was restarted reports once that it may have forgotten writes.
            Err(error) if error.kind() != IoErrorKind::Timeout => self.flush().await,
            result => result,
        }
    }
}

/// Does the same on a device that is to be a member, with a `timeout`. Any answer but a timeout
/// counts: a device that fails flushes shows that to the first commit.
pub(crate) async fn ended_on(env: &Env, device: &BoxDevice, timeout: Nanos) -> IoResult {
    let limit = crate::turn::limit(timeout, UNFLUSHED_MAX);
    let deadline = Deadline::new(&env.timer, limit);
    let flushed = deadline.bound(device.flush()).await;
    match flushed {
        Some(Err(error)) if error.kind() == IoErrorKind::Timeout => Err(error),
        Some(_) => Ok(()),
        None => {
            let what = "no answer in time to a flush, so that what it was asked for before may \
                        still land";
            Err(device.geometry().error(IoErrorKind::Timeout, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LateChanges;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn only_what_nobody_waits_for_is_late() {
        let late = LateChanges::default();
        let is_late = || {
            let mut context = Context::from_waker(Waker::noop());
            pin!(late.ended()).as_mut().poll(&mut context) == Poll::Pending
        };
        let (waits, first) = (late.wait(), late.begin());
        let (waits_too, second) = (late.wait(), late.begin());
        assert!(!is_late());
        drop(waits);
        assert!(is_late());
        drop((second, waits_too));
        assert!(is_late());
        drop(first);
        assert!(!is_late());
    }
}
