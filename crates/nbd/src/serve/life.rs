//! Whether a connection goes on, and what its peer does.

use block::Signal;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How far a connection is in its life.
#[derive(Default)]
pub(super) struct Life {
    /// No more requests will come.
    pub(super) finished: Cell<bool>,
    killed: Cell<Option<&'static str>>,
    kill: Signal,
    /// Set when the export is withdrawn.
    withdrawn: RefCell<Option<Rc<Cell<bool>>>>,
    /// The peer owes bytes, or to take some.
    pub(super) receiving: Cell<bool>,
    pub(super) sending: Cell<bool>,
    progress: Cell<u32>,
    progress_seen: Cell<u32>,
}

impl Life {
    /// The peer did something.
    pub(super) fn has_progressed(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// Whether the peer has owed something since the last call.
    pub(super) fn has_stalled(&self) -> bool {
        let progress = self.progress.get();
        let same = self.progress_seen.replace(progress) == progress;
        // A peer that owes nothing starts afresh.
        let owes = self.receiving.get() || self.sending.get();
        if !owes {
            self.has_progressed();
        }
        same && owes
    }

    /// Marks it as killed; whether it was not before.
    pub(super) fn kill(&self, why: &'static str) -> bool {
        if self.killed.get().is_some() {
            return false;
        }
        self.killed.set(Some(why));
        true
    }

    /// Wakes who waits for its end.
    pub(super) fn notify_killed(&self) {
        self.kill.notify();
    }

    /// Waits until it is killed.
    pub(super) async fn is_killed(&self) {
        self.kill.until_some(|| self.killed.get().map(|_| ())).await;
    }

    /// Why it was killed, if it was.
    pub(super) fn killed(&self) -> Option<&'static str> {
        self.killed.get()
    }

    /// Names the flag that is set when the export is withdrawn.
    pub(super) fn serves(&self, withdrawn: Rc<Cell<bool>>) {
        *self.withdrawn.borrow_mut() = Some(withdrawn);
    }

    /// Whether the export it serves has been withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.borrow().as_ref().is_some_and(|w| w.get())
    }
}
