//! Events of an array that its administrator should know.
//!
//! Invariant: a member is tried again and again without becoming in sync
//!     ⟹ each message about it is logged once, for as long as it fails in the same few ways

use crate::core::ArrayCore;
use block::Nanos;

/// An event for the administrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayEvent {
    /// Time of the event.
    pub at: Nanos,
    /// One sentence.
    pub what: String,
}

/// Most events that are kept.
const EVENTS_MAX: usize = 64;

/// Number of remembered sentences of a role.
const LOGGED_MAX: usize = 16;

impl ArrayCore {
    pub fn log(&self, what: String) {
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.remove(0);
        }
        events.push(ArrayEvent {
            at: self.env.timer.now(),
            what,
        });
        self.event_count.set(self.event_count.get() + 1);
    }

    /// Logs an event of the member of `role`, unless it has been logged since the member was last
    /// in sync.
    pub fn log_once(&self, role: usize, what: String) {
        let mut logged = self.slots[role].logged.borrow_mut();
        if logged.len() == LOGGED_MAX {
            logged.clear();
        }
        if logged.insert(what.clone()) {
            self.log(format!("{}: {what}", self.name));
        }
    }

    /// Forgets the logged events of the member of `role`, which is in sync: later ones are news.
    pub fn forget_logged(&self, role: usize) {
        self.slots[role].logged.borrow_mut().clear();
    }
}
