//! The superblock of a member, as fields and tables.
//!
//! Version 3 is written. Version 2, which knew of no sectors that one member alone lacks, is read.
//!
//! Not here: which numbers fit each other, and their meaning (`raid`).

use super::{MEMBERS_MAX, has_checksum, set_checksum};
use crate::BLOCK_BYTES;
use crate::record::record;

const MAGIC: [u8; 8] = *b"hotsetAR";
/// The version that is written.
pub const VERSION: u32 = 3;
/// The version before members had sectors that were not filled. Its fields are the same.
const VERSION_FILLED: u32 = 2;
/// The role of a spare.
pub const ROLE_SPARE: u16 = u16::MAX;
/// The longest name of an array.
pub const NAME_BYTES_MAX: usize = 32;
/// The most runs of lost sectors that are remembered.
pub const BAD_MAX: usize = 120;
/// The most starts that are remembered, the last one among them.
pub const HISTORY_MAX: usize = 18;

record! {
    /// The fields of a superblock.
    FieldsRow, 128 {
        0 magic: [u8; 8], "`hotsetAR`";
        8 version: u32, "3";
        12 crc: u32, "checksum of the block";
        16 array: [u8; 16], "UUID of the array";
        32 member: [u8; 16], "UUID of this member";
        48 event: u64, "event";
        56 data_at: u64, "where data begins, in sectors";
        64 region: u64, "sectors of the array under one bit of the map";
        72 chunk: u32, "chunk, in sectors";
        76 journal_slots: u32, "records that each journal has room for; 0 without a journal";
        80 role: u16, "role of this member; 65535: spare";
        82 level: u8, "level: 0 linear, 1 RAID 0, 2 RAID 1, 3 RAID 10, 4 RAID 5";
        83 roles: u8, "roles in the table";
        84 block: u8, "logical block, in sectors: 1 or 8";
        85 lost: u8, "runs of lost sectors";
        86 starts: u8, "entries of the history";
        87 reserved: u8, "0";
        88 sealed: u64, "the last event that is sealed";
        96 name: [u8; NAME_BYTES_MAX], "name, UTF-8, padded with zeroes";
    }
}

record! {
    /// The fields of a superblock.
    SuperblockRow, 4096 {
        0 fields: FieldsRow, "the fields above";
        128 roles: [RoleRow; MEMBERS_MAX], "table of roles: 32 of 48 bytes";
        1664 history: [StartRow; HISTORY_MAX], "history, this generation first: 18 of 24 bytes";
        2096 since: u64, "since when the time to the next scrub counts, in seconds since 1970; 0 if nobody has said";
        2104 ended: u8, "1 if a scrub of all of it ended then, with every member; 0 if it was first looked after then";
        2105 reserved: [u8; 71], "0";
        2176 lost: [LostRow; BAD_MAX], "runs of lost sectors, and of those that a member lacks: 120 of 16 bytes";
    }
}

record! {
    /// An entry of the table of roles.
    RoleRow, 48 {
        0 uuid: [u8; 16], "UUID of the member that has the role, or had it last";
        16 sectors: u64, "sectors used of it";
        24 checkpoint: u64, "checkpoint of a rebuild: sectors of the array that are done";
        32 failed_at: u64, "of one that was lost: the event after the last that it has for certain";
        40 state: u8, "0 in sync; 1, 2 being filled; 3, 4 lost. With 2 and 4 nothing it held counts; with 1 and 3 only what the bitmap marks is missing";
        41 reserved: [u8; 3], "0";
        44 map_writes: u32, "of one that was lost: how often the map had been written, with a write that it may not have";
    }
}

record! {
    /// An entry of the history.
    StartRow, 24 {
        0 generation: [u8; 16], "generation";
        16 event: u64, "the last of its events that counts";
    }
}

record! {
    /// A run of lost sectors of the array, or of sectors that a member lacks.
    LostRow, 16 {
        0 start: u64, "first sector";
        8 sectors: u64, "sectors, below 2^56. The highest byte is 0 of sectors of the array that are lost; else 1 and the role of the member that lacks them, and both numbers are of its data";
    }
}

/// First bit of the role in [`LostRow::sectors`].
const LACKING_SHIFT: u32 = 56;

impl LostRow {
    /// A run of `sectors` from `start` on: of the array, or of the data of `role`.
    pub fn new(start: u64, sectors: u64, role: Option<usize>) -> LostRow {
        let holder = role.map_or(0, |role| role as u64 + 1);
        let sectors = sectors | holder << LACKING_SHIFT;
        LostRow { start, sectors }
    }

    /// The role that the lost data belong to; `None` of sectors of the array.
    pub fn role(&self) -> Option<usize> {
        (self.sectors >> LACKING_SHIFT)
            .checked_sub(1)
            .map(|role| role as usize)
    }

    /// Sectors of the run.
    pub fn length(&self) -> u64 {
        self.sectors & ((1 << LACKING_SHIFT) - 1)
    }
}

const CRC_AT: usize = FieldsRow::ROWS[2].offset as usize;

/// True if `block` has the magic of a superblock, sound or not.
pub fn claims(block: &[u8]) -> bool {
    block.starts_with(&MAGIC)
}

impl SuperblockRow {
    /// Writes the superblock into `block`, of 4096 bytes, with its magic, version and checksum.
    pub fn seal(mut self, block: &mut [u8]) {
        assert!(block.len() == BLOCK_BYTES);
        (self.fields.magic, self.fields.version) = (MAGIC, VERSION);
        self.encode(block);
        set_checksum(block, CRC_AT);
    }
}

/// The superblock in `block`; `None` if there is none, or a damaged one.
pub fn open(block: &[u8]) -> Option<Box<SuperblockRow>> {
    let version = version(block)?;
    let is_known = matches!(version, VERSION | VERSION_FILLED);
    is_known.then(|| Box::new(SuperblockRow::decode(block)))
}

/// The version of the superblock in `block`, if that is a sound one.
pub fn version(block: &[u8]) -> Option<u32> {
    let sound = block.len() == BLOCK_BYTES && claims(block) && has_checksum(block, CRC_AT);
    sound.then(|| FieldsRow::decode(block).version)
}
