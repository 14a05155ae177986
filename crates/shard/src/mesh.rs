//! Messages between shards.
//!
//! Invariants:
//!     messages from one shard to another arrive in order, exactly once
//!     a sender makes a system call only if the receiver sleeps
//!     a message to a shard that has ended is dropped, whichever came first
//!
//! Not here: back-pressure. A caller bounds its calls in flight as it bounds
//! its requests.

use crate::local::Local;
use block::{Driver, ShardId, Unpark};
use crossbeam_queue::SegQueue;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::sync::{Arc, OnceLock};

type Work<D> = Box<dyn FnOnce(&Local<D>) + Send>;

pub(crate) enum MeshMessage<D: Driver> {
    /// Poll the task in this slot.
    Poll(u32),
    /// Run this on the shard.
    Run(Work<D>),
}

pub(crate) struct Mailbox<D: Driver> {
    queue: SegQueue<MeshMessage<D>>,
    sleeping: AtomicBool,
    closed: AtomicBool,
    unparker: OnceLock<Arc<dyn Unpark>>,
}

impl<D: Driver> Mailbox<D> {
    pub(crate) fn send(&self, message: MeshMessage<D>) {
        self.queue.push(message);
        // Pairs with the fence in `sleep`: either the sleeper sees the message
        // or this sees that it sleeps.
        fence(SeqCst);
        if self.closed.load(Relaxed) {
            self.discard();
            return;
        }
        if self.sleeping.load(Relaxed) && self.sleeping.swap(false, AcqRel) {
            let unparker = self
                .unparker
                .get()
                .expect("attached before it first sleeps");
            unparker.unpark();
        }
    }

    #[inline]
    pub(crate) fn receive(&self) -> Option<MeshMessage<D>> {
        // Taking from an empty queue costs a fence; `sleep` has one of its own.
        if self.queue.is_empty() {
            return None;
        }
        self.queue.pop()
    }

    /// Ends the mailbox of a shard that has ended: messages are dropped unrun from now on, so that
    /// waiting callers notice.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        fence(SeqCst);
        self.discard();
    }

    fn discard(&self) {
        while let Some(message) = self.queue.pop() {
            drop(message);
        }
    }

    /// Announces sleep; false if a message is waiting.
    pub(crate) fn sleep(&self) -> bool {
        self.sleeping.store(true, Relaxed);
        fence(SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.wake();
        false
    }

    pub(crate) fn wake(&self) {
        self.sleeping.store(false, Relaxed);
    }

    pub(crate) fn attach(&self, unparker: Arc<dyn Unpark>) {
        if self.unparker.set(unparker).is_err() {
            panic!("a mesh serves one run of its host");
        }
    }
}

/// The mailboxes of all shards of one run; made before the host starts.
pub struct Mesh<D: Driver>(Arc<[Arc<Mailbox<D>>]>);

impl<D: Driver> Clone for Mesh<D> {
    fn clone(&self) -> Self {
        Mesh(self.0.clone())
    }
}

impl<D: Driver> Mesh<D> {
    /// Makes mailboxes for shards 0 to `shards - 1`.
    pub fn new(shards: u32) -> Mesh<D> {
        let mailbox = || {
            Arc::new(Mailbox {
                queue: SegQueue::new(),
                sleeping: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                unparker: OnceLock::new(),
            })
        };
        Mesh((0..shards).map(|_| mailbox()).collect())
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> u32 {
        self.0.len() as u32
    }

    /// Runs `work` on shard `to`, from any thread. The work may start tasks there.
    pub fn post(&self, to: ShardId, work: impl FnOnce(&Local<D>) + Send + 'static) {
        self.mailbox(to).send(MeshMessage::Run(Box::new(work)));
    }

    pub(crate) fn mailbox(&self, shard: ShardId) -> &Arc<Mailbox<D>> {
        self.0
            .get(shard.0 as usize)
            .unwrap_or_else(|| panic!("no {shard:?} in this mesh"))
    }
}
