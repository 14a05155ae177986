//! A record of the write-back log: a header, and then the blocks of writes.
//!
//! Invariant: a record of another segment or log, or with a torn block, is none: its header
//! has the CRC32C of each block.

use crate::page::{BODY_BYTES, PageError, PageHeader, kind, open, seal};
use crate::record::record;
use crate::{BLOCK_BYTES, BLOCK_SECTORS, Uuid};

const RECORD_KIND: u32 = kind(*b"HSRC");

/// Blocks of a segment.
pub const SEGMENT_BLOCKS: u32 = 256;
/// Blocks that a record has at most beside its header.
pub const RECORD_BLOCKS_MAX: u32 = 128;
/// Extents that a record has at most.
pub const RECORD_EXTENTS_MAX: u32 = 128;

record! {
    /// The fields of a record's header after the header of every block; its extents follow,
    /// then a CRC32C for each of its blocks.
    RecordRow, 64 {
        0 segment: u64, "the number of the segment that it is in";
        8 interval: u64, "the interval of the volume, between two flushes, that it belongs to";
        16 written_back_to: u64, "every record before this number is at the origin, durably";
        24 fence: u64, "the first number of its incarnation: what earlier ones had from there on is void";
        32 written_at: u64, "when it was written, in nanoseconds of a clock that all incarnations share";
        40 log: u32, "1, the log's number: its uuid is the salt";
        44 extents: u16, "extents that follow, at most 128";
        46 blocks: u16, "blocks after the header, at most 128";
        48 durable_to: u64, "every record before this number was durable when it was written, on each copy that was trusted; 0 if that is unknown";
        56 complete_to: u64, "and each before this one was written to both copies, though not flushed; 0 likewise";
    }
}

record! {
    /// An extent of a record.
    RecordExtentRow, 16 {
        0 block: u64, "the volume's first block";
        8 count: u32, "how many";
        12 what: u32, "0: they have data, in order; 1: they are zeroes; 2: they were discarded";
    }
}

const HEADER_BYTES_MAX: usize = RecordRow::BYTES
    + RECORD_EXTENTS_MAX as usize * RecordExtentRow::BYTES
    + RECORD_BLOCKS_MAX as usize * 4;
const _: () = assert!(HEADER_BYTES_MAX <= BODY_BYTES);

/// The new state of an extent's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Became {
    /// Data, which the record has.
    Data,
    /// Zeroes.
    Zero,
    /// No content: the blocks are discarded.
    Discarded,
}

/// An extent of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordExtent {
    /// The volume's first block.
    pub block: u64,
    /// The number of blocks, at least one.
    pub count: u32,
    /// The new state of the blocks.
    pub became: Became,
}

/// The header of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Counts the records of the log.
    pub number: u64,
    /// The incarnation that wrote the record.
    pub incarnation: u32,
    /// The number of its segment.
    pub segment: u64,
    /// The volume's interval.
    pub interval: u64,
    /// Every record before this number is at the origin, durably.
    pub written_back_to: u64,
    /// The first number of its incarnation.
    pub fence: u64,
    /// Time of writing, in nanoseconds of a clock that all incarnations share.
    pub written_at: u64,
    /// Every record before this number was durable on each copy that was trusted.
    pub durable_to: u64,
    /// Every record before this number was written to both copies.
    pub complete_to: u64,
    /// The log.
    pub log: u32,
    /// The new states of blocks; later ones hold.
    pub extents: Vec<RecordExtent>,
    /// A CRC32C for each block of data.
    pub crcs: Vec<u32>,
}

