//! Volumes of the configuration that are not served yet, and the hosts that have their origins.

use block::Nanos;
use control::config::{self, Name};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A volume that waits.
pub struct WaitingVolume {
    pub(super) volume: config::Volume,
    /// Reason of the last failed attempt; empty before the first.
    pub why: String,
    pub(super) next: Nanos,
    pub(super) pause: Nanos,
    /// True while an attempt is running.
    pub(super) trying: bool,
    /// Lines that attempts have reported.
    pub(super) said: BTreeSet<String>,
}

/// The reservations of a node.
#[derive(Default)]
pub(super) struct Reservations {
    /// Volumes with an origin that another host has reserved.
    pub(super) elsewhere: RefCell<BTreeSet<Name>>,
    /// Volumes with a look under way.
    pub(super) looking: RefCell<BTreeSet<Name>>,
}

impl Reservations {
    /// True if another host has reserved the origin of `volume`, as far as is known.
    pub(super) fn is_elsewhere(&self, volume: &Name) -> bool {
        self.elsewhere.borrow().contains(volume)
    }
}
