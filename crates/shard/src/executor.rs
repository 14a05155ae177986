//! The shard: polls tasks, hands operations to the driver, and returns to its host when it can
//! sleep.
//!
//! Order within a turn, fixed so that a simulation repeats: completions, then messages, then
//! timers, then tasks in the order they were woken. The clock is read once a turn, at the first
//! request for it: time does not pass within a turn.

use crate::local::Local;
use crate::mesh::{Mailbox, Mesh, MeshMessage};
use crate::ops::{ShardOps, WaitingReads};
use crate::perform::Perform;
use crate::queue;
use crate::task::{CurrentShard, Ready, RunningShard, Tasks, Waiter, current_shard};
use crate::timers::Timers;
use block::{
    Completion, Driver, DriverOp, Executor, Nanos, Pool, ShardId, ShardTurn, TargetId, TimerKey,
    TurnProgress,
};
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// Polls in one turn before completions are looked for again, so that a busy task cannot keep them
/// waiting.
const POLLS_PER_TURN: usize = 256;
/// Polls after which messages of other shards are looked for.
const POLLS_PER_LOOK: usize = 8;

/// The bounds of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Operations in flight on one target; more wait in order.
    pub depth: u32,
    /// The time that an idle shard looks for work before it sleeps.
    pub busy_poll: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            depth: 256,
            busy_poll: Nanos::ZERO,
        }
    }
}

/// State that the shard's parts share.
pub(crate) struct ShardCore<D: Driver> {
    pub(crate) id: ShardId,
    pub(crate) mesh: Mesh<D>,
    pub(crate) ops: ShardOps<D>,
    pub(crate) pool: Pool,
    pub(crate) reads: OnceCell<Rc<dyn WaitingReads>>,
    pub(crate) locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    home: Arc<Mailbox<D>>,
    pub(crate) tasks: Tasks<D>,
    ready: Ready,
    timers: RefCell<Timers>,
    busy_poll: Nanos,
    /// The time of the last work, if idle shards look for work.
    worked: Cell<Nanos>,
    /// True from the first event that is work, until the shard has none left. Only then may looks
    /// at its state wait.
    is_busy: Cell<bool>,
    /// The time of this turn, once the clock was read.
    now: Cell<Option<Nanos>>,
    main_ended: Cell<bool>,
    closing: Cell<bool>,
}

/// One shard, as its host drives it.
pub struct Shard<D: Driver> {
    core: Rc<ShardCore<D>>,
    /// This shard, while it does not run.
    current: Cell<CurrentShard>,
    done: Vec<Completion>,
}

impl<D: Driver> Shard<D> {
    /// Starts a shard on `driver` with `main` as its first task; the shard ends when `main` does,
    /// and drops the tasks that are left.
    ///
    /// `driver` must be the one that the host gave to shard `id`.
    pub fn boot<F>(
        id: ShardId,
        driver: D,
        mesh: Mesh<D>,
        config: Config,
        main: impl FnOnce(Local<D>) -> F,
    ) -> Box<dyn ShardTurn>
    where
        F: Future<Output = ()> + 'static,
    {
        let home = mesh.mailbox(id).clone();
        home.attach(driver.unparker());
        let core = Rc::new(ShardCore {
            id,
            pool: driver.pool().clone(),
            ops: ShardOps::new(driver, config.depth),
            reads: OnceCell::new(),
            locals: RefCell::default(),
            tasks: Tasks::new(home.clone()),
            ready: Ready::default(),
            busy_poll: config.busy_poll,
            worked: Cell::new(Nanos::ZERO),
            timers: RefCell::default(),
            is_busy: Cell::new(true),
            now: Cell::new(None),
            main_ended: Cell::new(false),
            closing: Cell::new(false),
            home,
            mesh,
        });
        let future = main(Local(core.clone()));
        let weak = Rc::downgrade(&core);
        core.spawn(Box::pin(async move {
            future.await;
            if let Some(core) = weak.upgrade() {
                core.main_ended.set(true);
            }
        }));
        Box::new(Shard {
            current: Cell::new(current_shard(&core.home, &core.ready)),
            core,
            done: Vec::new(),
        })
    }
}

impl<D: Driver> ShardCore<D> {
    /// Takes the messages of other shards. Their tasks are polled first: another shard waits.
    fn receive(self: &Rc<Self>) {
        while let Some(message) = self.home.receive() {
            self.is_busy.set(true);
            match message {
                MeshMessage::Poll(slot) => self.ready.borrow_mut().push_front(slot),
                MeshMessage::Run(work) => work(&Local(self.clone())),
            }
        }
    }

