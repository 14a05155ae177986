//! One queue of a guest: a split ring in its memory, and the events for notification.
//!
//! Invariants:
//!     a head is marked as in flight from `pop` to `push`
//!     a broken ring gives nothing until its guest sets it up again
//!     a ring is served ⟹ its size, place and indices are those of its start
//!     its memory was taken away ⟹ the ring is broken, and nothing that was read since is served
//!     answers to requests that were popped before a stop still reach the ring

use crate::inflight::RingMarks;
use crate::memory::Memory;
use crate::request::DescriptorTable;
use crate::shape::Bell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

/// Reason why a ring is not served any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RingBroken(pub(crate) String);

/// A ring, complete or not.
pub(crate) struct VirtRing {
    pub(crate) queue: Queue,
    /// Memory of the ring; set once the ring is served.
    memory: Option<Arc<Memory>>,
    pub(crate) enabled: bool,
    /// Signals answers.
    pub(crate) call: Option<Bell>,
    /// Signals that the ring is broken.
    pub(crate) err: Option<Bell>,
    marks: Option<RingMarks>,
    /// Heads that the previous daemon has left.
    left: VecDeque<u16>,
    /// Heads that were popped and not pushed.
    pub(crate) in_hand: u32,
}

impl VirtRing {
    pub(crate) fn new(len_max: u16) -> VirtRing {
        VirtRing {
            queue: Queue::new(len_max).expect("a power of two"),
            memory: None,
            enabled: false,
            call: None,
            err: None,
            marks: None,
            left: VecDeque::new(),
            in_hand: 0,
        }
    }

    /// Starts the ring as set up. First come the requests that `marks` report; returns their
    /// number.
    pub(crate) fn start(
        &mut self,
        memory: Arc<Memory>,
        mut marks: Option<RingMarks>,
    ) -> Result<usize, RingBroken> {
        if self.in_hand > 0 {
            return Err(RingBroken("it is served already".into()));
        }
        self.queue.set_ready(true);
        if !self.queue.is_valid(memory.parts()) {
            return Err(RingBroken("it does not lie in the guest's memory".into()));
        }
        let used = self.queue.used_idx(memory.parts(), Ordering::Acquire);
        let used = used.map_err(broken)?.0;
        self.queue.set_next_used(used);
        if let Some(marks) = &mut marks {
            self.left = marks.recover(used).into();
            let taken = used.wrapping_add(self.left.len() as u16);
            self.queue.set_next_avail(taken);
        }
        (self.marks, self.memory) = (marks, Some(memory));
        Ok(self.left.len())
    }

    /// Takes no further requests; popped requests are still answered.
    pub(crate) fn stop(&mut self) {
        self.memory = None;
    }

    /// Returns the queue for its set-up. Fails while the ring is served, for its requests are in
    /// the old place.
    pub(crate) fn unserved(&mut self) -> Result<&mut Queue, RingBroken> {
        match self.has_started() || self.in_hand > 0 {
            true => Err(RingBroken("it is served, and may not be changed".into())),
            false => Ok(&mut self.queue),
        }
    }

    /// True if the ring was started and not stopped.
    pub(crate) fn has_started(&self) -> bool {
        self.memory.is_some()
    }

    /// True if requests are taken from the ring.
    pub(crate) fn is_served(&self) -> bool {
        self.memory.is_some() && self.enabled
    }

    /// Moves the ring to other memory.
    pub(crate) fn move_to(&mut self, memory: &Arc<Memory>) {
        if self.memory.is_some() {
            self.memory = Some(memory.clone());
        }
    }

    /// Returns the table of the ring's descriptors.
    pub(crate) fn table(&self) -> DescriptorTable {
        DescriptorTable {
            at: GuestAddress(self.queue.desc_table()),
            len: self.queue.size(),
        }
    }

    /// Takes the head of the next request, if there is one.
    pub(crate) fn pop(&mut self) -> Result<Option<(u16, Arc<Memory>)>, RingBroken> {
        let Some(memory) = self.memory.as_ref().filter(|_| self.enabled) else {
            return Ok(None);
        };
        self.is_there(memory)?;
        let head = match self.left.pop_front() {
            // Its mark is still there.
            Some(head) => head,
            None => {
                let mut chains = self.queue.iter(memory.parts()).map_err(broken)?;
                let Some(chain) = chains.next() else {
                    return Ok(None);
                };
                let head = chain.head_index();
                let marked = self.marks.as_ref().map_or(u16::MAX, RingMarks::len);
                if head >= self.queue.size().min(marked) {
                    return Err(RingBroken(format!("it has no descriptor {head}")));
                }
                if let Some(marks) = &mut self.marks {
                    marks.begin(head);
                }
                head
            }
        };
        // The value read may come from zeroes in the place of the lost memory.
        self.is_there(memory)?;
        self.in_hand += 1;
        Ok(Some((head, memory.clone())))
    }

    /// Fails if the memory of the ring, or of its marks, was taken away.
    fn is_there(&self, memory: &Memory) -> Result<(), RingBroken> {
        match memory.is_lost() || self.marks.as_ref().is_some_and(RingMarks::is_lost) {
            true => Err(RingBroken("its memory was taken away".into())),
            false => Ok(()),
        }
    }

    /// Returns true if there is a request to pop. If not, the guest will signal the next one.
    pub(crate) fn has_more(&mut self) -> Result<bool, RingBroken> {
        let Some(memory) = self.memory.as_ref().filter(|_| self.enabled) else {
            return Ok(false);
        };
        self.is_there(memory)?;
        if !self.left.is_empty() {
            return Ok(true);
        }
        self.queue
            .enable_notification(memory.parts())
            .map_err(broken)
    }

    /// Gives `head` back, with `written` bytes in its buffers, and signals that if the guest wants
    /// it.
    pub(crate) fn push(
        &mut self,
        memory: &Memory,
        head: u16,
        written: u32,
    ) -> Result<(), RingBroken> {
        self.in_hand -= 1;
        if let Some(marks) = &self.marks {
            marks.ending(head);
        }
        self.queue
            .add_used(memory.parts(), head, written)
            .map_err(broken)?;
        if let Some(marks) = &self.marks {
            marks.ended(head, self.queue.next_used());
        }
        if self
            .queue
            .needs_notification(memory.parts())
            .map_err(broken)?
        {
            ring(&mut self.call);
        }
        Ok(())
    }

    /// Ends the service of a ring that is broken.
    pub(crate) fn give_up(&mut self) {
        self.stop();
        ring(&mut self.err);
    }
}

fn ring(bell: &mut Option<Bell>) {
    if let Some(bell) = bell {
        bell();
    }
}

fn broken(error: impl ToString) -> RingBroken {
    RingBroken(error.to_string())
}
