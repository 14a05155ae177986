//! The journal of write-back: the group that its origin is about to get at once, on a device that
//! does not fail with those of the log.
//!
//! ```text
//! superblock A | .. | superblock B | .. | half 0 | half 1
//! half: commit, twice | record | record ..
//! ```
//!
//! A group is the records of a half, sealed as those of the log (`segment`) and salted with
//! the journal's own uuid; `segment` of each is the group's number, and the records are numbered
//! from 0. Its commit is written once the records are durable: a group without a commit counts
//! for nothing.
//!
//! Invariants:
//!     the newest commit's records are whole, or the device is damaged
//!     a group at or before `retired` is never carried out again

use crate::name::{name_field, name_of};
use crate::page::{PageError, PageHeader, kind, open, seal};
use crate::pair::Paired;
use crate::record::record;
use crate::signature::{JOURNAL_MAGIC, foreign};
use crate::superblock::{has_checksum, set_checksum};
use crate::{BLOCK_BYTES, BLOCK_SECTORS, IDENTITY_BYTES_MAX, LOG_AREA, SuperblockError, Uuid};

/// The version of the format of journals.
pub const JOURNAL_VERSION: u32 = 1;
/// Blocks of a half's commit: twice the same.
pub const COMMIT_BLOCKS: u64 = 2;
/// The fewest blocks that a half may have.
pub const JOURNAL_HALF_MIN: u64 = 1024;
/// The most: both end where a sector still has an address.
const HALF_MAX: u64 = (u64::MAX / BLOCK_SECTORS - LOG_AREA) / 2;

const COMMIT_KIND: u32 = kind(*b"HSCM");

record! {
    /// A superblock of a journal. Its last four bytes are the CRC32C of the rest of the
    /// block.
    JournalSuperblockRow, 208 {
        0 magic: [u8; 8], "`WRITEJNL`";
        8 version: u32, "1; any other is refused";
        12 identity_bytes: u32, "bytes of the origin's identity, at most 64";
        16 journal: u128, "the journal's uuid, which its commits and records are salted with";
        32 log: u128, "the uuid of the log that it is of";
        48 sequence: u64, "counts the changes of the superblock; the greater holds";
        56 retired: u64, "groups up to this number are void";
        64 half: u64, "blocks of each half";
        72 sectors: u64, "the volume's size in sectors of 512 bytes";
        80 volume: [u8; 64], "the volume's name: its length, then its bytes";
        144 identity: [u8; 64], "what its driver knows the origin by";
    }
}

record! {
    /// The fields of a commit after the header of every block.
    JournalCommitRow, 32 {
        0 to: u64, "once the origin has the group, it has every record of the log before this number";
        8 written_at: u64, "when the newest of them was written, in nanoseconds since 1970";
        16 records: u64, "records of the group";
        24 blocks: u64, "blocks that they have together, with their headers";
    }
}

/// A superblock of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSuperblock {
    /// The journal.
    pub journal: Uuid,
    /// The log that the journal belongs to.
    pub log: Uuid,
    /// Counts the changes.
    pub sequence: u64,
    /// Groups up to this number are void.
    pub retired: u64,
    /// Blocks of each half.
    pub half: u64,
    /// The volume's size in sectors.
    pub sectors: u64,
    /// The volume.
    pub volume: String,
    /// The identity of the origin; at most [`IDENTITY_BYTES_MAX`].
    pub identity: Vec<u8>,
}

impl JournalSuperblock {
    /// Writes the superblock to a block.
    pub fn encode(&self, out: &mut [u8]) {
        assert!(out.len() == BLOCK_BYTES && self.identity.len() <= IDENTITY_BYTES_MAX);
        let mut identity = [0; IDENTITY_BYTES_MAX];
        identity[..self.identity.len()].copy_from_slice(&self.identity);
        let row = JournalSuperblockRow {
            magic: JOURNAL_MAGIC,
            version: JOURNAL_VERSION,
            identity_bytes: self.identity.len() as u32,
            journal: self.journal.0,
            log: self.log.0,
            sequence: self.sequence,
            retired: self.retired,
            half: self.half,
            sectors: self.sectors,
            volume: name_field(&self.volume),
            identity,
        };
        out.fill(0);
        row.encode(out);
        set_checksum(out);
    }

