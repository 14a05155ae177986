//! Discards of clients that wait until the lines below them are discarded too.
//!
//! Invariant: a discard waits ⟹ one task is to take it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;

/// Most discards that wait. More leave out the oldest, whose slots are used again some day.
const WAITING_MAX: usize = 1024;

/// Blocks that clients have discarded, each run with its volume.
#[derive(Default)]
pub(super) struct ClientDiscards {
    waiting: RefCell<VecDeque<(u32, Range<u64>)>>,
    has_task: Cell<bool>,
}

impl ClientDiscards {
    /// Adds a discard. Returns true if the caller is to begin the task.
    pub(super) fn push(&self, volume: u32, blocks: Range<u64>) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((volume, blocks));
        !self.has_task.replace(true)
    }

    /// Takes the oldest discard; without one, the task is to end.
    pub(super) fn pop(&self) -> Option<(u32, Range<u64>)> {
        let next = self.waiting.borrow_mut().pop_front();
        self.has_task.set(next.is_some());
        next
    }
}
