//! The write-back log: dirty data of a volume.
//!
//! An area of segments of 1 MiB, each a header and then records; a record is a header
//! and its blocks. Both copies of a segment hold the same bytes, so the salt is the
//! log's. A record is whole only with all of its blocks: its header has their CRC32C.
//!
//! ```text
//! segment: header | record | record | ...          record: header | block | block ...
//! ```
//!
//! The header also has the summary of the segment before (`summary`).
//!
//! Invariants:
//!     a record of another segment or log, or with a torn block, is none
//!     of two records with one number the one of the later incarnation holds
//!     a record at or past the fence of a later incarnation than its own is void

use crate::Uuid;
use crate::page::{PageError, PageHeader, kind, open, seal};
use crate::record::record;
use crate::summary::{SUMMARY_AT, SegmentSummary};

const SEGMENT_KIND: u32 = kind(*b"HSSG");

record! {
    /// The fields of a segment's header after the header of every block.
    SegmentRow, 32 {
        0 log: u32, "1, the log's number: its uuid is the salt";
        4 volume: u32, "1, the volume's number: a log has one volume";
        8 member: u16, "the member with the first copy";
        10 mate: u16, "the member with the second";
        12 slot: u32, "which segment of its area the first copy is";
        16 mate_slot: u32, "which the second is";
        20 reserved: u32, "zero";
        24 reserved2: u64, "zero";
    }
}

/// The number of each log, and of its volume, in segments and records: a log has its devices
/// for itself, and its uuid is the salt of both.
pub const LOG_NUMBER: u32 = 1;

const _: () = assert!(SegmentRow::BYTES == SUMMARY_AT);

/// Place of one copy of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentCopy {
    /// The member.
    pub member: u16,
    /// The segment's number in the member's area.
    pub slot: u32,
}

/// The header of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Counts the segments of the log; never given twice.
    pub number: u64,
    /// The incarnation that wrote the segment.
    pub incarnation: u32,
    /// [`LOG_NUMBER`].
    pub log: u32,
    /// Both copies.
    pub copies: [SegmentCopy; 2],
    /// The summary of the segment before.
    pub summary: Option<SegmentSummary>,
}

impl Segment {
    /// Writes the header to a block.
    pub fn encode(&self, log: Uuid, out: &mut [u8]) {
        let [first, second] = self.copies;
        let row = SegmentRow {
            log: self.log,
            volume: LOG_NUMBER,
            member: first.member,
            mate: second.member,
            slot: first.slot,
            mate_slot: second.slot,
            reserved: 0,
            reserved2: 0,
        };
        let body = &mut out[PageHeader::BYTES..];
        row.encode(body);
        let mut used = SegmentRow::BYTES;
        if let Some(summary) = &self.summary {
            summary.encode(&mut body[used..]);
            used += summary.bytes();
        }
        seal(out, SEGMENT_KIND, log, self.number, used, self.incarnation);
    }

    /// Reads one.
    pub fn decode(block: &[u8], log: Uuid) -> Result<Segment, PageError> {
        let (header, body) = open(block, SEGMENT_KIND, log)?;
        let (row, rest) = body
            .split_at_checked(SegmentRow::BYTES)
            .ok_or(PageError::Nonsense)?;
        let row = SegmentRow::decode(row);
        let summary = (!rest.is_empty()).then(|| SegmentSummary::decode(rest));
        let copy = |member, slot| SegmentCopy { member, slot };
        Ok(Segment {
            number: header.number,
            incarnation: header.generation,
            log: row.log,
            copies: [copy(row.member, row.slot), copy(row.mate, row.mate_slot)],
            summary: summary.transpose()?,
        })
    }
}
