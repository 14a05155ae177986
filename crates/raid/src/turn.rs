//! How much a member is asked for at once, and how long it may take for it.
//!
//! Invariants:
//!     asked of the device and waited for   ≤ DEPTH; the rest waits in order of arrival
//!     an operation's time runs             ⟸ the device has been asked
//!
//! Not here: what becomes of a member that is late (`core`).

use crate::member::Member;
use block::{Deadline, Device, IoResult, Kind, Nanos};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What a device is asked for at once: enough for any drive, and for a dozen below a
/// nested array, and no more than a slow one gets through in a second or so.
const DEPTH: u32 = 128;
/// A sound device moves at least so many bytes in a second; more take it longer.
const RATE_MIN: u64 = 16 << 20;

/// Who has been asked, and who waits.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Cell<u32>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
}

#[derive(Default)]
struct Ticket {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Turns {
    /// Takes a turn; `Some` if one has to be waited for.
    fn take(&self) -> Option<Rc<Ticket>> {
        if self.taken.get() < DEPTH {
            self.taken.set(self.taken.get() + 1);
            return None;
        }
        let ticket = Rc::<Ticket>::default();
        self.waiting.borrow_mut().push_back(ticket.clone());
        Some(ticket)
    }

    fn give_back(&self) {
        let next = self.waiting.borrow_mut().pop_front();
        let Some(next) = next else {
            self.taken.set(self.taken.get() - 1);
            return;
        };
        next.granted.set(true);
        let waker = next.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, ticket: &Rc<Ticket>) {
        if ticket.granted.get() {
            return self.give_back();
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|other| !Rc::ptr_eq(other, ticket));
    }
}

/// How long a device with this `timeout` may take to move `bytes`.
pub(crate) fn limit(timeout: Nanos, bytes: u64) -> Nanos {
    let moving = u128::from(bytes) * 1_000_000_000 / u128::from(RATE_MIN);
    timeout + Nanos(u64::try_from(moving).unwrap_or(u64::MAX))
}

enum Stage {
    New,
    Waiting(Rc<Ticket>),
    Asked(Option<Deadline>),
}

/// An operation of a member, for as long as the array waits for it; written out, for
/// each request moves it.
pub(crate) struct Within<'a, F> {
    member: &'a Member,
    work: F,
    bytes: u64,
    stage: Stage,
    /// It is waited for although it took longer than it may.
    overdue: bool,
}

impl<'a, F: Future + Unpin> Within<'a, F> {
    /// `work` of `member`, which moves `bytes`; it has not been polled yet.
    pub fn new(member: &'a Member, bytes: u64, work: F) -> Within<'a, F> {
        member.in_flight.set(member.in_flight.get() + 1);
        Within {
            member,
            work,
            bytes,
            stage: Stage::New,
            overdue: false,
        }
    }

    /// It took longer than it may; `Err` if it is waited for no more.
    fn give_up(&mut self) -> IoResult {
        let member = self.member;
        let error = member
            .device
            .geometry()
            .error(Kind::Timeout, "no answer in time");
        let array = member.array.borrow().upgrade();
        let Some(array) = array.filter(|array| !array.evict(member, &error)) else {
            return Err(error);
        };
        if !std::mem::replace(&mut self.overdue, true) {
            array.waits_for(member);
        }
        Ok(())
    }

    fn asked(&self) -> Stage {
        let (timer, timeout) = (&self.member.env.timer, self.member.timeout);
        Stage::Asked(timeout.map(|span| Deadline::new(timer, limit(span, self.bytes))))
    }

    /// Ready once the device is to be asked; `Err` if it was lost meanwhile.
    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<IoResult> {
        if let Stage::New = self.stage {
            self.stage = match self.member.turns.take() {
                None => self.asked(),
                Some(ticket) => Stage::Waiting(ticket),
            };
        }
        if let Stage::Waiting(ticket) = &self.stage {
            if !ticket.granted.get() {
                ticket.waker.replace(Some(cx.waker().clone()));
                return Poll::Pending;
            }
            if self.member.is_left() {
                let geometry = self.member.device.geometry();
                return Poll::Ready(Err(geometry.error(Kind::Gone, "it was lost")));
            }
            self.stage = self.asked();
        }
        Poll::Ready(Ok(()))
    }
}

impl<F: Future + Unpin> Future for Within<'_, F> {
    type Output = IoResult<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<F::Output>> {
        match self.poll_turn(cx) {
            Poll::Ready(Ok(())) => (),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        if let Poll::Ready(answer) = Pin::new(&mut self.work).poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Some(timeout) = self.member.timeout else {
            return Poll::Pending;
        };
        while let Stage::Asked(Some(limit)) = &mut self.stage
            && Pin::new(limit).poll(cx).is_ready()
        {
            if let Err(error) = self.give_up() {
                return Poll::Ready(Err(error));
            }
            // Another may be in sync by then.
            let next = Deadline::new(&self.member.env.timer, timeout.max(Nanos(1)));
            self.stage = Stage::Asked(Some(next));
        }
        Poll::Pending
    }
}

impl<F> Drop for Within<'_, F> {
    fn drop(&mut self) {
        match &self.stage {
            Stage::New => (),
            Stage::Waiting(ticket) => self.member.turns.leave(ticket),
            Stage::Asked(_) => self.member.turns.give_back(),
        }
        let (in_flight, overdue) = (&self.member.in_flight, &self.member.overdue);
        in_flight.set(in_flight.get() - 1);
        overdue.set(overdue.get() - u32::from(self.overdue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_given_in_order_and_none_is_lost_with_who_waited() {
        let turns = Turns::default();
        assert!((0..DEPTH).all(|_| turns.take().is_none()));
        let [first, second, third] = [(); 3].map(|()| turns.take().expect("all are taken"));
        turns.leave(&second);
        turns.give_back();
        assert!(first.granted.get() && !third.granted.get());
        // It goes although its turn has come.
        turns.leave(&first);
        assert!(third.granted.get());
        turns.give_back();
        assert!(turns.take().is_none() && turns.take().is_some());
    }

    #[test]
    fn more_bytes_may_take_longer() {
        let second = Nanos::from_secs(1);
        assert_eq!(limit(second, 0), second);
        assert_eq!(limit(second, 2 * RATE_MIN), Nanos::from_secs(3));
        assert_eq!(limit(second, u64::MAX), Nanos::MAX);
    }
}
