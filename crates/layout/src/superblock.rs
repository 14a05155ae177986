//! The superblock: the role of a device, its pool, and the volumes that may have
//! lines on the device. Two copies, at both ends of the device, each with a table area for
//! the volumes that do not fit into the copy.
//!
//! The same superblock, with another role and no lines, is written to the pool's
//! witness: a small device beside the pool that outlives its members.

use crate::name::{SuperblockError, name_field, name_of};
use crate::plan::{LayoutPlan, PlannedArea, WITNESS_TABLES};
use crate::record::record;
use crate::signature::foreign;
use crate::volumes::{VolumeTable, blocks_beyond, volumes_fitting};
use crate::{BLOCK_BYTES, SUPERBLOCK_BLOCKS, Uuid, VERSION};

const MAGIC: [u8; 8] = *b"HOTSETPL";
const SUPERBLOCK_BYTES: usize = SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES;
/// Members that a superblock has room for.
pub const MEMBERS_MAX: usize = 16;
/// Number of wrong bits up to which eight bytes count as a damaged magic.
const MAGIC_BITS_WRONG_MAX: u32 = 8;
/// Begin of the volumes: after the first block.
const TABLE_AT: usize = BLOCK_BYTES;
/// Place of the first block's checksum.
const CRC_AT: usize = BLOCK_BYTES - 4;
const FLAG_CLEAN: u8 = 1;
const ROLE_MEMBER: u8 = 1;
const ROLE_WITNESS: u8 = 2;
/// The version without table areas, which is read too.
const VERSION_FORMER: u32 = 1;

record! {
    /// The first block of a superblock. Its last four bytes are the CRC32C of the rest
    /// of the block.
    SuperblockRow, 368 {
        0 magic: [u8; 8], "`HOTSETPL`";
        8 version: u32, "2; 1 is upgraded, any other is refused";
        12 role: u8, "1 a member that holds lines, 2 a witness";
        13 flags: u8, "bit 0: closed in order, and complete";
        14 members: u8, "rows of members that follow";
        15 map: u8, "the newest checkpoint: 0 none, 1 map A, 2 map B";
        16 pool: u128, "the pool's uuid";
        32 device: u128, "this device's uuid";
        48 sequence: u64, "counts the writes of the superblock; the copy with the greater one holds";
        56 epoch: u64, "counts the losses of members; a device with a lesser one than another is stale";
        64 blocks: u64, "blocks of the device that are used";
        72 slots: u32, "lines it has room for";
        76 line_blocks: u32, "blocks of a line";
        80 region_blocks: u32, "blocks of a marked region";
        84 generation: u32, "of the newest checkpoint; its pages carry it";
        88 log_start: u64, "the first sequence number of the log that the checkpoint does not cover";
        96 log_end: u64, "if closed in order: the sequence number after the last of the log";
        104 next_volume: u32, "the id that the next new volume gets; never given twice";
        108 volumes: u32, "rows of volumes";
        112 table_bytes: u32, "bytes of the rows of volumes";
        116 table_crc: u32, "their CRC32C";
        120 hints: u8, "the policy's hints: 0 none, 1 in hints A, 2 in hints B";
        121 reserved: [u8; 3], "zero";
        124 hints_bytes: u32, "how many bytes of it are on this device";
        128 hints_crc: u32, "their CRC32C";
        132 hints_part: u32, "which part of it this is, of as many as there are members";
        136 given: u64, "of a witness: the greatest `sequence` that a superblock may have been written with";
        144 label: [u8; 64], "the pool's name: its length, then its bytes";
        208 name: [u8; 64], "the device's name and place, as NAME (PLACE), likewise";
        272 host: [u8; 64], "the host that used it last, likewise";
        336 reserved3: [u8; 32], "zero";
    }
}

record! {
    /// A member of the pool, as all of them and the witness know it.
    MemberRow, 160 {
        0 device: u128, "its uuid";
        16 slots: u32, "lines it has room for";
        20 flags: u32, "zero";
        24 reserved: u64, "zero";
        32 name: [u8; 64], "its name: length, then bytes";
        96 domain: [u8; 64], "its failure domain, likewise";
    }
}