impl LogRecord {
    /// Writes the record to a block.
    pub fn encode(&self, log: Uuid, out: &mut [u8]) {
        let blocks = data_blocks(&self.extents);
        assert!(blocks == self.crcs.len() as u64 && blocks <= u64::from(RECORD_BLOCKS_MAX));
        assert!(self.extents.len() <= RECORD_EXTENTS_MAX as usize);
        let row = RecordRow {
            segment: self.segment,
            interval: self.interval,
            written_back_to: self.written_back_to,
            fence: self.fence,
            written_at: self.written_at,
            log: self.log,
            extents: self.extents.len() as u16,
            blocks: self.crcs.len() as u16,
            durable_to: self.durable_to,
            complete_to: self.complete_to,
        };
        let body = &mut out[PageHeader::BYTES..];
        row.encode(body);
        let mut at = RecordRow::BYTES;
        for extent in &self.extents {
            let row = RecordExtentRow {
                block: extent.block,
                count: extent.count,
                what: extent.became as u32,
            };
            row.encode(&mut body[at..]);
            at += RecordExtentRow::BYTES;
        }
        for crc in &self.crcs {
            body[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            at += 4;
        }
        seal(out, RECORD_KIND, log, self.number, at, self.incarnation);
    }

    /// Reads a header.
    pub fn decode(block: &[u8], log: Uuid) -> Result<LogRecord, PageError> {
        let (header, body) = open(block, RECORD_KIND, log)?;
        let (row, rest) = body
            .split_at_checked(RecordRow::BYTES)
            .ok_or(PageError::Nonsense)?;
        let row = RecordRow::decode(row);
        let (extents, blocks) = (u32::from(row.extents), u32::from(row.blocks));
        let extents_bytes = extents as usize * RecordExtentRow::BYTES;
        let fits = extents <= RECORD_EXTENTS_MAX && blocks <= RECORD_BLOCKS_MAX;
        if !fits || rest.len() != extents_bytes + 4 * blocks as usize {
            return Err(PageError::Nonsense);
        }
        let (extents, crcs) = rest.split_at(extents_bytes);
        let extents = extents.chunks_exact(RecordExtentRow::BYTES).map(extent);
        let extents = extents.collect::<Result<Vec<_>, _>>()?;
        if data_blocks(&extents) != u64::from(blocks) {
            return Err(PageError::Nonsense);
        }
        Ok(LogRecord {
            number: header.number,
            incarnation: header.generation,
            segment: row.segment,
            interval: row.interval,
            written_back_to: row.written_back_to,
            fence: row.fence,
            written_at: row.written_at,
            durable_to: row.durable_to,
            complete_to: row.complete_to,
            log: row.log,
            extents,
            crcs: crcs_of(crcs),
        })
    }

    /// Blocks of the record in its segment, with its header.
    pub fn blocks(&self) -> u32 {
        1 + self.crcs.len() as u32
    }

    /// True if `data`, read behind the header, are the record's blocks.
    pub fn has(&self, data: &[u8]) -> bool {
        let blocks = data.chunks_exact(BLOCK_BYTES).zip(&self.crcs);
        data.len() == self.crcs.len() * BLOCK_BYTES
            && blocks.into_iter().all(|(b, crc)| block_crc(b) == *crc)
    }
}

fn extent(bytes: &[u8]) -> Result<RecordExtent, PageError> {
    let row = RecordExtentRow::decode(bytes);
    RecordExtent::new(row.block, row.count, row.what)
}

impl RecordExtent {
    pub(crate) fn new(block: u64, count: u32, what: u32) -> Result<RecordExtent, PageError> {
        let became = match what {
            0 => Became::Data,
            1 => Became::Zero,
            2 => Became::Discarded,
            _ => return Err(PageError::Nonsense),
        };
        let end = block.checked_add(u64::from(count));
        // Its sectors have addresses.
        if count == 0 || end.is_none_or(|end| end > u64::MAX / BLOCK_SECTORS) {
            return Err(PageError::Nonsense);
        }
        Ok(RecordExtent {
            block,
            count,
            became,
        })
    }
}

/// Checksums of blocks, four bytes each.
pub(crate) fn crcs_of(bytes: &[u8]) -> Vec<u32> {
    let crcs = bytes.chunks_exact(4);
    crcs.map(|crc| u32::from_le_bytes(crc.try_into().expect("four bytes")))
        .collect()
}

/// Blocks of data that extents have.
pub(crate) fn data_blocks(extents: &[RecordExtent]) -> u64 {
    let data = extents.iter().filter(|e| e.became == Became::Data);
    data.map(|e| u64::from(e.count)).sum()
}

/// The checksum that a record has of a block.
pub fn block_crc(block: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(block)
}
