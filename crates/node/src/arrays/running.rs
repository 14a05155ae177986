//! An array that runs, as its daemon knows it.

use crate::leaf::Leaf;
use crate::place::Opened;
use crate::platform::Platform;
use block::{Device as _, Driver, Nanos};
use control::config::{self, Name};
use filter::Swappable;
use raid::Array;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// A device is to take a member's place.
#[derive(Clone)]
pub(super) struct Exchange {
    /// The device of the member.
    pub old: Name,
    /// What takes its place.
    pub new: Name,
    /// When the configuration is to say how it ended, and the pause if it cannot.
    pub next: Nanos,
    pub pause: Nanos,
}

/// An array that runs.
pub(crate) struct Running {
    /// What its user has, whatever becomes of the array.
    pub(super) place: Swappable<Array>,
    pub(crate) config: config::Array,
    /// Members that were taken out by hand, and stay out.
    pub(crate) by_hand: RefCell<BTreeSet<Name>>,
    /// The exchange of a member that the configuration does not say yet.
    pub(super) exchange: RefCell<Option<Exchange>>,
    pub(crate) scrub: RefCell<Option<control::status::Scrub>>,
    /// Before that none begins by itself, for one has failed.
    pub(super) scrub_again: Cell<Nanos>,
    /// Events that the platform has had.
    pub(super) reported: Cell<u64>,
    /// What has to be there for the array to be reassembled.
    pub(super) needed: RefCell<Vec<Name>>,
    /// How often its members had failed when all of them answered last.
    pub(super) errors: Cell<u64>,
    /// What is open as one of its members is not what it has.
    pub(super) outdated: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl Running {
    /// The array as it is now.
    pub(crate) fn array(&self) -> Array {
        self.place.device()
    }

    /// The role of a member, by its device in `open` or its number.
    pub(crate) fn role<P: Platform>(
        &self,
        member: &str,
        open: &BTreeMap<Name, Opened<P>>,
    ) -> Result<usize, String> {
        let report = self.array().report();
        if let Ok(number) = member.parse::<usize>()
            && number < report.members.len()
        {
            return Ok(number);
        }
        let name = Name::new(member)?;
        let device = open
            .get(&name)
            .map(|opened| opened.leaf.geometry().name.clone());
        let has = |m: &raid::MemberReport| m.device.is_some() && m.device == device;
        report.members.iter().position(has).ok_or_else(|| {
            format!(
                "array {} has no member {member}; see `hotset array status`",
                report.name
            )
        })
    }

    /// Whether the array uses `leaf`, as a member or a spare.
    pub(crate) fn uses<D: Driver>(&self, leaf: &Leaf<D>) -> bool {
        let report = self.array().report();
        let name = &leaf.geometry().name;
        let lost = |m: &raid::MemberReport| m.state.is_failed();
        let member = |m: &raid::MemberReport| m.device.as_ref() == Some(name) && !lost(m);
        report.members.iter().any(member) || report.spares.contains(name)
    }
}