    /// Gives the output of an operation to its waiter.
    #[inline]
    fn take_in(&self, completion: Completion) {
        let Completion {
            token,
            result,
            payload,
        } = completion;
        match self.ops.end(token) {
            None => self.ops.discard(token, (result, payload)),
            Some(Waiter::Read(key)) => {
                self.ops.free(token);
                let reads = self.reads.get().expect("set before the first read");
                reads.completed(key, self.now(), (result, payload));
            }
            Some(Waiter::Request(taker, tag)) => {
                self.ops.free(token);
                taker.take_next(tag, queue::next_of((result, payload)));
            }
            Some(waiter) => {
                self.ops.keep(token, (result, payload));
                self.tasks.wake(waiter, &self.ready);
            }
        }
    }

    /// True if a shard without work does not sleep yet.
    fn looks_on(&self, has_worked: bool) -> bool {
        if self.busy_poll == Nanos::ZERO {
            return false;
        }
        if has_worked {
            self.worked.set(self.now());
            return true;
        }
        self.now().since(self.worked.get()) < self.busy_poll
    }

    /// Wakes the tasks of the timers that are due.
    fn fire_timers(&self) {
        if self.is_busy.get() {
            self.timers.borrow_mut().hasten(Nanos::MAX);
        }
        if self.timers.borrow_mut().next() == Nanos::MAX {
            return;
        }
        let now = self.now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            let Some(timer) = due else { break };
            if !timer.is_idle {
                self.is_busy.set(true);
            }
            timer.waker.wake();
        }
    }

    pub(crate) fn perform(&self, target: TargetId, op: DriverOp) -> Perform<'_, D> {
        Perform::new(self, target, op)
    }
}

impl<D: Driver> Executor for ShardCore<D> {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        if self.closing.get() {
            return;
        }
        let slot = self.tasks.add(task);
        self.ready.borrow_mut().push_back(slot);
    }

    fn now(&self) -> Nanos {
        self.now.get().unwrap_or_else(|| {
            let now = self.ops.driver().borrow().now();
            self.now.set(Some(now));
            now
        })
    }

    fn set_timer(&self, at: Nanos, waker: Waker) -> TimerKey {
        self.timers.borrow_mut().set(at, waker)
    }

    fn set_idle_timer(&self, at: Nanos, latest: Nanos, waker: Waker) -> TimerKey {
        let latest = if self.is_busy.get() { at } else { latest };
        self.timers.borrow_mut().set_idle(at, latest, waker)
    }

    fn cancel_timer(&self, key: TimerKey) {
        self.timers.borrow_mut().cancel(key);
    }
}

impl<D: Driver> ShardTurn for Shard<D> {
    fn run_once(&mut self) -> TurnProgress {
        let core = &self.core;
        let _running = RunningShard::enter(&self.current);
        core.home.wake();
        core.now.set(None);
        let has_completed = !self.done.is_empty();
        if has_completed {
            core.is_busy.set(true);
        }
        for completion in self.done.drain(..) {
            core.take_in(completion);
        }
        core.receive();
        core.fire_timers();
        let has_worked = has_completed || !core.ready.borrow().is_empty();
        for poll in 1..=POLLS_PER_TURN {
            if poll.is_multiple_of(POLLS_PER_LOOK) {
                core.receive();
            }
            let next = core.ready.borrow_mut().pop_front();
            let Some(slot) = next else { break };
            core.tasks.poll(slot);
            if core.main_ended.get() {
                return TurnProgress::Done;
            }
        }
        if !core.ready.borrow().is_empty() || core.looks_on(has_worked) || !core.home.sleep() {
            return TurnProgress::Ready;
        }
        core.is_busy.set(false);
        TurnProgress::Idle(core.timers.borrow_mut().next())
    }

    fn park(&mut self, deadline: Nanos) {
        let _running = RunningShard::enter(&self.current);
        // A wake from here on lands in `ready`, so the park must not wait.
        let deadline = if self.core.ready.borrow().is_empty() {
            deadline
        } else {
            Nanos::ZERO
        };
        self.core
            .ops
            .driver()
            .borrow_mut()
            .park(deadline, &mut self.done);
    }
}

impl<D: Driver> Drop for Shard<D> {
    fn drop(&mut self) {
        let _running = RunningShard::enter(&self.current);
        self.core.closing.set(true);
        self.core.home.close();
        self.core.tasks.clear();
        if let Some(reads) = self.core.reads.get() {
            reads.clear();
        }
        self.core.ops.forget_waiters();
        let locals = std::mem::take(&mut *self.core.locals.borrow_mut());
        drop(locals);
    }
}
