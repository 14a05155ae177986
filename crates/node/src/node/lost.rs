//! What pools and logs had lost when it was last looked.

use cache::DeviceId;
use control::config::Name;
use std::collections::HashSet;

/// What was said to be lost.
#[derive(Default)]
pub(super) struct Losses {
    /// Devices of pools.
    pub(super) ejected: HashSet<(Name, DeviceId)>,
    /// Copies of the logs of volumes.
    pub(super) copies: HashSet<(Name, Name)>,
    /// Volumes whose journals are lost.
    pub(super) journals: HashSet<Name>,
    /// Volumes whose logs are.
    pub(super) logs: HashSet<Name>,
}
