//! The queue of changes: one at a time, in the order of their arrival.
//!
//! Invariant: the outcome of a change is known until [`OUTCOMES_MAX`] others have ended after it.
//!
//! Not here: carrying changes out (`turns`).

use block::{Peer, Signal};
use control::protocol::{ControlRequest, Reply};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Most waiting changes.
const WAITING_MAX: usize = 64;
/// Number of results that are kept.
const OUTCOMES_MAX: usize = 256;

/// A change before its end.
pub(super) struct Queued {
    pub(super) name: String,
    pub(super) request: ControlRequest,
    /// True if the files of the configuration are changed too.
    pub(super) lasts: bool,
    /// The client.
    pub(super) peer: Option<Peer>,
}

/// The changes of a node.
#[derive(Default)]
pub(super) struct ChangeQueue {
    waiting: RefCell<VecDeque<Queued>>,
    /// Name of the change that is being made, and its volume.
    running: RefCell<Option<(String, Option<String>)>>,
    ended: RefCell<VecDeque<(String, Reply)>>,
    accepted: Cell<u64>,
    /// Notified when a change has ended.
    changed: Signal,
}

/// The number of changes that wait already.
pub(super) struct Full(pub(super) usize);

impl ChangeQueue {
    /// True if a change is being made.
    pub(super) fn is_busy(&self) -> bool {
        self.running.borrow().is_some()
    }

    /// Waits until no change is being made.
    pub(super) async fn idle(&self) {
        self.changed.until(|| !self.is_busy()).await;
    }

    /// True if the change being made may concern `volume`.
    pub(super) fn is_about(&self, volume: &str) -> bool {
        let running = self.running.borrow();
        let about = running.as_ref().map(|(_, volume)| volume.as_deref());
        about.is_some_and(|about| about.is_none_or(|about| about == volume))
    }

    /// The result of the change called `name`, or its place in the queue.
    pub(super) fn look(&self, name: &str) -> Reply {
        let ended = self.ended.borrow();
        if let Some((_, reply)) = ended.iter().find(|(other, _)| other == name) {
            return Reply::Ended(Box::new(reply.clone()));
        }
        let running = self.running.borrow();
        if running.as_ref().is_some_and(|(other, _)| other == name) {
            return Reply::Waiting(0);
        }
        let waiting = self.waiting.borrow();
        match waiting.iter().position(|queued| queued.name == name) {
            Some(before) => Reply::Waiting(before + usize::from(running.is_some())),
            None => Reply::Ended(Box::new(Reply::Error(format!(
                "change {name} is not known: the daemon has been started since, or many changes \
                 have ended since; see `hotset status` for what it came to"
            )))),
        }
    }

    /// A unique number for a change.
    pub(super) fn number(&self) -> u64 {
        self.accepted.set(self.accepted.get() + 1);
        self.accepted.get()
    }

    /// Adds a change to the queue.
    pub(super) fn push(&self, queued: Queued) -> Result<(), Full> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            return Err(Full(WAITING_MAX));
        }
        // Requests that resume clients come before those that hold them.
        match queued.request {
            ControlRequest::Resume { .. } => waiting.push_front(queued),
            _ => waiting.push_back(queued),
        }
        Ok(())
    }

    /// Takes the next change and marks it as being made; `None` while another is.
    pub(super) fn begin(&self) -> Option<Queued> {
        if self.is_busy() {
            return None;
        }
        let next = self.waiting.borrow_mut().pop_front()?;
        let about = next.request.volume().map(str::to_owned);
        *self.running.borrow_mut() = Some((next.name.clone(), about));
        Some(next)
    }

    /// Ends the change that was being made.
    pub(super) fn end(&self, name: String, reply: Reply) {
        *self.running.borrow_mut() = None;
        self.note(name, reply);
    }

    /// Records the result of a change.
    pub(super) fn note(&self, name: String, reply: Reply) {
        let mut ended = self.ended.borrow_mut();
        ended.push_back((name, reply));
        if ended.len() > OUTCOMES_MAX {
            ended.pop_front();
        }
        drop(ended);
        self.changed.notify();
    }

    /// Waits for the result of a change.
    pub(super) async fn outcome(&self, name: &str) -> Reply {
        let ended = || match self.look(name) {
            Reply::Ended(reply) => Some(*reply),
            _ => None,
        };
        self.changed.until_some(ended).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, request: ControlRequest) -> Queued {
        Queued {
            name: name.into(),
            request,
            lasts: false,
            peer: None,
        }
    }

    #[test]
    fn changes_begin_in_order_and_their_outcomes_are_known_for_a_while() {
        let queue = ChangeQueue::default();
        for name in ["a", "b"] {
            assert!(queue.push(change(name, ControlRequest::Reload)).is_ok());
        }
        let volume = "v".to_owned();
        let resume = change("r", ControlRequest::Resume { volume });
        assert_eq!(queue.begin().map(|next| next.name).as_deref(), Some("a"));
        assert!(queue.push(resume).is_ok() && queue.begin().is_none());
        assert!(matches!(queue.look("a"), Reply::Waiting(0)));
        assert!(matches!(queue.look("r"), Reply::Waiting(1)));
        assert!(matches!(queue.look("b"), Reply::Waiting(2)));
        // A change that may concern any volume concerns each.
        assert!(queue.is_about("v") && queue.is_about("w"));
        queue.end("a".into(), Reply::Done);
        assert_eq!(queue.begin().map(|next| next.name).as_deref(), Some("r"));
        assert!(queue.is_about("v") && !queue.is_about("w"));
        let done = |name: &str| match queue.look(name) {
            Reply::Ended(reply) => matches!(*reply, Reply::Done),
            _ => false,
        };
        assert!(done("a"));
        for n in 0..OUTCOMES_MAX {
            queue.note(n.to_string(), Reply::Done);
        }
        assert!(!done("a") && done("0"));
        while queue.push(change("x", ControlRequest::Reload)).is_ok() {}
        assert_eq!(queue.waiting.borrow().len(), WAITING_MAX);
    }
}
