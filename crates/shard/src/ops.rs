//! Operation slots: operations in flight, those that wait for their target, and their waiters.
//!
//! Invariants:
//!     in flight on a target <= depth; on a port, one for each of its tags
//!     an operation waits ⟹ its target is full, and it is submitted in order
//!     a slot is freed by its completion or its future, whichever is later
//!     `given_up_ended` has ended ⟹ no change that was given up before can still land

use crate::task::Waiter;
use block::{Driver, DriverOp, IoResult, Nanos, Payload, TargetId, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

pub(crate) type Output = (IoResult<u64>, Payload);

/// The reads that wait for operations by [`Waiter::Read`].
pub(crate) trait WaitingReads {
    /// Takes in the output for the read of this key, in the turn of `now`.
    fn completed(&self, key: u32, now: Nanos, output: Output);

    /// Forgets all reads.
    fn clear(&self);
}

pub(crate) struct ShardOps<D: Driver> {
    driver: RefCell<D>,
    table: RefCell<OpTable>,
    depth: u32,
}

#[derive(Default)]
struct OpTable {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
    targets: Vec<OpQueue>,
    connects: OpQueue,
}

#[derive(Default)]
struct OpQueue {
    in_flight: u32,
    waiting: VecDeque<(Token, DriverOp)>,
    /// Changes that no task waits for any more and that have not ended.
    given_up: u32,
    /// Flushes that wait for those to end.
    flushes: Vec<Waker>,
}

struct OpSlot {
    generation: u32,
    target: TargetId,
    stage: OpStage,
    /// True if success makes a target that must be closed.
    opens: bool,
    /// True if the operation changes the target's data.
    changes: bool,
    waiter: Waiter,
    output: Option<Output>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpStage {
    Free,
    Pending,
    Abandoned,
    Done,
}

impl OpTable {
    #[inline]
    fn queue(&mut self, target: TargetId) -> &mut OpQueue {
        if target == TargetId::NONE {
            return &mut self.connects;
        }
        let i = target.0 as usize;
        if i >= self.targets.len() {
            self.targets.resize_with(i + 1, OpQueue::default);
        }
        &mut self.targets[i]
    }

    #[inline]
    fn take_slot(&mut self, target: TargetId, op: &DriverOp, waiter: Waiter) -> Token {
        let opens = matches!(op, DriverOp::Accept | DriverOp::Connect(_));
        let changes = matches!(
            op,
            DriverOp::Write(..) | DriverOp::Zero(_) | DriverOp::Discard(_)
        );
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(OpSlot {
                generation: 0,
                target,
                stage: OpStage::Free,
                opens,
                changes,
                waiter: Waiter::None,
                output: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[i as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.target = target;
        slot.stage = OpStage::Pending;
        slot.opens = opens;
        slot.changes = changes;
        slot.waiter = waiter;
        Token(u64::from(slot.generation) << 32 | u64::from(i))
    }

    #[inline]
    fn slot(&mut self, token: Token) -> &mut OpSlot {
        let slot = &mut self.slots[token.0 as u32 as usize];
        assert!(
            slot.generation == (token.0 >> 32) as u32 && slot.stage != OpStage::Free,
            "{token:?} completed twice"
        );
        slot
    }

    #[inline]
    fn free_slot(&mut self, token: Token) {
        self.slots[token.0 as u32 as usize].stage = OpStage::Free;
        self.free.push(token.0 as u32);
    }
}

impl<D: Driver> ShardOps<D> {
    /// Counts the operations on `target` that have not ended.
    pub(crate) fn in_flight(&self, target: TargetId) -> u32 {
        self.table.borrow_mut().queue(target).in_flight
    }

    pub(crate) fn new(driver: D, depth: u32) -> ShardOps<D> {
        assert!(depth > 0, "a target needs a depth of at least 1");
        ShardOps {
            driver: RefCell::new(driver),
            table: RefCell::default(),
            depth,
        }
    }

    pub(crate) fn driver(&self) -> &RefCell<D> {
        &self.driver
    }

    /// Submits the operation, or queues it behind its target.
    #[inline]
    pub(crate) fn start(&self, target: TargetId, op: DriverOp, waiter: Waiter) -> Token {
        let mut table = self.table.borrow_mut();
        let token = table.take_slot(target, &op, waiter);
        let queue = table.queue(target);
        // A tag that waits for a request is an operation in flight; it must keep none from
        // answering.
        if queue.in_flight < self.depth || matches!(op, DriverOp::Next(..) | DriverOp::Take(..)) {
            queue.in_flight += 1;
            drop(table);
            self.driver.borrow_mut().submit(token, target, op);
        } else {
            queue.waiting.push_back((token, op));
        }
        token
    }

    /// Counts the end of an operation, and submits the next that waits for the target. Returns the
    /// waiter, which is to have the output. `None`: nobody waits, and the output is to be discarded.
    #[inline]
    pub(crate) fn end(&self, token: Token) -> Option<Waiter> {
        let mut table = self.table.borrow_mut();
        let slot = table.slot(token);
        let (target, stage, changes) = (slot.target, slot.stage, slot.changes);
        assert!(stage != OpStage::Done, "{token:?} completed twice");
        let waiter = std::mem::take(&mut slot.waiter);
        slot.stage = OpStage::Done;
        let queue = table.queue(target);
        let next = match queue.waiting.is_empty() {
            true => None,
            false => queue.waiting.pop_front(),
        };
        if next.is_none() {
            queue.in_flight -= 1;
        }
        let mut flushes = Vec::new();
        if stage == OpStage::Abandoned && changes {
            queue.given_up -= 1;
            if queue.given_up == 0 {
                flushes = std::mem::take(&mut queue.flushes);
            }
        }
        drop(table);
        flushes.into_iter().for_each(Waker::wake);
        if let Some((token, op)) = next {
            self.driver.borrow_mut().submit(token, target, op);
        }
        (stage == OpStage::Pending).then_some(waiter)
    }

    /// Keeps the output of an operation that has ended, for its task.
    #[inline]
    pub(crate) fn keep(&self, token: Token, output: Output) {
        self.table.borrow_mut().slot(token).output = Some(output);
    }

    /// Frees the slot of an operation that has ended.
    #[inline]
    pub(crate) fn free(&self, token: Token) {
        self.table.borrow_mut().free_slot(token);
    }

    /// Returns the output of an operation that has ended; otherwise `waiter` is woken later.
    #[inline]
    pub(crate) fn take(&self, token: Token, waiter: impl FnOnce() -> Waiter) -> Option<Output> {
        let mut table = self.table.borrow_mut();
        let slot = table.slot(token);
        let output = slot.output.take();
        match output {
            Some(_) => table.free_slot(token),
            None => slot.waiter = waiter(),
        }
        output
    }

    /// Gives up the operation, which no task waits for any more.
    pub(crate) fn abandon(&self, token: Token) {
        let mut table = self.table.borrow_mut();
        let slot = table.slot(token);
        let (opens, output) = (slot.opens, slot.output.take());
        let (target, changes) = (slot.target, slot.changes);
        let waiter = std::mem::take(&mut slot.waiter);
        match output {
            Some(_) => table.free_slot(token),
            None => {
                slot.stage = OpStage::Abandoned;
                table.queue(target).given_up += u32::from(changes);
            }
        }
        drop(table);
        drop(waiter);
        if let Some(output) = output {
            self.close_opened(opens, output);
        }
    }

    /// Forgets all waiters.
    pub(crate) fn forget_waiters(&self) {
        let mut table = self.table.borrow_mut();
        let slots = table.slots.iter_mut();
        let waiters: Vec<_> = slots.map(|slot| std::mem::take(&mut slot.waiter)).collect();
        drop(table);
        drop(waiters);
    }

    /// Waits until no change of `target` that was given up can undo a later one.
    pub(crate) async fn given_up_ended(&self, target: TargetId) {
        poll_fn(|cx| {
            let mut table = self.table.borrow_mut();
            let queue = table.queue(target);
            if queue.given_up == 0 {
                return Poll::Ready(());
            }
            queue.flushes.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Drops an output that nobody waits for, and closes a stream that it opened.
    pub(crate) fn discard(&self, token: Token, output: Output) {
        let opens = self.table.borrow_mut().slot(token).opens;
        self.free(token);
        self.close_opened(opens, output);
    }

    fn close_opened(&self, opens: bool, (result, _payload): Output) {
        if let (true, Ok(opened)) = (opens, result) {
            self.driver.borrow_mut().close(TargetId(opened as u32));
        }
    }
}
