//! The superblock of a write-back log: the volume of a device, and which
//! devices may be trusted. Two copies on each of both devices, and two in the witness, the
//! file beside them.
//!
//! ```text
//! device: superblock A | .. | superblock B | .. | segment | segment | ..
//! ```
//!
//! Invariants:
//!     of the superblocks of one log the one with the greatest `sequence` holds
//!     a copy is trusted ⟹ it is in that one's mask, and its own epoch is that one's

use crate::name::{name_field, name_of};
use crate::pair::{BlockPair, Paired};
use crate::record::record;
use crate::signature::{LOG_MAGIC, foreign};
use crate::superblock::{has_checksum, set_checksum};
use crate::{
    BLOCK_BYTES, IDENTITY_BYTES_MAX, ORIGIN_RECORD_BYTES_MAX, SEGMENT_BLOCKS, SuperblockError, Uuid,
};

/// The version of the format of write-back logs, and that of one with a journal.
pub const LOG_VERSIONS: [u32; 2] = [3, 4];
/// The former versions, of logs with segments without summaries.
const FORMER: [u32; 2] = [1, 2];
/// The blocks of both superblocks of a device.
pub const LOG_SUPERBLOCKS: [u64; 2] = [0, 16];
/// The block that the first segment begins at.
pub const LOG_AREA: u64 = SEGMENT_BLOCKS as u64;
/// Bytes of the witness, which is both superblocks.
pub const LOG_WITNESS_BYTES: u64 = 2 * BLOCK_BYTES as u64;

const FLAG_MAY_BE_DIRTY: u8 = 1;
const WITNESS: u8 = 2;

record! {
    /// A superblock of a write-back log. Its last four bytes are the CRC32C of the rest of
    /// the block.
    LogSuperblockRow, 488 {
        0 magic: [u8; 8], "`WRITEBAK`";
        8 version: u32, "4 with a journal, else 3; 2 and 1 if segments have no summaries; any other is refused";
        12 role: u8, "0 the first copy, 1 the second, 2 the witness";
        13 flags: u8, "bit 0: the volume may have dirty data";
        14 mask: u8, "bits 0 and 1: the copies that hold the dirty data";
        15 identity_bytes: u8, "bytes of the origin's identity, at most 64";
        16 log: u128, "the log's uuid, which its segments and records are salted with";
        32 sequence: u64, "counts the changes of the superblock; the greatest holds";
        40 epoch: u64, "counts the losses of copies";
        48 incarnation: u32, "of whoever opened it last";
        52 segments: u32, "segments of each copy";
        56 sectors: u64, "the volume's size in sectors of 512 bytes";
        64 opened_at: u64, "when it was opened last, in nanoseconds since 1970";
        72 volume: [u8; 64], "the volume's name: its length, then its bytes";
        136 first: [u8; 64], "the name of the device with the first copy, likewise";
        200 second: [u8; 64], "of the one with the second";
        264 host: [u8; 64], "the host that used it last";
        328 identity: [u8; 64], "what its driver knows the origin by";
        392 journal: u128, "the uuid of its journal, the one that may be replayed; 0 for none";
        408 reserved: u64, "zero";
        416 journal_name: [u8; 64], "the name of the device with the journal, likewise";
        480 record_bytes: u32, "bytes of the record of the origin, which follows; 0 for none";
        484 reserved2: u32, "zero";
    }
}

/// A superblock of a write-back log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSuperblock {
    /// The copy that the device has; none for the witness.
    pub copy: Option<u8>,
    /// The volume may have dirty data.
    pub may_be_dirty: bool,
    /// The copies that hold dirty data.
    pub mask: [bool; 2],
    /// The log.
    pub log: Uuid,
    /// Counts the changes.
    pub sequence: u64,
    /// Counts the losses of copies.
    pub epoch: u64,
    /// The incarnation that opened the log last.
    pub incarnation: u32,
    /// Segments of each copy.
    pub segments: u32,
    /// The volume's size in sectors.
    pub sectors: u64,
    /// Time of the last opening, in nanoseconds since 1970.
    pub opened_at: u64,
    /// The volume.
    pub volume: String,
    /// The devices, by their copies.
    pub devices: [String; 2],
    /// The host that used the log last.
    pub host: String,
    /// The identity of the origin; at most [`IDENTITY_BYTES_MAX`].
    pub identity: Vec<u8>,
    /// The journal that may be replayed, and its device.
    pub journal: Option<(Uuid, String)>,
    /// The samples of the origin; at most [`ORIGIN_RECORD_BYTES_MAX`].
    pub record: Vec<u8>,
}

