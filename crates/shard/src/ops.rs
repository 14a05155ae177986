//! Operation slots: what is in flight, what waits for its target, who waits.
//!
//! Invariants:
//!     in flight on a target <= depth
//!     an operation waits ⟹ its target is full, and it is submitted in order
//!     a slot is freed by its completion or its future, whichever is later

use block::{Completion, Driver, IoResult, Op, Payload, TargetId, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) type Output = (IoResult<u64>, Payload);

pub(crate) struct Ops<D: Driver> {
    driver: RefCell<D>,
    table: RefCell<Table>,
    depth: u32,
}

#[derive(Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    targets: Vec<Queue>,
    connects: Queue,
}

#[derive(Default)]
struct Queue {
    in_flight: u32,
    waiting: VecDeque<(Token, Op)>,
}

struct Slot {
    generation: u32,
    target: TargetId,
    /// Whether success makes a target that somebody must close.
    opens: bool,
    state: State,
}

enum State {
    Free,
    Pending(Waker),
    Abandoned,
    Done(Output),
}

impl Table {
    fn queue(&mut self, target: TargetId) -> &mut Queue {
        if target == TargetId::NONE {
            return &mut self.connects;
        }
        let i = target.0 as usize;
        if i >= self.targets.len() {
            self.targets.resize_with(i + 1, Queue::default);
        }
        &mut self.targets[i]
    }

    fn take_slot(&mut self, target: TargetId, opens: bool, waker: Waker) -> Token {
        let i = match self.free.pop() {
            Some(i) => i,
            None => {
                let slot = Slot {
                    generation: 0,
                    target,
                    opens,
                    state: State::Free,
                };
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[i as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.target = target;
        slot.opens = opens;
        slot.state = State::Pending(waker);
        Token(u64::from(slot.generation) << 32 | u64::from(i))
    }

    fn slot(&mut self, token: Token) -> &mut Slot {
        let slot = &mut self.slots[token.0 as u32 as usize];
        assert_eq!(
            slot.generation,
            (token.0 >> 32) as u32,
            "{token:?} completed twice"
        );
        slot
    }

    fn free_slot(&mut self, token: Token) -> State {
        let state = std::mem::replace(&mut self.slot(token).state, State::Free);
        self.free.push(token.0 as u32);
        state
    }
}

impl<D: Driver> Ops<D> {
    pub(crate) fn new(driver: D, depth: u32) -> Ops<D> {
        assert!(depth > 0, "a target needs a depth of at least 1");
        Ops {
            driver: RefCell::new(driver),
            table: RefCell::default(),
            depth,
        }
    }

    pub(crate) fn driver(&self) -> &RefCell<D> {
        &self.driver
    }

    /// The operation as a future; nothing happens until it is polled.
    pub(crate) fn perform(&self, target: TargetId, op: Op) -> Perform<'_, D> {
        Perform {
            ops: self,
            state: Stage::Start(target, op),
        }
    }

    fn start(&self, target: TargetId, op: Op, waker: Waker) -> Token {
        let opens = matches!(op, Op::Accept | Op::Connect(_));
        let mut table = self.table.borrow_mut();
        let token = table.take_slot(target, opens, waker);
        let queue = table.queue(target);
        if queue.in_flight < self.depth {
            queue.in_flight += 1;
            drop(table);
            self.driver.borrow_mut().submit(token, target, op);
        } else {
            queue.waiting.push_back((token, op));
        }
        token
    }

    /// Takes in a completion: submits the next operation that waits for the
    /// target, and wakes whoever waits for this one.
    pub(crate) fn complete(&self, completion: Completion) {
        let Completion {
            token,
            result,
            payload,
        } = completion;
        let mut table = self.table.borrow_mut();
        let slot = table.slot(token);
        assert!(
            matches!(slot.state, State::Pending(_) | State::Abandoned),
            "{token:?} completed twice"
        );
        let (target, opens) = (slot.target, slot.opens);
        let state = std::mem::replace(&mut slot.state, State::Free);
        let queue = table.queue(target);
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.in_flight -= 1;
        }
        match state {
            State::Pending(waker) => {
                table.slot(token).state = State::Done((result, payload));
                drop(table);
                waker.wake();
            }
            State::Abandoned => {
                table.free_slot(token);
                drop(table);
                self.discard(opens, (result, payload));
            }
            State::Free | State::Done(_) => unreachable!("asserted above"),
        }
        if let Some((token, op)) = next {
            self.driver.borrow_mut().submit(token, target, op);
        }
    }

    fn poll_done(&self, token: Token, cx: &mut Context<'_>) -> Poll<Output> {
        let mut table = self.table.borrow_mut();
        match &mut table.slot(token).state {
            State::Pending(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            State::Done(_) => match table.free_slot(token) {
                State::Done(output) => Poll::Ready(output),
                _ => unreachable!("matched above"),
            },
            State::Free | State::Abandoned => panic!("polled after its end"),
        }
    }

    fn abandon(&self, token: Token) {
        let mut table = self.table.borrow_mut();
        let slot = table.slot(token);
        let opens = slot.opens;
        let state = if matches!(slot.state, State::Pending(_)) {
            std::mem::replace(&mut slot.state, State::Abandoned)
        } else {
            table.free_slot(token)
        };
        drop(table);
        if let State::Done(output) = state {
            self.discard(opens, output);
        }
    }

    /// Drops what nobody waits for, closing a stream that nobody will.
    fn discard(&self, opens: bool, (result, _payload): Output) {
        if let (true, Ok(opened)) = (opens, result) {
            self.driver.borrow_mut().close(TargetId(opened as u32));
        }
    }
}

/// An operation; dropping it abandons the wait, never the operation.
pub(crate) struct Perform<'a, D: Driver> {
    ops: &'a Ops<D>,
    state: Stage,
}

enum Stage {
    Start(TargetId, Op),
    Wait(Token),
    Ended,
}

impl<D: Driver> Unpin for Perform<'_, D> {}

impl<D: Driver> Future for Perform<'_, D> {
    type Output = Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Output> {
        let ops = self.ops;
        match std::mem::replace(&mut self.state, Stage::Ended) {
            Stage::Start(target, op) => {
                let token = ops.start(target, op, cx.waker().clone());
                self.state = Stage::Wait(token);
                Poll::Pending
            }
            Stage::Wait(token) => {
                let output = ops.poll_done(token, cx);
                if output.is_pending() {
                    self.state = Stage::Wait(token);
                }
                output
            }
            Stage::Ended => panic!("polled after its end"),
        }
    }
}

impl<D: Driver> Drop for Perform<'_, D> {
    fn drop(&mut self) {
        if let Stage::Wait(token) = self.state {
            self.ops.abandon(token);
        }
    }
}
