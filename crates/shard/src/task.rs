//! Tasks and their wakers.
//!
//! Invariants:
//!     a task is queued at most once by its own waker        (`queued`)
//!     a wake on the task's shard touches no other thread's memory; a wake from
//!     anywhere else is a message
//!
//! A waker outlives its task; then a wake at most polls the slot's next task
//! once too often.

use crate::mesh::{Mailbox, MeshMessage};
use block::{Driver, RequestTaker, Tag};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Wake, Waker};

pub(crate) type Ready = Rc<RefCell<VecDeque<u32>>>;

/// A mailbox's address, and the queue of tasks to poll, of a shard.
pub(crate) type CurrentShard = Option<(*const (), Ready)>;

thread_local! {
    /// The shard that runs on this thread.
    static CURRENT: Cell<CurrentShard> = const { Cell::new(None) };
}

/// A shard as its thread knows it, for wakes.
pub(crate) fn current_shard<D: Driver>(home: &Arc<Mailbox<D>>, ready: &Ready) -> CurrentShard {
    Some((Arc::as_ptr(home).cast(), ready.clone()))
}

/// Marks a shard as the running one until dropped, and holds the former.
pub(crate) struct RunningShard<'a> {
    shard: &'a Cell<CurrentShard>,
    former: CurrentShard,
}

impl RunningShard<'_> {
    #[inline]
    pub(crate) fn enter(shard: &Cell<CurrentShard>) -> RunningShard<'_> {
        let former = CURRENT.replace(shard.take());
        RunningShard { shard, former }
    }
}

impl Drop for RunningShard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.shard.set(CURRENT.replace(self.former.take()));
    }
}

/// The waiter of an operation. A task of the same shard is named by its slot, which costs no
/// reference count.
#[derive(Default)]
pub(crate) enum Waiter {
    #[default]
    None,
    Task(u32),
    Other(Waker),
    /// The located read of this key.
    Read(u32),
    /// The server of a port, for a tag.
    Request(Rc<dyn RequestTaker>, Tag),
}

struct TaskWaker<D: Driver> {
    home: Arc<Mailbox<D>>,
    slot: u32,
    queued: AtomicBool,
}

impl<D: Driver> Wake for TaskWaker<D> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, AcqRel) {
            return;
        }
        let here: *const () = Arc::as_ptr(&self.home).cast();
        let current = CURRENT.take();
        let local = match &current {
            Some((shard, ready)) if *shard == here => {
                ready.borrow_mut().push_back(self.slot);
                true
            }
            _ => false,
        };
        CURRENT.set(current);
        if !local {
            self.home.send(MeshMessage::Poll(self.slot));
        }
    }
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Task<D: Driver> {
    /// Taken out while the task is polled.
    work: Option<(Work, Waker)>,
    handle: Arc<TaskWaker<D>>,
}

/// The tasks of one shard.
pub(crate) struct Tasks<D: Driver> {
    home: Arc<Mailbox<D>>,
    slots: RefCell<Vec<Option<Task<D>>>>,
    free: RefCell<Vec<u32>>,
    /// The task being polled, and the address that its waker holds.
    current: Cell<(u32, *const ())>,
}

impl<D: Driver> Tasks<D> {
    pub(crate) fn new(home: Arc<Mailbox<D>>) -> Tasks<D> {
        Tasks {
            home,
            slots: RefCell::default(),
            free: RefCell::default(),
            current: Cell::new((0, std::ptr::null())),
        }
    }

    /// Counts the tasks that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().iter().flatten().count()
    }

    /// Adds a task and returns the slot to poll.
    pub(crate) fn add(&self, future: Work) -> u32 {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            u32::try_from(slots.len() - 1).expect("under 2^32 tasks")
        });
        let handle = Arc::new(TaskWaker {
            home: self.home.clone(),
            slot,
            queued: AtomicBool::new(true),
        });
        let waker = Waker::from(handle.clone());
        slots[slot as usize] = Some(Task {
            work: Some((future, waker)),
            handle,
        });
        slot
    }

    /// Returns the waiter of `waker`, in the cheapest form.
    #[inline]
    pub(crate) fn waiter(&self, waker: &Waker) -> Waiter {
        let (slot, address) = self.current.get();
        if waker.data() == address {
            Waiter::Task(slot)
        } else {
            Waiter::Other(waker.clone())
        }
    }

    /// Wakes `waiter`; a task of this shard goes to the end of `ready`.
    #[inline]
    pub(crate) fn wake(&self, waiter: Waiter, ready: &Ready) {
        match waiter {
            Waiter::None | Waiter::Read(_) | Waiter::Request(..) => {}
            Waiter::Other(waker) => waker.wake(),
            Waiter::Task(slot) => {
                let slots = self.slots.borrow();
                let Some(Some(task)) = slots.get(slot as usize) else {
                    return;
                };
                // A wake from elsewhere at this moment polls the task once too often.
                if !task.handle.queued.load(Acquire) {
                    task.handle.queued.store(true, Release);
                    ready.borrow_mut().push_back(slot);
                }
            }
        }
    }

    /// Polls the task in `slot`; true if it has ended just now.
    #[inline]
    pub(crate) fn poll(&self, slot: u32) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some(task) = slots.get_mut(slot as usize).and_then(Option::as_mut) else {
            return false;
        };
        let Some((mut future, waker)) = task.work.take() else {
            return false;
        };
        task.handle.queued.store(false, Release);
        self.current.set((slot, waker.data()));
        drop(slots);
        let pending = future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending();
        let mut slots = self.slots.borrow_mut();
        if pending {
            let task = slots[slot as usize].as_mut();
            task.expect("a task is removed only here").work = Some((future, waker));
            return false;
        }
        let ended = slots[slot as usize].take();
        drop(slots);
        self.free.borrow_mut().push(slot);
        drop((future, ended));
        true
    }

    /// Drops every task.
    pub(crate) fn clear(&self) {
        // Dropping a task may drop handles that look at this table, and may
        // start tasks, which are then dropped as well.
        loop {
            let slots = std::mem::take(&mut *self.slots.borrow_mut());
            self.free.borrow_mut().clear();
            if slots.is_empty() {
                break;
            }
            drop(slots);
        }
    }
}
