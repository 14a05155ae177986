//! The summary of a segment of the write-back log: the changes of its records, so that an opening
//! need not read them. The header of the next segment holds the summary, since it has room.
//!
//! After [`SummaryRow`] each record has these numbers, as LEB128 of at most 64 bits but for the
//! last: the incarnations since the record before (the first: its incarnation) and, unless that is
//! 0, its `fence`; the intervals and the nanoseconds since the record before (the first: its own);
//! its extents; of each its block, and four times its count plus its new state; and then a
//! CRC32C of four bytes for each block of data.
//!
//! Invariant: a summary with records has all that its segment got since `offset`.
//!
//! Not here: proof that the copies have the records whole, which `durable_to` gives.

use crate::log_record::{
    LogRecord, RECORD_BLOCKS_MAX, RECORD_EXTENTS_MAX, RecordExtent, SEGMENT_BLOCKS, crcs_of,
    data_blocks,
};
use crate::page::{BODY_BYTES, PageError};
use crate::record::record;
use unsigned_varint::{decode, encode};

record! {
    /// The fields in the header of a segment that is not the first.
    SummaryRow, 48 {
        0 segment: u64, "the number of the segment before, which the summary is of";
        8 first: u64, "the number of the first record that it has";
        16 durable_to: u64, "every record before this number was durable when the header was written, on each copy that was trusted";
        24 written_back_to: u64, "every record before this number was at the origin then, durably";
        32 offset: u32, "the block of the segment that the first record begins at";
        36 records: u32, "how many records follow; 0 also if there is no room for all";
        40 reserved: u64, "zero";
    }
}

/// Place of the summary in the body of a header.
pub(crate) const SUMMARY_AT: usize = 32;
/// Bytes that the records may have.
const ROOM: usize = BODY_BYTES - SUMMARY_AT - SummaryRow::BYTES;

/// The summary of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentSummary {
    /// The number of the segment.
    pub segment: u64,
    /// Every record of the log before this number was durable on each copy that was trusted.
    pub durable_to: u64,
    /// Every record of the log before this number was at the origin, durably.
    pub written_back_to: u64,
    first: u64,
    offset: u32,
    records: u32,
    bytes: Vec<u8>,
}

/// The summary of a segment that is being filled.
pub struct SummaryWriter {
    summary: SegmentSummary,
    /// The number from which the next record is counted.
    last: LastEntry,
    /// The records do not all fit.
    is_full: bool,
}

#[derive(Clone, Copy, Default)]
struct LastEntry {
    incarnation: u32,
    fence: u64,
    interval: u64,
    written_at: u64,
}

impl SummaryWriter {
    /// The summary of a segment; the next record, number `first`, begins at the segment's block
    /// `offset`.
    pub fn new(segment: u64, first: u64, offset: u32) -> SummaryWriter {
        SummaryWriter {
            summary: SegmentSummary {
                segment,
                durable_to: 0,
                written_back_to: 0,
                first,
                offset,
                records: 0,
                bytes: Vec::with_capacity(ROOM),
            },
            last: LastEntry::default(),
            is_full: false,
        }
    }

    /// Adds the next record.
    pub fn push(&mut self, record: &LogRecord) {
        if self.is_full {
            return;
        }
        let last = self.last;
        let incarnations = record.incarnation.wrapping_sub(last.incarnation);
        self.put(incarnations.into());
        if incarnations != 0 {
            self.put(record.fence);
        }
        self.put(record.interval.wrapping_sub(last.interval));
        self.put(record.written_at.wrapping_sub(last.written_at));
        self.put(record.extents.len() as u64);
        for extent in &record.extents {
            self.put(extent.block);
            self.put(u64::from(extent.count) << 2 | extent.became as u64);
        }
        let bytes = &mut self.summary.bytes;
        bytes.extend(record.crcs.iter().flat_map(|crc| crc.to_le_bytes()));
        self.last = LastEntry {
            incarnation: record.incarnation,
            fence: record.fence,
            interval: record.interval,
            written_at: record.written_at,
        };
        self.summary.records += 1;
        if bytes.len() > ROOM {
            self.is_full = true;
            bytes.clear();
            self.summary.records = 0;
        }
    }

    fn put(&mut self, number: u64) {
        let mut buf = encode::u64_buffer();
        self.summary.bytes.extend(encode::u64(number, &mut buf));
    }

