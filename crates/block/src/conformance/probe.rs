//! A script that drives a raw [`Driver`]: an `async fn` over tokens, run as a
//! [`ShardTurn`] by any host, or by [`super::run`].
//!
//! Checked on every call:
//!     a completion's token is in flight, and then no more
//!     buffers of the operation come back with it, the same memory
//!     `now` never goes back
//!     nothing takes longer than [`TIMEOUT`]

use super::SuiteCase;
use super::check;
use crate::{
    Completion, Driver, DriverOp, IoResult, Nanos, Payload, ShardTurn, TargetId, Token,
    TurnProgress,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Longest time of an operation, by the driver's clock; far over the need of any, so that only a
/// lost one reaches the limit.
const TIMEOUT: Nanos = Nanos::from_secs(30);
/// Empty returns from `park` before its deadline that are taken for waking up
/// for a cause, and not for spinning.
const EARLY_MAX: u32 = 100_000;

/// The buffers that an operation must return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnedBuffers {
    Nothing,
    Buf(*const u8, usize),
    Parts,
}

enum ProbeSlot {
    InFlight { owned: OwnedBuffers, since: Nanos },
    Done(IoResult<u64>, Payload),
    Retired,
}

/// The driver, for a script.
pub(super) struct Probe<D> {
    pub(super) case: SuiteCase,
    driver: RefCell<D>,
    slots: RefCell<HashMap<u64, ProbeSlot>>,
    next: Cell<u64>,
    last_now: Cell<Nanos>,
    wake_at: Cell<Nanos>,
    parks: Cell<u64>,
    early: Cell<u32>,
}

impl<D: Driver> Probe<D> {
    pub(super) fn new(driver: D, case: SuiteCase) -> Rc<Probe<D>> {
        Rc::new(Probe {
            case,
            driver: RefCell::new(driver),
            slots: RefCell::default(),
            next: Cell::new(0),
            last_now: Cell::new(Nanos::ZERO),
            wake_at: Cell::new(Nanos::MAX),
            parks: Cell::new(0),
            early: Cell::new(0),
        })
    }

