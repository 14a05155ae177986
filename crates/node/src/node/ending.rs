//! The progress of a node's end, and the line about the parts for which it waits.
//!
//! Invariant: a part that has ended, or was given up, is not named any more.
//!
//! Not here: the end itself (`stop`).

use super::Node;
use crate::platform::Platform;
use block::Nanos;
use control::config::{ByteCount, Name};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A device that has answered nothing for so long is named.
const UNANSWERED: Nanos = Nanos::from_secs(1);

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

impl<P: Platform> Node<P> {
    /// The parts that the end waits for; `None` before the end begins.
    pub fn waits_at_end(&self) -> Option<EndWait> {
        let now = self.env().timer.now();
        let left = self.ending.by.get()?.since(now);
        let step = self.step_of_end();
        let (mut what, mut line) = (step.clone(), format!("waiting for {step}"));
        line += &self.dirty_at_end();
        let open = self.devices.open.borrow();
        for (name, opened) in open.iter() {
            let meter = opened.leaf.meter();
            let since = meter.unanswered_since();
            let Some(since) = since.filter(|since| now.since(*since) >= UNANSWERED) else {
                continue;
            };
            what += &format!(", {name}");
            let count = meter.in_flight();
            line += &format!(
                "; device {name} has answered none of {count} operations for {}: see to it",
                whole_seconds(now.since(since))
            );
        }
        line += &format!("; the end comes within {}", whole_seconds(left));
        Some(EndWait { what, line })
    }

    /// The dirty data of volumes that have not ended.
    fn dirty_at_end(&self) -> String {
        let EndStep::Volumes(left) = &*self.ending.step.borrow() else {
            return String::new();
        };
        let dirty = left.iter().filter_map(|name| {
            let dirty = self.log_status(name)?.dirty_bytes;
            (dirty > 0).then(|| format!("; {} of volume {name} are dirty", ByteCount(dirty)))
        });
        dirty.collect()
    }

    fn step_of_end(&self) -> String {
        match &*self.ending.step.borrow() {
            EndStep::Changes if self.queue.is_busy() => "the change that is being made".into(),
            EndStep::Changes => "volumes and logs that are being opened".into(),
            EndStep::Clients => "clients to end their requests".into(),
            EndStep::Volumes(left) => format!("the last writes of {}", names("volume", left)),
            EndStep::Pools(left) => format!("{} to keep what is cached", names("pool", left)),
            EndStep::Arrays => "arrays to end".into(),
        }
    }
}

fn names(kind: &str, names: &BTreeSet<Name>) -> String {
    let list: Vec<&str> = names.iter().map(Name::as_str).collect();
    let plural = if list.len() == 1 { "" } else { "s" };
    format!("{kind}{plural} {}", list.join(", "))
}

fn whole_seconds(span: Nanos) -> String {
    format!("{} s", span.0.div_ceil(1_000_000_000))
}
