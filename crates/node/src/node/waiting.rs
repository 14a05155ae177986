//! A volume of the configuration that is not served yet.

use block::Nanos;
use control::config;
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