/// Writes the CRC32C of the rest of a superblock's block into its last four bytes.
pub(crate) fn set_checksum(block: &mut [u8]) {
    let crc = crc_fast::crc32_iscsi(&block[..CRC_AT]);
    block[CRC_AT..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// True if the checksum is there.
pub(crate) fn has_checksum(block: &[u8]) -> bool {
    let crc = u32::from_le_bytes(block[CRC_AT..BLOCK_BYTES].try_into().expect("four bytes"));
    crc == crc_fast::crc32_iscsi(&block[..CRC_AT])
}

const _: () = assert!(SuperblockRow::BYTES + MEMBERS_MAX * MemberRow::BYTES <= CRC_AT);

/// The role of a device in its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolRole {
    /// The device holds lines.
    Member,
    /// The device holds only the superblock.
    Witness,
}

/// Another member, as recorded by a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRecord {
    /// The member's uuid.
    pub device: Uuid,
    /// Lines that the member has room for.
    pub slots: u32,
    /// The member's name at the time.
    pub name: String,
    /// The member's failure domain.
    pub domain: String,
}

/// A superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolSuperblock {
    /// The role of the device in the pool.
    pub role: PoolRole,
    /// Closed in order: log and map are complete.
    pub clean: bool,
    /// The pool.
    pub pool: Uuid,
    /// The device.
    pub device: Uuid,
    /// Counts the writes of the superblock.
    pub sequence: u64,
    /// Counts the losses of members.
    pub epoch: u64,
    /// Blocks of the device that are used; 0 for a witness.
    pub blocks: u64,
    /// Lines that the device has room for.
    pub slots: u32,
    /// Blocks of a line.
    pub line_blocks: u32,
    /// Blocks of a marked region.
    pub region_blocks: u32,
    /// The map, of two, with the newest checkpoint.
    pub map: Option<u8>,
    /// Generation of the newest checkpoint.
    pub generation: u32,
    /// The first log block that the checkpoint does not cover.
    pub log_start: u64,
    /// If clean: the block after the last log block.
    pub log_end: u64,
    /// The id that the next new volume gets.
    pub next_volume: u32,
    /// Of a witness: the greatest sequence number that a superblock may have been written with,
    /// where that is greater than its own.
    pub given: u64,
    /// The policy's hints: which of the two areas, bytes, their checksum, which part.
    pub hints: Option<(u8, u32, u32, u32)>,
    /// The name of the pool.
    pub label: String,
    /// The name of the device.
    pub name: String,
    /// The host that used the device last.
    pub host: String,
    /// The members of the pool.
    pub members: Vec<MemberRecord>,
    /// The volumes that may have lines on the device.
    pub volumes: VolumeTable,
}

impl PoolSuperblock {
    /// True if the superblock can be written: members, and volumes with the longest records, fit.
    pub fn fits(&self) -> bool {
        let room = volumes_fitting(self.table_areas().map_or(0, |[area, _]| area.blocks));
        self.members.len() <= MEMBERS_MAX && self.volumes.rows() as usize <= room
    }

