//! The opened devices of a log and its origin, and the records that no device has.

use crate::arrays::{Lease, OpenDevices};
use crate::platform::Platform;
use block::{IoError, SECTOR_BYTES, Sectors};
use control::config::{self, ByteCount, Name};
use layout::BLOCK_SECTORS;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

/// A device, or the reason why it cannot be used.
pub(super) type Leased<P> = (Name, Result<Lease<P>, IoError>);

/// The opened devices of a volume to recover.
pub(super) struct RecoveredLog<'a, P: Platform> {
    pub(super) platform: &'a P,
    pub(super) devices: &'a Rc<OpenDevices<P>>,
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
pub(super) struct LostRecords {
    records: String,
    blocks: Vec<Range<u64>>,
}

/// The reason of a node to refuse a log without `records`.
pub(super) fn missing(records: &str) -> String {
    format!("no device that is here has record {records} of the log, which was there")
}

impl LostRecords {
    pub(super) fn new(records: String, blocks: &[Range<u64>]) -> LostRecords {
        LostRecords {
            records,
            blocks: blocks.to_vec(),
        }
    }
}

impl fmt::Display for LostRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "but not record {}, which is lost", self.records)?;
        let Some(first) = self.blocks.first() else {
            return Ok(());
        };
        let block = BLOCK_SECTORS * SECTOR_BYTES;
        let lost: u64 = self.blocks.iter().map(|run| run.end - run.start).sum();
        let (lost, at) = (ByteCount(lost * block), first.start * block);
        write!(f, ": {lost} that keep older bytes, the first at byte {at}")
    }
}
