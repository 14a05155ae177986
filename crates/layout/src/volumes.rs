//! The volumes of a pool, as stored in superblocks: rows, one after the other. The rows that do not
//! fit behind a superblock's first block continue in the table area of that copy.

use crate::name::{SuperblockError, name_field, name_of};
use crate::record::record;
use crate::{BLOCK_BYTES, SUPERBLOCK_BLOCKS};
use std::sync::Arc;

/// Volumes that a pool remembers, where its devices have room for their rows.
pub const VOLUMES_MAX: usize = 4096;
/// The longest record of an origin.
pub const ORIGIN_RECORD_BYTES_MAX: usize = 2048;
/// The longest row, with its record.
const ROW_BYTES_MAX: usize = VolumeRow::BYTES + ORIGIN_RECORD_BYTES_MAX;
/// Blocks of rows in a superblock: all but the first.
const HEAD_BLOCKS: u64 = SUPERBLOCK_BLOCKS - 1;
const HEAD_BYTES: usize = HEAD_BLOCKS as usize * BLOCK_BYTES;
/// Blocks of a table area that has room for all volumes.
pub(crate) const TABLE_BLOCKS_MAX: u64 =
    (VOLUMES_MAX * ROW_BYTES_MAX).div_ceil(BLOCK_BYTES) as u64 - HEAD_BLOCKS;

record! {
    /// The fixed part of a volume's row; the record of its origin follows.
    VolumeRow, 96 {
        0 id: u32, "its id in the keys of lines";
        4 flags: u32, "bit 0: its origin was quiesced, and may be others' work since; all others are zero";
        8 sectors: u64, "its size in sectors of 512 bytes";
        16 record_bytes: u32, "bytes of its origin's record, at most 2048";
        20 reserved: u32, "zero";
        24 reserved2: u64, "zero";
        32 name: [u8; 64], "its name: length, then bytes";
    }
}

/// A flag of a volume: its origin was quiesced for others to change it, so that its
/// lines are not to be trusted by the next incarnation.
pub const VOLUME_QUIESCED: u32 = 1;

/// A volume that may have lines in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeRecord {
    /// The volume's id in the keys of lines; never 0.
    pub id: u32,
    /// See [`VOLUME_QUIESCED`].
    pub flags: u32,
    /// The volume's size in sectors.
    pub sectors: u64,
    /// The volume's name.
    pub name: String,
    /// The record of its origin; opaque here.
    pub origin: Vec<u8>,
}

/// The longest rows that a superblock with a table area of so many blocks has room for.
pub const fn volumes_fitting(table_blocks: u64) -> usize {
    let rows = (HEAD_BLOCKS + table_blocks) as usize * BLOCK_BYTES / ROW_BYTES_MAX;
    if rows < VOLUMES_MAX {
        rows
    } else {
        VOLUMES_MAX
    }
}

/// Rows of volumes, in their stored form. Copies share the bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeTable {
    rows: u32,
    bytes: Arc<[u8]>,
}

impl VolumeTable {
    /// The rows of `volumes`.
    pub fn of<'a>(volumes: impl IntoIterator<Item = &'a VolumeRecord>) -> VolumeTable {
        let (mut rows, mut bytes) = (0, Vec::new());
        for volume in volumes {
            assert!(volume.origin.len() <= ORIGIN_RECORD_BYTES_MAX);
            let row = VolumeRow {
                id: volume.id,
                flags: volume.flags,
                sectors: volume.sectors,
                record_bytes: volume.origin.len() as u32,
                reserved: 0,
                reserved2: 0,
                name: name_field(&volume.name),
            };
            let at = bytes.len();
            bytes.resize(at + VolumeRow::BYTES, 0);
            row.encode(&mut bytes[at..]);
            bytes.extend(&volume.origin);
            rows += 1;
        }
        VolumeTable {
            rows,
            bytes: bytes.into(),
        }
    }

    /// The volumes of its rows.
    pub fn volumes(&self) -> Vec<VolumeRecord> {
        read(self.rows, &self.bytes).expect("checked when it was read")
    }

    /// The number of its rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// True of a copy of the same table, not of an equal one.
    pub fn is(&self, other: &VolumeTable) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// The bytes in the superblock, and those in the table area.
    pub fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.bytes.len().min(HEAD_BYTES))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn crc(&self) -> u32 {
        crc_fast::crc32_iscsi(&self.bytes)
    }

    /// Reads `rows` rows of `len` bytes with the checksum `crc`, of which a superblock has `head`
    /// and its table area `tail`.
    pub(crate) fn decode(
        (rows, len, crc): (u32, u32, u32),
        head: &[u8],
        tail: &[u8],
    ) -> Result<VolumeTable, SuperblockError> {
        let len = len as usize;
        let (here, there) = (len.min(HEAD_BYTES), len.saturating_sub(HEAD_BYTES));
        let damaged = SuperblockError::Damaged("the volumes' checksum does not match");
        let parts = head.get(..here).zip(tail.get(..there));
        let bytes = parts.map(|(head, tail)| [head, tail].concat());
        let bytes = bytes.filter(|bytes| crc_fast::crc32_iscsi(bytes) == crc);
        let bytes = bytes.ok_or(damaged)?;
        read(rows, &bytes)?;
        Ok(VolumeTable {
            rows,
            bytes: bytes.into(),
        })
    }
}

/// Blocks in the table area of a table of so many bytes.
pub(crate) const fn blocks_beyond(len: u32) -> u64 {
    (len as usize)
        .saturating_sub(HEAD_BYTES)
        .div_ceil(BLOCK_BYTES) as u64
}

fn read(rows: u32, mut table: &[u8]) -> Result<Vec<VolumeRecord>, SuperblockError> {
    let mut volumes = Vec::new();
    for _ in 0..rows {
        let cut = SuperblockError::Damaged("the rows of volumes end too soon");
        let (row, rest) = table
            .split_at_checked(VolumeRow::BYTES)
            .ok_or(cut.clone())?;
        let row = VolumeRow::decode(row);
        let (origin, rest) = rest
            .split_at_checked(row.record_bytes as usize)
            .ok_or(cut)?;
        table = rest;
        volumes.push(VolumeRecord {
            id: row.id,
            flags: row.flags,
            sectors: row.sectors,
            name: name_of(&row.name)?,
            origin: origin.to_vec(),
        });
    }
    Ok(volumes)
}