    /// Writes the superblock; returns the number of bytes to write, of whole blocks. `out` has room
    /// for [`SUPERBLOCK_BLOCKS`]. The volumes' rows beyond that belong into the table area of the
    /// same copy.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        assert!(out.len() == SUPERBLOCK_BYTES && self.members.len() <= MEMBERS_MAX);
        out.fill(0);
        let (head, _) = self.volumes.parts();
        out[TABLE_AT..TABLE_AT + head.len()].copy_from_slice(head);
        let (hints, hints_bytes, hints_crc, hints_part) = match self.hints {
            None => (0, 0, 0, 0),
            Some((which, bytes, crc, part)) => (which + 1, bytes, crc, part),
        };
        let row = SuperblockRow {
            magic: MAGIC,
            version: VERSION,
            role: match self.role {
                PoolRole::Member => ROLE_MEMBER,
                PoolRole::Witness => ROLE_WITNESS,
            },
            flags: if self.clean { FLAG_CLEAN } else { 0 },
            members: self.members.len() as u8,
            map: self.map.map_or(0, |map| map + 1),
            pool: self.pool.0,
            device: self.device.0,
            sequence: self.sequence,
            epoch: self.epoch,
            blocks: self.blocks,
            slots: self.slots,
            line_blocks: self.line_blocks,
            region_blocks: self.region_blocks,
            generation: self.generation,
            log_start: self.log_start,
            log_end: self.log_end,
            next_volume: self.next_volume,
            volumes: self.volumes.rows(),
            table_bytes: self.volumes.len() as u32,
            table_crc: self.volumes.crc(),
            hints,
            reserved: [0; 3],
            hints_bytes,
            hints_crc,
            hints_part,
            given: self.given,
            label: name_field(&self.label),
            name: name_field(&self.name),
            host: name_field(&self.host),
            reserved3: [0; 32],
        };
        row.encode(out);
        let rows = out[SuperblockRow::BYTES..CRC_AT].chunks_exact_mut(MemberRow::BYTES);
        for (member, out) in self.members.iter().zip(rows) {
            let row = MemberRow {
                device: member.device.0,
                slots: member.slots,
                flags: 0,
                reserved: 0,
                name: name_field(&member.name),
                domain: name_field(&member.domain),
            };
            row.encode(out);
        }
        set_checksum(out);
        (TABLE_AT + head.len()).next_multiple_of(BLOCK_BYTES)
    }

    /// The version of the format that a superblock was written in, by its bytes.
    pub fn version(bytes: &[u8]) -> u32 {
        SuperblockRow::decode(bytes).version
    }

    /// The part of a table area that belongs to a copy, the first or the second, by the bytes of
    /// its superblock; `None` if the superblock has all rows, or is none of this version.
    pub fn table_area(bytes: &[u8], copy: usize) -> Option<PlannedArea> {
        let row = SuperblockRow::decode(bytes);
        let beyond = blocks_beyond(row.table_bytes);
        let is_ours = row.magic == MAGIC && row.version == VERSION && has_checksum(bytes);
        if !is_ours || beyond == 0 || !is_line(row.line_blocks) {
            return None;
        }
        let areas = match row.role {
            ROLE_MEMBER => plan_of(row.blocks, row.line_blocks)?.tables,
            _ => WITNESS_TABLES,
        };
        let PlannedArea { start, blocks } = areas[copy];
        let blocks = (beyond <= blocks).then_some(beyond)?;
        Some(PlannedArea { start, blocks })
    }

    fn table_areas(&self) -> Option<[PlannedArea; 2]> {
        match self.role {
            PoolRole::Member => plan_of(self.blocks, self.line_blocks).map(|plan| plan.tables),
            PoolRole::Witness => Some(WITNESS_TABLES),
        }
    }

    /// Reads a copy of a superblock from the bytes of its area, and of [`PoolSuperblock::table_area`].
    pub fn decode(bytes: &[u8], tail: &[u8]) -> Result<PoolSuperblock, SuperblockError> {
        if bytes.len() < SUPERBLOCK_BYTES {
            return Err(SuperblockError::Damaged("it is cut short"));
        }
        let row = SuperblockRow::decode(bytes);
        let wrong = u64::from_le_bytes(row.magic) ^ u64::from_le_bytes(MAGIC);
        if wrong != 0 && wrong.count_ones() <= MAGIC_BITS_WRONG_MAX {
            return Err(SuperblockError::Damaged("its magic is damaged"));
        }
        if wrong != 0 {
            return Err(foreign(bytes).map_or(SuperblockError::Blank, SuperblockError::Foreign));
        }
        if !has_checksum(bytes) {
            return Err(SuperblockError::Damaged(
                "the superblock's checksum does not match",
            ));
        }
        // A newer version may give other bytes another meaning, but not these.
        if row.version != VERSION && row.version != VERSION_FORMER {
            return Err(SuperblockError::Version(row.version));
        }
        let head = &bytes[TABLE_AT..SUPERBLOCK_BYTES];
        let table = (row.volumes, row.table_bytes, row.table_crc);
        let mut superblock = PoolSuperblock {
            role: match row.role {
                ROLE_MEMBER => PoolRole::Member,
                ROLE_WITNESS => PoolRole::Witness,
                _ => return Err(SuperblockError::Damaged("its role makes no sense")),
            },
            clean: row.flags & FLAG_CLEAN != 0,
            pool: Uuid(row.pool),
            device: Uuid(row.device),
            sequence: row.sequence,
            epoch: row.epoch,
            blocks: row.blocks,
            slots: row.slots,
            line_blocks: row.line_blocks,
            region_blocks: row.region_blocks,
            map: row.map.checked_sub(1),
            generation: row.generation,
            log_start: row.log_start,
            log_end: row.log_end,
            next_volume: row.next_volume,
            given: row.given,
            hints: row
                .hints
                .checked_sub(1)
                .map(|which| (which, row.hints_bytes, row.hints_crc, row.hints_part)),
            label: name_of(&row.label)?,
            name: name_of(&row.name)?,
            host: name_of(&row.host)?,
            members: members(bytes, row.members)?,
            volumes: VolumeTable::decode(table, head, tail)?,
        };
        superblock.check_lengths()?;
        if row.version == VERSION_FORMER {
            superblock.upgrade();
        }
        superblock.check()?;
        Ok(superblock)
    }

    /// Takes the room of the last lines for the table areas.
    fn upgrade(&mut self) {
        let plan = plan_of(self.blocks, self.line_blocks);
        let plan = plan.filter(|plan| plan.places == self.slots);
        self.slots = plan.map_or(0, |plan| plan.slots);
    }

    fn check_lengths(&self) -> Result<(), SuperblockError> {
        let damaged = |how| Err(SuperblockError::Damaged(how));
        if !is_line(self.line_blocks) {
            return damaged("its line length makes no sense");
        }
        if !self.region_blocks.is_power_of_two() || self.region_blocks < self.line_blocks {
            return damaged("its region length makes no sense");
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SuperblockError> {
        let damaged = |how| Err(SuperblockError::Damaged(how));
        if self.map.is_some_and(|map| map > 1) || self.hints.is_some_and(|(which, ..)| which > 1) {
            return damaged("it names a place that does not exist");
        }
        if self.role == PoolRole::Member && self.plan().is_none() {
            return damaged("its size and its lines do not agree");
        }
        Ok(())
    }

    /// The plan of the device; `None` for a witness.
    pub fn plan(&self) -> Option<LayoutPlan> {
        let plan = plan_of(self.blocks, self.line_blocks)?;
        (self.role == PoolRole::Member && plan.slots == self.slots).then_some(plan)
    }
}

fn plan_of(blocks: u64, line_blocks: u32) -> Option<LayoutPlan> {
    let sectors = block::Sectors(blocks.checked_mul(crate::BLOCK_SECTORS)?);
    LayoutPlan::new(sectors, line_blocks).ok()
}

fn is_line(blocks: u32) -> bool {
    blocks.is_power_of_two() && blocks <= 256
}

fn members(bytes: &[u8], count: u8) -> Result<Vec<MemberRecord>, SuperblockError> {
    if usize::from(count) > MEMBERS_MAX {
        return Err(SuperblockError::Damaged("it has too many members"));
    }
    let rows = bytes[SuperblockRow::BYTES..CRC_AT].chunks_exact(MemberRow::BYTES);
    let member = |bytes| {
        let row = MemberRow::decode(bytes);
        Ok(MemberRecord {
            device: Uuid(row.device),
            slots: row.slots,
            name: name_of(&row.name)?,
            domain: name_of(&row.domain)?,
        })
    };
    rows.take(usize::from(count)).map(member).collect()
}
