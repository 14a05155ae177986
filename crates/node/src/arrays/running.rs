//! The state of a running array.

use crate::leaf::Leaf;
use block::{Device as _, Driver, Nanos};
use control::config::{self, Name};
use filter::Swappable;
use raid::Array;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An exchange of a member's device for another.
#[derive(Clone)]
pub(super) struct Exchange {
    /// The device of the member.
    pub old: Name,
    /// The device that replaces it.
    pub new: Name,
    /// Next attempt to write the end of the exchange to the configuration, and the pause after a
    /// failure.
    pub next: Nanos,
    pub pause: Nanos,
}

/// An array that runs.
pub(crate) struct RunningArray {
    /// The device of the array's user, kept through each reassembly.
    pub(super) place: Swappable<Array>,
    pub(crate) config: config::Array,
    /// Members that an operator took out, and that stay out.
    pub(crate) by_hand: RefCell<BTreeSet<Name>>,
    /// The exchange of a member whose end is not in the configuration yet.
    pub(super) exchange: RefCell<Option<Exchange>>,
    pub(crate) scrub: RefCell<Option<control::status::ScrubStatus>>,
    /// No automatic scrub begins before this time, after one has failed.
    pub(super) scrub_again: Cell<Nanos>,
    /// Number of events already reported to the platform.
    pub(super) reported: Cell<u64>,
    /// Members that must be present to reassemble the array.
    pub(super) needed: RefCell<Vec<Name>>,
    /// Failed requests of the members when all of them last answered.
    pub(super) errors: Cell<u64>,
    /// True if a device open as a member is not the one that the array has.
    pub(super) outdated: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl RunningArray {
    /// The present array.
    pub(crate) fn array(&self) -> Array {
        self.place.device()
    }

    /// The role of a member, by its device, of those `called` so in reports, or its number.
    pub(crate) fn role(
        &self,
        member: &str,
        called: &BTreeMap<Name, Arc<str>>,
    ) -> Result<usize, String> {
        let report = self.array().report();
        if let Ok(number) = member.parse::<usize>()
            && number < report.members.len()
        {
            return Ok(number);
        }
        let name = Name::new(member)?;
        let device = called.get(&name);
        let has = |m: &raid::MemberReport| device.is_some() && m.device.as_ref() == device;
        report.members.iter().position(has).ok_or_else(|| {
            format!(
                "array {} has no member {member}; see `hotset array status`",
                report.name
            )
        })
    }

    /// True if the array uses `leaf` as a member or a spare.
    pub(crate) fn uses<D: Driver>(&self, leaf: &Leaf<D>) -> bool {
        let report = self.array().report();
        let name = &leaf.geometry().name;
        let lost = |m: &raid::MemberReport| m.state.is_failed();
        let member = |m: &raid::MemberReport| m.device.as_ref() == Some(name) && !lost(m);
        report.members.iter().any(member) || report.spares.contains(name)
    }
}
