//! The end of a shard's queue: waiting operations are cancelled and disks finish. Memory that the
//! kernel may still write is never freed.

use super::{CANCEL, DriverWork, UringDriver};
use crate::ring::Wait;
use block::{Driver, Nanos};
use io_uring::opcode;
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Time limit of a dropped driver's wait for its devices, unless the host sets one. After it, the
/// memory of unfinished operations is given up.
const DRAIN_MAX: Nanos = Nanos::from_secs(30);
/// Shortest wait.
const DRAIN_MIN: Nanos = Nanos::from_secs(1);
/// Time after which the driver reports the operations it waits for.
const UNREPORTED_MAX: Nanos = Nanos::from_millis(500);
/// Interval at which waiting operations are cancelled.
const CANCEL_EVERY: Nanos = Nanos::from_millis(20);

impl UringDriver {
    /// Gives up the kernel's hold on this driver's memory, or else the memory.
    ///
    /// Returns true when every operation of disks has ended.
    pub(crate) fn end(&mut self, limit: Nanos) -> bool {
        let ended = self.drain(limit);
        if !ended {
            // A device does not answer. The memory of its operations is never used again: buffers
            // keep their arena alive.
            mem::forget(mem::take(&mut self.slots));
        }
        ended
    }

    /// Cancels waiting operations and lets the disks finish. True if all operations have ended
    /// within `limit`.
    fn drain(&mut self, limit: Nanos) -> bool {
        self.is_ending = true;
        self.slots
            .retain(|_, slot| !matches!(&slot.work, DriverWork::Stream(op) if op.is_resolving()));
        let until = self.now() + limit;
        let mut says_at = self.now() + UNREPORTED_MAX;
        let mut done = Vec::new();
        while self.slots.iter().any(|(_, slot)| ends(&slot.work)) {
            let left = until.since(self.now());
            if left == Nanos::ZERO {
                return false;
            }
            if self.now() >= says_at {
                says_at = Nanos::MAX;
                (self.host.options.waits)(&self.waited_for(left));
            }
            self.push_backlog();
            self.cancel_waiting();
            self.enter(Wait::For(left.min(CANCEL_EVERY)));
            self.reap(&mut done);
            done.clear();
        }
        true
    }

    /// The unfinished operations, in a line.
    fn waited_for(&self, left: Nanos) -> String {
        let name = |work: &DriverWork| match work {
            DriverWork::Disk(disk, _) => self.disks.get(*disk).disk.geometry.name.to_string(),
            DriverWork::Stream(_) => "connections".to_owned(),
            DriverWork::Port(_) => "block devices of volumes".to_owned(),
        };
        let mut waited_for: BTreeMap<String, usize> = BTreeMap::new();
        for (_, slot) in self.slots.iter().filter(|(_, slot)| ends(&slot.work)) {
            *waited_for.entry(name(&slot.work)).or_default() += 1;
        }
        let each = waited_for
            .iter()
            .map(|(name, count)| format!("{name} ({count})"));
        let each: Vec<String> = each.collect();
        let left = left.0.div_ceil(1_000_000_000);
        format!(
            "operations have not ended on {}; they are waited for, at most {left} s; after that \
             the kernel keeps this process until they end",
            each.join(", ")
        )
    }

    fn drain_max(&self) -> Nanos {
        match self.host.ends_by.load(Relaxed) {
            0 => DRAIN_MAX,
            ends_by => Nanos(ends_by).since(self.now()).max(DRAIN_MIN),
        }
    }

    fn cancel_waiting(&mut self) {
        let streams = self.slots.iter();
        let streams = streams.filter(|(_, slot)| matches!(slot.work, DriverWork::Stream(_)));
        let waiting: Vec<u64> = streams.map(|(key, _)| key as u64).collect();
        for user_data in waiting {
            let entry = opcode::AsyncCancel::new(user_data).build();
            // SAFETY: the entry points at no memory. Without room, a later call tries again.
            unsafe { self.push_bare(entry.user_data(CANCEL)) };
        }
    }
}

/// True if an operation ends by itself, or when cancelled. Tags that wait for a request end only
/// with their ring, and own no memory that the kernel writes to.
fn ends(work: &DriverWork) -> bool {
    match work {
        DriverWork::Disk(..) | DriverWork::Stream(_) => true,
        DriverWork::Port(op) => op.owns_memory(),
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        let ended = self.end(self.drain_max());
        self.host.has_given_up.fetch_or(!ended, SeqCst);
        if !ended && !self.ports.is_empty() {
            // Unfinished operations may still land: no other server may begin before.
            return;
        }
        // The kernel takes a ring down in the background, perhaps much later. The next process that
        // claims the disks must not wait for that, so no file may be registered.
        let _ = self.ring.io.submitter().unregister_files();
    }
}
