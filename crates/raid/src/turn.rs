//! The depth of a member's queue, and its time limit.
//!
//! Invariants:
//!     in flight on the device and waited for ≤ DEPTH; the rest waits in order of arrival
//!     an operation's time runs             ⟸ the device has been asked
//!
//! Not here: the eviction of a member that is late (`core`).

use crate::member::ArrayMember;
use block::{Deadline, Device, IoErrorKind, IoResult, Nanos, Permit};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Most operations in flight on a device: enough for any drive, and for a dozen below a nested
/// array, and no more than a slow one completes in a second or so.
pub(crate) const DEPTH: usize = 128;
/// Least bytes a second of a sound device; larger operations take longer.
const RATE_MIN: u64 = 16 << 20;

/// Returns the time limit of a device with this `timeout` to move `bytes`.
pub(crate) fn limit(timeout: Nanos, bytes: u64) -> Nanos {
    let moving = u128::from(bytes) * 1_000_000_000 / u128::from(RATE_MIN);
    timeout + Nanos(u64::try_from(moving).unwrap_or(u64::MAX))
}

/// An operation of a member, for as long as the array waits for it; written out, since each request
/// moves it.
pub(crate) struct Within<'a, F> {
    member: &'a ArrayMember,
    work: F,
    bytes: u64,
    turn: Permit<'a>,
    /// The device is being asked; with a time limit, if there is one.
    asked: bool,
    limit: Option<Deadline>,
    /// The operation is waited for beyond its time limit.
    overdue: bool,
}

impl<'a, F: Future + Unpin> Within<'a, F> {
    /// Makes an operation of `work` on `member`, which moves `bytes`; it has not been polled yet.
    pub fn new(member: &'a ArrayMember, bytes: u64, work: F) -> Within<'a, F> {
        member.in_flight.set(member.in_flight.get() + 1);
        Within {
            member,
            work,
            bytes,
            turn: member.turns.permit(1),
            asked: false,
            limit: None,
            overdue: false,
        }
    }

    /// Handles the end of the time limit; `Err` if the operation is waited for no more.
    fn give_up(&mut self) -> IoResult {
        let member = self.member;
        let error = member
            .device
            .geometry()
            .error(IoErrorKind::Timeout, "no answer in time");
        let array = member.array.borrow().upgrade();
        let Some(array) = array.filter(|array| !array.evict(member, &error)) else {
            return Err(error);
        };
        if !std::mem::replace(&mut self.overdue, true) {
            array.waits_for(member);
        }
        Ok(())
    }

    /// Becomes ready once the device is to be asked; `Err` if the member was lost meanwhile.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<IoResult> {
        let has_waited = self.turn.is_queued();
        ready!(Pin::new(&mut self.turn).poll(cx));
        let member = self.member;
        if has_waited && member.is_left() {
            let geometry = member.device.geometry();
            return Poll::Ready(Err(geometry.error(IoErrorKind::Gone, "it was lost")));
        }
        let limit = member.timeout.map(|span| limit(span, self.bytes));
        self.limit = limit.map(|span| Deadline::new(&member.env.timer, span));
        self.asked = true;
        Poll::Ready(Ok(()))
    }
}

impl<F: Future + Unpin> Future for Within<'_, F> {
    type Output = IoResult<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<F::Output>> {
        if !self.asked {
            ready!(self.poll_turn(cx))?;
        }
        if let Poll::Ready(answer) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Some(timeout) = self.member.timeout else {
            return Poll::Pending;
        };
        while let Some(limit) = &mut self.limit
            && Pin::new(limit).poll(cx).is_ready()
        {
            if let Err(error) = self.give_up() {
                return Poll::Ready(Err(error));
            }
            // Another member may be in sync by then.
            let next = Deadline::new(&self.member.env.timer, timeout.max(Nanos(1)));
            self.limit = Some(next);
        }
        Poll::Pending
    }
}

impl<F> Drop for Within<'_, F> {
    fn drop(&mut self) {
        let (in_flight, overdue) = (&self.member.in_flight, &self.member.overdue);
        in_flight.set(in_flight.get() - 1);
        overdue.set(overdue.get() - u32::from(self.overdue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_may_take_longer() {
        let second = Nanos::from_secs(1);
        assert_eq!(limit(second, 0), second);
        assert_eq!(limit(second, 2 * RATE_MIN), Nanos::from_secs(3));
        assert_eq!(limit(second, u64::MAX), Nanos::MAX);
    }
}
