//! A log's devices and its origin, as far as they could be opened.

use crate::arrays::{Devices, Lease};
use crate::platform::Platform;
use block::{IoError, Sectors};
use control::config::{self, Name};
use std::rc::Rc;

/// A device, or why it cannot be used.
pub(super) type Leased<P> = (Name, Result<Lease<P>, IoError>);

/// What was opened.
pub(super) struct Found<'a, P: Platform> {
    pub(super) platform: &'a P,
    pub(super) devices: &'a Rc<Devices<P>>,
    pub(super) volume: &'a config::Volume,
    pub(super) origin: &'a Lease<P>,
    /// Of the volume.
    pub(super) size: Sectors,
    /// Two.
    pub(super) logs: &'a [Leased<P>],
    pub(super) journal: Option<&'a Leased<P>>,
}

pub(super) fn said(error: IoError) -> String {
    error.to_string()
}