    /// Reaches the driver for calls that begin nothing.
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut D) -> T) -> T {
        f(&mut self.driver.borrow_mut())
    }

    pub(super) fn now(&self) -> Nanos {
        let now = self.driver.borrow().now();
        let last = self.last_now.replace(now);
        check!(
            self.case,
            now >= last,
            "the clock goes from {last} to {now}"
        );
        now
    }

    /// Begins `op` at once; the future waits for its end.
    pub(super) fn submit(
        self: &Rc<Self>,
        target: TargetId,
        op: DriverOp,
    ) -> impl Future<Output = (IoResult<u64>, Payload)> + use<D> {
        let owned = match &op {
            DriverOp::Read(_, buf) | DriverOp::Recv(buf) => {
                OwnedBuffers::Buf(buf.as_ptr(), buf.len())
            }
            DriverOp::Send(_) => OwnedBuffers::Parts,
            _ => OwnedBuffers::Nothing,
        };
        let token = self.next.get();
        self.next.set(token + 1);
        let since = self.now();
        let slot = ProbeSlot::InFlight { owned, since };
        self.slots.borrow_mut().insert(token, slot);
        self.driver.borrow_mut().submit(Token(token), target, op);
        let probe = self.clone();
        poll_fn(move |_| probe.poll_slot(token))
    }

    fn poll_slot(&self, token: u64) -> Poll<(IoResult<u64>, Payload)> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(&token).expect("a slot for each token");
        match std::mem::replace(slot, ProbeSlot::Retired) {
            ProbeSlot::Done(result, payload) => Poll::Ready((result, payload)),
            waiting => {
                *slot = waiting;
                Poll::Pending
            }
        }
    }

    /// Waits until the clock reaches `at`.
    pub(super) async fn sleep_until(&self, at: Nanos) {
        poll_fn(|_| {
            let now = self.now();
            check!(
                self.case,
                now < at + TIMEOUT,
                "a park with deadline {at} ends at {now}"
            );
            if now >= at {
                return Poll::Ready(());
            }
            self.wake_at.set(self.wake_at.get().min(at));
            Poll::Pending
        })
        .await;
    }

    /// Waits until `park`, given a deadline of `span` from now, has returned once.
    pub(super) async fn park_once(&self, span: Nanos) {
        let (parks, at) = (self.parks.get(), self.now() + span);
        poll_fn(|_| {
            if self.parks.get() > parks {
                return Poll::Ready(());
            }
            self.wake_at.set(at);
            Poll::Pending
        })
        .await;
    }

    /// The number of operations in flight.
    pub(super) fn in_flight(&self) -> usize {
        let slots = self.slots.borrow();
        let in_flight = |slot: &&ProbeSlot| matches!(slot, ProbeSlot::InFlight { .. });
        slots.values().filter(in_flight).count()
    }

    fn complete(&self, completion: Completion) {
        let Completion {
            token,
            result,
            payload,
        } = completion;
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(&token.0) else {
            self.case
                .fail(format_args!("{token:?} completes and was never submitted"));
        };
        let ProbeSlot::InFlight { owned, .. } = *slot else {
            self.case.fail(format_args!("{token:?} completes twice"));
        };
        let returned = match &payload {
            // A request is brought, not brought back.
            Payload::None | Payload::Request(_) => OwnedBuffers::Nothing,
            Payload::Buf(buf) => OwnedBuffers::Buf(buf.as_ptr(), buf.len()),
            Payload::Parts(parts) => {
                check!(
                    self.case,
                    parts.is_empty(),
                    "a send returns its vector with {} parts",
                    parts.len()
                );
                OwnedBuffers::Parts
            }
        };
        check!(
            self.case,
            owned == returned,
            "{token:?} owned {owned:?} and returns {returned:?} (result {result:?})"
        );
        *slot = ProbeSlot::Done(result, payload);
    }

    fn overdue(&self, now: Nanos) {
        for (token, slot) in self.slots.borrow().iter() {
            if let ProbeSlot::InFlight { since, .. } = slot {
                check!(
                    self.case,
                    now < *since + TIMEOUT,
                    "token {token} is in flight since {since} at {now}"
                );
            }
        }
    }
}

/// The script, for its host.
pub(super) struct Script<D> {
    probe: Rc<Probe<D>>,
    task: Pin<Box<dyn Future<Output = ()>>>,
    done: Vec<Completion>,
}

impl<D: Driver> Script<D> {
    pub(super) fn new<F>(probe: Rc<Probe<D>>, script: impl FnOnce(Rc<Probe<D>>) -> F) -> Script<D>
    where
        F: Future<Output = ()> + 'static,
    {
        let task = Box::pin(script(probe.clone()));
        Script {
            probe,
            task,
            done: Vec::new(),
        }
    }
}

impl<D: Driver> ShardTurn for Script<D> {
    fn run_once(&mut self) -> TurnProgress {
        let probe = &self.probe;
        probe.wake_at.set(Nanos::MAX);
        let mut cx = Context::from_waker(Waker::noop());
        if self.task.as_mut().poll(&mut cx).is_ready() {
            return TurnProgress::Done;
        }
        let deadline = probe.wake_at.get().min(probe.now() + TIMEOUT);
        probe.wake_at.set(deadline);
        TurnProgress::Idle(deadline)
    }

    fn park(&mut self, deadline: Nanos) {
        let probe = &self.probe;
        probe.now();
        probe.driver.borrow_mut().park(deadline, &mut self.done);
        probe.parks.set(probe.parks.get() + 1);
        let now = probe.now();
        let early = if self.done.is_empty() && now < deadline {
            probe.early.get() + 1
        } else {
            0
        };
        probe.early.set(early);
        check!(
            probe.case,
            early < EARLY_MAX,
            "park returned {early} times before its deadline without a completion"
        );
        for completion in self.done.drain(..) {
            probe.complete(completion);
        }
        probe.overdue(now);
    }
}