    /// The summary, with the numbers up to which the log was durable and done at its time.
    pub fn finish(mut self, durable_to: u64, written_back_to: u64) -> SegmentSummary {
        (self.summary.durable_to, self.summary.written_back_to) = (durable_to, written_back_to);
        self.summary
    }
}

impl SegmentSummary {
    /// Bytes of the summary.
    pub(crate) fn bytes(&self) -> usize {
        SummaryRow::BYTES + self.bytes.len()
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        let row = SummaryRow {
            segment: self.segment,
            first: self.first,
            durable_to: self.durable_to,
            written_back_to: self.written_back_to,
            offset: self.offset,
            records: self.records,
            reserved: 0,
        };
        row.encode(out);
        out[SummaryRow::BYTES..][..self.bytes.len()].copy_from_slice(&self.bytes);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentSummary, PageError> {
        let (row, bytes) = bytes
            .split_at_checked(SummaryRow::BYTES)
            .ok_or(PageError::Nonsense)?;
        let row = SummaryRow::decode(row);
        Ok(SegmentSummary {
            segment: row.segment,
            durable_to: row.durable_to,
            written_back_to: row.written_back_to,
            first: row.first,
            offset: row.offset,
            records: row.records,
            bytes: bytes.to_vec(),
        })
    }

    /// The records, of `log`, each with its first block in the segment. Their `written_back_to` and
    /// `durable_to` are the summary's, and `complete_to` is unknown.
    pub fn records(&self, log: u32) -> Result<Vec<(u32, LogRecord)>, PageError> {
        let mut last = LastEntry::default();
        let (mut rest, mut at) = (&self.bytes[..], self.offset);
        let mut records = Vec::new();
        let end = self.first.checked_add(u64::from(self.records));
        for number in self.first..end.ok_or(PageError::Nonsense)? {
            let incarnations = u32::try_from(take(&mut rest)?);
            let incarnations = incarnations.map_err(|_| PageError::Nonsense)?;
            last.incarnation = last.incarnation.wrapping_add(incarnations);
            if incarnations != 0 {
                last.fence = take(&mut rest)?;
            }
            last.interval = last.interval.wrapping_add(take(&mut rest)?);
            last.written_at = last.written_at.wrapping_add(take(&mut rest)?);
            let extents = take(&mut rest)?;
            if extents > u64::from(RECORD_EXTENTS_MAX) {
                return Err(PageError::Nonsense);
            }
            let extents = (0..extents).map(|_| extent(&mut rest));
            let extents = extents.collect::<Result<Vec<_>, _>>()?;
            let blocks = data_blocks(&extents);
            if blocks > u64::from(RECORD_BLOCKS_MAX) {
                return Err(PageError::Nonsense);
            }
            let (crcs, after) = rest
                .split_at_checked(4 * blocks as usize)
                .ok_or(PageError::Nonsense)?;
            rest = after;
            let record = LogRecord {
                number,
                incarnation: last.incarnation,
                segment: self.segment,
                interval: last.interval,
                written_back_to: self.written_back_to,
                fence: last.fence,
                written_at: last.written_at,
                durable_to: self.durable_to,
                complete_to: 0,
                log,
                extents,
                crcs: crcs_of(crcs),
            };
            let end = at.checked_add(record.blocks());
            let end = end.filter(|end| *end <= SEGMENT_BLOCKS && at > 0);
            records.push((at, record));
            at = end.ok_or(PageError::Nonsense)?;
        }
        match rest {
            [] => Ok(records),
            _ => Err(PageError::Nonsense),
        }
    }

    /// The number after the last record; none if there is no record.
    pub fn end(&self) -> Option<u64> {
        let has = self.records > 0;
        self.first
            .checked_add(u64::from(self.records))
            .filter(|_| has)
    }
}

fn take(rest: &mut &[u8]) -> Result<u64, PageError> {
    let (number, after) = decode::u64(rest).map_err(|_| PageError::Nonsense)?;
    *rest = after;
    Ok(number)
}

fn extent(rest: &mut &[u8]) -> Result<RecordExtent, PageError> {
    let block = take(rest)?;
    let what = take(rest)?;
    let count = u32::try_from(what >> 2).map_err(|_| PageError::Nonsense)?;
    RecordExtent::new(block, count, (what & 3) as u32)
}
