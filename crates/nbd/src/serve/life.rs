//! The life of a connection, and the progress of its peer.

use block::Signal;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// State of a connection's life.
#[derive(Default)]
pub(super) struct ConnectionLife {
    /// No more requests will come.
    pub(super) finished: Cell<bool>,
    killed: Cell<Option<&'static str>>,
    kill: Signal,
    /// Set when the export is withdrawn.
    withdrawn: RefCell<Option<Rc<Cell<bool>>>>,
    /// True while the peer has to send bytes (`receiving`), or to take some (`sending`).
    pub(super) receiving: Cell<bool>,
    pub(super) sending: Cell<bool>,
    progress: Cell<u32>,
    progress_seen: Cell<u32>,
}

impl ConnectionLife {
    /// The peer has made progress.
    pub(super) fn has_progressed(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// True if the peer has made no progress since the last call, while bytes of the peer, or a
    /// receive, are awaited.
    pub(super) fn has_stalled(&self) -> bool {
        let progress = self.progress.get();
        let same = self.progress_seen.replace(progress) == progress;
        // An idle peer gets the whole time again.
        let is_awaited = self.receiving.get() || self.sending.get();
        if !is_awaited {
            self.has_progressed();
        }
        same && is_awaited
    }

    /// Marks the connection as killed; true the first time.
    pub(super) fn kill(&self, why: &'static str) -> bool {
        if self.killed.get().is_some() {
            return false;
        }
        self.killed.set(Some(why));
        true
    }

    /// Wakes the waiters for its end.
    pub(super) fn notify_killed(&self) {
        self.kill.notify();
    }

    /// Waits until the connection is killed.
    pub(super) async fn is_killed(&self) {
        self.kill.until_some(|| self.killed.get().map(|_| ())).await;
    }

    /// Reason for which the connection was killed, if that happened.
    pub(super) fn killed(&self) -> Option<&'static str> {
        self.killed.get()
    }

    /// Names the flag that is set when the export is withdrawn.
    pub(super) fn serves(&self, withdrawn: Rc<Cell<bool>>) {
        *self.withdrawn.borrow_mut() = Some(withdrawn);
    }

    /// True if the connection's export has been withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.borrow().as_ref().is_some_and(|w| w.get())
    }
}