    /// Reads one from its block.
    pub fn decode(block: &[u8]) -> Result<JournalSuperblock, SuperblockError> {
        let damaged = |how| Err(SuperblockError::Damaged(how));
        if block.len() < BLOCK_BYTES {
            return damaged("it is cut short");
        }
        let row = JournalSuperblockRow::decode(block);
        if row.magic != JOURNAL_MAGIC {
            return Err(foreign(block).map_or(SuperblockError::Blank, SuperblockError::Foreign));
        }
        if !has_checksum(block) {
            return damaged("the superblock's checksum does not match");
        }
        if row.version != JOURNAL_VERSION {
            return Err(SuperblockError::Version(row.version));
        }
        let Some(identity) = row.identity.get(..row.identity_bytes as usize) else {
            return damaged("the origin's identity is too long");
        };
        if !(JOURNAL_HALF_MIN..=HALF_MAX).contains(&row.half) {
            return damaged("its halves make no sense");
        }
        Ok(JournalSuperblock {
            journal: Uuid(row.journal),
            log: Uuid(row.log),
            sequence: row.sequence,
            retired: row.retired,
            half: row.half,
            sectors: row.sectors,
            volume: name_of(&row.volume)?,
            identity: identity.to_vec(),
        })
    }

    /// The block that half `half`, 0 or 1, begins at.
    pub fn half_at(&self, half: u64) -> u64 {
        LOG_AREA + half * self.half
    }
}

impl Paired for JournalSuperblock {
    fn decode(block: &[u8]) -> Result<JournalSuperblock, SuperblockError> {
        JournalSuperblock::decode(block)
    }

    fn encode(&self, out: &mut [u8]) {
        JournalSuperblock::encode(self, out);
    }

    fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// The commit of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalCommit {
    /// Counts the groups, from 1 on.
    pub group: u64,
    /// The incarnation that wrote the commit.
    pub incarnation: u32,
    /// Once the origin has the group, the origin has every record of the log before this number.
    pub to: u64,
    /// Time of writing of the newest of those, in nanoseconds since 1970.
    pub written_at: u64,
    /// Records of the group.
    pub records: u64,
    /// Blocks of them.
    pub blocks: u64,
}

impl JournalCommit {
    /// Writes the commit to a block.
    pub fn encode(&self, journal: Uuid, out: &mut [u8]) {
        let row = JournalCommitRow {
            to: self.to,
            written_at: self.written_at,
            records: self.records,
            blocks: self.blocks,
        };
        row.encode(&mut out[PageHeader::BYTES..]);
        let (used, incarnation) = (JournalCommitRow::BYTES, self.incarnation);
        seal(out, COMMIT_KIND, journal, self.group, used, incarnation);
    }

    /// Reads one.
    pub fn decode(block: &[u8], journal: Uuid) -> Result<JournalCommit, PageError> {
        let (header, body) = open(block, COMMIT_KIND, journal)?;
        if body.len() != JournalCommitRow::BYTES {
            return Err(PageError::Nonsense);
        }
        let row = JournalCommitRow::decode(body);
        Ok(JournalCommit {
            group: header.number,
            incarnation: header.generation,
            to: row.to,
            written_at: row.written_at,
            records: row.records,
            blocks: row.blocks,
        })
    }
}

/// Blocks that each half of a journal has on a device of so many; none if that is too small.
pub fn journal_half(blocks: u64) -> Option<u64> {
    let half = blocks.saturating_sub(LOG_AREA) / 2;
    (half >= JOURNAL_HALF_MIN).then_some(half)
}
