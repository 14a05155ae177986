//! What an administrator should know of an array.
//!
//! Invariant: a member that is tried again and again without becoming in sync
//!     ⟹ what is logged of it is logged once, for as long as it fails in the same few ways

use crate::core::Core;
use block::Nanos;

/// Something that an administrator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When.
    pub at: Nanos,
    /// One sentence.
    pub what: String,
}

/// The most events that are kept.
const EVENTS_MAX: usize = 64;

/// How many sentences are remembered of a role.
const LOGGED_MAX: usize = 16;

impl Core {
    pub fn log(&self, what: String) {
        let mut events = self.events.borrow_mut();
        if events.len() == EVENTS_MAX {
            events.remove(0);
        }
        events.push(Event {
            at: self.env.timer.now(),
            what,
        });
        self.event_count.set(self.event_count.get() + 1);
    }

    /// Logs what becomes of the member of `role`, unless that has been logged since it was
    /// last in sync.
    pub fn log_once(&self, role: usize, what: String) {
        let mut logged = self.slots[role].logged.borrow_mut();
        if logged.len() == LOGGED_MAX {
            logged.clear();
        }
        if logged.insert(what.clone()) {
            self.log(format!("{}: {what}", self.name));
        }
    }

    /// The member of `role` is in sync: what becomes of it from here on is news.
    pub fn forget_logged(&self, role: usize) {
        self.slots[role].logged.borrow_mut().clear();
    }
}