impl LogSuperblock {
    /// Writes the superblock to a block.
    pub fn encode(&self, out: &mut [u8]) {
        assert!(out.len() == BLOCK_BYTES && self.identity.len() <= IDENTITY_BYTES_MAX);
        assert!(self.record.len() <= ORIGIN_RECORD_BYTES_MAX);
        let mut identity = [0; IDENTITY_BYTES_MAX];
        identity[..self.identity.len()].copy_from_slice(&self.identity);
        let [first, second] = &self.devices;
        let row = LogSuperblockRow {
            magic: LOG_MAGIC,
            version: LOG_VERSIONS[usize::from(self.journal.is_some())],
            role: self.copy.unwrap_or(WITNESS),
            flags: if self.may_be_dirty {
                FLAG_MAY_BE_DIRTY
            } else {
                0
            },
            mask: u8::from(self.mask[0]) | u8::from(self.mask[1]) << 1,
            identity_bytes: self.identity.len() as u8,
            log: self.log.0,
            sequence: self.sequence,
            epoch: self.epoch,
            incarnation: self.incarnation,
            segments: self.segments,
            sectors: self.sectors,
            opened_at: self.opened_at,
            volume: name_field(&self.volume),
            first: name_field(first),
            second: name_field(second),
            host: name_field(&self.host),
            identity,
            journal: self.journal.as_ref().map_or(0, |(uuid, _)| uuid.0),
            reserved: 0,
            journal_name: self
                .journal
                .as_ref()
                .map_or([0; 64], |(_, name)| name_field(name)),
            record_bytes: self.record.len() as u32,
            reserved2: 0,
        };
        out.fill(0);
        row.encode(out);
        out[LogSuperblockRow::BYTES..][..self.record.len()].copy_from_slice(&self.record);
        set_checksum(out);
    }

    /// Reads one from its block.
    pub fn decode(block: &[u8]) -> Result<LogSuperblock, SuperblockError> {
        let damaged = |how| Err(SuperblockError::Damaged(how));
        if block.len() < BLOCK_BYTES {
            return damaged("it is cut short");
        }
        let row = LogSuperblockRow::decode(block);
        if row.magic != LOG_MAGIC {
            return Err(foreign(block).map_or(SuperblockError::Blank, SuperblockError::Foreign));
        }
        if !has_checksum(block) {
            return damaged("the superblock's checksum does not match");
        }
        if !LOG_VERSIONS
            .iter()
            .chain(&FORMER)
            .any(|v| *v == row.version)
        {
            return Err(SuperblockError::Version(row.version));
        }
        let copy = match row.role {
            WITNESS => None,
            copy @ (0 | 1) => Some(copy),
            _ => return damaged("its role makes no sense"),
        };
        let Some(identity) = row.identity.get(..usize::from(row.identity_bytes)) else {
            return damaged("the origin's identity is too long");
        };
        let unused = [LOG_VERSIONS[0], FORMER[0]].contains(&row.version);
        if row.flags & !FLAG_MAY_BE_DIRTY != 0
            || row.mask > 3
            || row.reserved != 0
            || unused && (row.journal != 0 || row.journal_name != [0; 64])
        {
            return damaged("a reserved field is not zero");
        }
        let record = block[LogSuperblockRow::BYTES..].get(..row.record_bytes as usize);
        let Some(record) = record.filter(|record| record.len() <= ORIGIN_RECORD_BYTES_MAX) else {
            return damaged("the record of the origin is too long");
        };
        let journal = match row.journal {
            0 => None,
            uuid => Some((Uuid(uuid), name_of(&row.journal_name)?)),
        };
        Ok(LogSuperblock {
            copy,
            may_be_dirty: row.flags & FLAG_MAY_BE_DIRTY != 0,
            mask: [row.mask & 1 != 0, row.mask & 2 != 0],
            log: Uuid(row.log),
            sequence: row.sequence,
            epoch: row.epoch,
            incarnation: row.incarnation,
            segments: row.segments,
            sectors: row.sectors,
            opened_at: row.opened_at,
            volume: name_of(&row.volume)?,
            devices: [name_of(&row.first)?, name_of(&row.second)?],
            host: name_of(&row.host)?,
            identity: identity.to_vec(),
            journal,
            record: record.to_vec(),
        })
    }

    /// The one that holds, of the two blocks of a device or of the witness that could be read.
    /// If neither can be: the state of the better one.
    pub fn newest(blocks: [Option<&[u8]>; 2]) -> Result<LogSuperblock, SuperblockError> {
        BlockPair::of(blocks).newest
    }
}

impl Paired for LogSuperblock {
    fn decode(block: &[u8]) -> Result<LogSuperblock, SuperblockError> {
        LogSuperblock::decode(block)
    }

    fn encode(&self, out: &mut [u8]) {
        LogSuperblock::encode(self, out);
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// Segments that a device of so many blocks has room for.
pub fn log_segments(blocks: u64) -> u32 {
    let segments = blocks.saturating_sub(LOG_AREA) / u64::from(SEGMENT_BLOCKS);
    u32::try_from(segments)
        .unwrap_or(u32::MAX)
        .min(u32::MAX / SEGMENT_BLOCKS)
}
