//! A volume of the configuration that is not served yet.

use block::Nanos;
use control::config;
use std::collections::BTreeSet;

/// A volume that waits.
pub struct Waiting {
    pub(super) volume: config::Volume,
    /// Why it could not be served the last time; empty before the first.
    pub why: String,
    pub(super) next: Nanos,
    pub(super) pause: Nanos,
    /// An attempt is under way.
    pub(super) trying: bool,
    /// What attempts have reported.
    pub(super) said: BTreeSet<String>,
}
