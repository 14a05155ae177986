//! The opened devices of a log and its origin, and the records that no device has.

use crate::arrays::{Devices, Lease};
use crate::platform::Platform;
use block::{IoError, SECTOR_BYTES, Sectors};
use control::config::{self, Bytes, Name};
use layout::BLOCK_SECTORS;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// A device, or the reason why it cannot be used.
pub(super) type Leased<P> = (Name, Result<Lease<P>, IoError>);

/// The opened devices of a volume to recover.
pub(super) struct Found<'a, P: Platform> {
    pub(super) platform: &'a P,
    pub(super) devices: &'a Rc<Devices<P>>,
    pub(super) volume: &'a config::Volume,
    pub(super) origin: &'a Lease<P>,
    /// Size of the volume.
    pub(super) size: Sectors,
    /// Both devices of the log.
    pub(super) logs: &'a [Leased<P>],
    pub(super) journal: Option<&'a Leased<P>>,
}

pub(super) fn said(error: IoError) -> String {
    error.to_string()
}

/// Lost records, and the blocks known to have been in them.
pub(super) struct Lost {
    records: String,
    blocks: Vec<Range<u64>>,
}

/// The reason of a node to refuse a log without `records`.
pub(super) fn missing(records: &str) -> String {
    format!("no device that is here has record {records} of the log, which was there")
}

impl Lost {
    pub(super) fn new(records: String, blocks: &[Range<u64>]) -> Lost {
        Lost {
            records,
            blocks: blocks.to_vec(),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "but not record {}, which is lost", self.records)?;
        let Some(first) = self.blocks.first() else {
            return Ok(());
        };
        let block = BLOCK_SECTORS * SECTOR_BYTES;
        let lost: u64 = self.blocks.iter().map(|run| run.end - run.start).sum();
        let (lost, at) = (Bytes(lost * block), first.start * block);
        write!(f, ": {lost} that keep older bytes, the first at byte {at}")
    }
}
