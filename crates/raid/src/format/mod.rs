//! What an array writes to its members besides data: pure encoding and
//! decoding, drawn bit for bit in `docs/array-format.md`.
//!
//! Integers are little-endian. Every block carries a CRC-32C of itself.
//!
//! Not here: when what is written (`commit`, `bitmap`, `journal`).

pub(crate) mod bitmap;
pub(crate) mod journal;
mod superblock;
#[cfg(test)]
mod tests;
mod uuid;

pub(crate) use superblock::HISTORY_MAX;
pub use superblock::{
    BAD_MAX, MEMBER_SECTORS_MAX, MemberEntry, MemberState, NAME_BYTES_MAX, Position, ROLE_SPARE,
    Scrubbed, Superblock,
};
pub use uuid::Uuid;

use block::Sectors;
use crc_fast::{CrcAlgorithm, Digest};

/// The unit in which metadata is written.
pub const BLOCK_BYTES: usize = 4096;
/// Where the two copies of the superblock are.
pub(crate) const SUPERBLOCKS: [Sectors; 2] = [Sectors(0), Sectors(8)];
/// Where the write-intent bitmap is.
pub(crate) const BITMAP: Sectors = Sectors(16);
/// Where the journal begins.
pub(crate) const JOURNAL: Sectors = Sectors(32);
/// Events and records have lower numbers than this: there always is a next one.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Data begins on a multiple of this.
pub(crate) const ALIGNMENT: Sectors = Sectors(2048);

const _: () = assert!(SUPERBLOCKS[1].0 * 512 == BLOCK_BYTES as u64);
const _: () = assert!(SUPERBLOCKS[1].0 + 8 <= BITMAP.0 && BITMAP.0 + 8 <= JOURNAL.0);

/// Fields of a block, by offset.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("inside the block")
    }
    pub fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
    pub fn uuid(&self, at: usize) -> Uuid {
        Uuid(self.bytes(at))
    }
}

/// Puts `bytes` at `at`.
pub(crate) fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// The checksum of `block` with the four bytes at `at` taken as zeroes.
pub(crate) fn checksum(block: &[u8], at: usize) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..at]);
    digest.update(&[0; 4]);
    digest.update(&block[at + 4..]);
    digest.finalize() as u32
}
