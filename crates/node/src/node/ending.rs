//! The progress of a node's end.
//!
//! Invariant: a part that has ended, or was given up, is not named any more.
//!
//! Not here: the end itself, and the line about it (`stop`).

use block::Nanos;
use control::config::Name;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A step of the end; those of names have the parts that have not ended.
#[derive(Default)]
pub(super) enum EndStep {
    #[default]
    Changes,
    Clients,
    Volumes(BTreeSet<Name>),
    Pools(BTreeSet<Name>),
    Arrays,
}

/// The progress of the end.
#[derive(Default)]
pub(super) struct NodeEnd {
    /// When everything is given up; `None` before the end begins.
    pub(super) by: Cell<Option<Nanos>>,
    pub(super) step: RefCell<EndStep>,
}

impl NodeEnd {
    /// Notes that the end has begun, and is over by `by`.
    pub(super) fn begin(&self, by: Nanos) {
        self.by.set(Some(by));
    }

    /// Goes on to the next step.
    pub(super) fn go_on(&self, step: EndStep) {
        *self.step.borrow_mut() = step;
    }

    /// Notes that one part of the step has ended.
    pub(super) fn is_done(&self, part: &Name) {
        if let EndStep::Volumes(left) | EndStep::Pools(left) = &mut *self.step.borrow_mut() {
            left.remove(part);
        }
    }
}

/// The parts of a node that its end waits for.
pub struct EndWait {
    /// The parts and the devices, without figures that change.
    pub what: String,
    /// The line for people.
    pub line: String,
}
