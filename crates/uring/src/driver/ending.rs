//! The end of a shard's queue: what waits for others ends, disks finish, and memory
//! that the kernel may still write is never freed.

use super::{CANCEL, UringDriver, Work};
use crate::ring::Wait;
use block::{Driver, Nanos};
use io_uring::opcode;
use std::mem;

/// How long a driver that is dropped waits for its devices before it gives up
/// the memory of operations that do not end.
const DRAIN_MAX: Nanos = Nanos::from_secs(30);
/// How often it asks waiting operations to end.
const CANCEL_EVERY: Nanos = Nanos::from_millis(20);

impl UringDriver {
    /// Gives up the kernel's hold on this driver's memory, or else the memory.
    ///
    /// Returns whether every operation of disks has ended.
    pub(crate) fn end(&mut self, limit: Nanos) -> bool {
        let ended = self.drain(limit);
        if !ended {
            // A device does not answer. What it may still write to is never
            // used again: buffers keep their arena alive.
            mem::forget(mem::take(&mut self.slots));
        }
        ended
    }

    /// Ends what waits for others, lets the disks finish, and returns whether
    /// all has ended within `limit`.
    fn drain(&mut self, limit: Nanos) -> bool {
        self.is_ending = true;
        self.slots
            .retain(|_, slot| !matches!(&slot.work, Work::Stream(op) if op.is_resolving()));
        let until = self.now() + limit;
        let mut done = Vec::new();
        while self.slots.iter().any(|(_, slot)| ends(&slot.work)) {
            let left = until.since(self.now());
            if left == Nanos::ZERO {
                return false;
            }
            self.push_backlog();
            self.cancel_waiting();
            self.enter(Wait::For(left.min(CANCEL_EVERY)));
            self.reap(&mut done);
            done.clear();
        }
        true
    }

    fn cancel_waiting(&mut self) {
        let streams = self.slots.iter();
        let streams = streams.filter(|(_, slot)| matches!(slot.work, Work::Stream(_)));
        let waiting: Vec<u64> = streams.map(|(key, _)| key as u64).collect();
        for user_data in waiting {
            let entry = opcode::AsyncCancel::new(user_data).build();
            // SAFETY: it points at nothing. Without room, it is tried again.
            unsafe { self.push_bare(entry.user_data(CANCEL)) };
        }
    }
}

/// Whether an operation ends by itself, or when it is cancelled. Tags that wait for a request
/// do with their ring alone, and own nothing that the kernel writes to.
fn ends(work: &Work) -> bool {
    match work {
        Work::Disk(..) | Work::Stream(_) => true,
        Work::Port(op) => op.owns_memory(),
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        let ended = self.end(DRAIN_MAX);
        if !ended && !self.ports.is_empty() {
            // What has not ended may still land: no other server may begin before.
            return;
        }
        // The kernel takes a ring down in the background, which may be long after: who
        // claims the disks next is not to wait for that. None may be registered.
        let _ = self.ring.io.submitter().unregister_files();
    }
}
