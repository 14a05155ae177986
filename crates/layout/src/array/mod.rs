//! The metadata of an array on its members: superblocks, the write-intent bitmap and
//! the journal. `docs/array-format.md` draws it.
//!
//! Invariants:
//!     decode(encode(x)) = x
//!     a single changed bit in anything encoded here is seen
//!
//! Not here: the meaning of a superblock, and the order of writes (`raid`).

pub mod bitmap;
pub mod journal;
pub mod superblock;

use crate::record::Plain;
use block::{SECTOR_BYTES, Sectors};
use crc_fast::{CrcAlgorithm, Digest};

/// The most members of an array.
pub const MEMBERS_MAX: usize = 32;
/// Places of the two copies of the superblock.
pub const SUPERBLOCKS: [Sectors; 2] = [Sectors(0), Sectors(8)];
/// Place of the write-intent bitmap.
pub const BITMAP: Sectors = Sectors(16);
/// Begin of the journal.
pub const JOURNAL: Sectors = Sectors(32);
/// Events and records have lower numbers than this: there always is a next one.
pub const NUMBER_MAX: u64 = 1 << 62;
/// Data begins on a multiple of this.
pub const ALIGNMENT: Sectors = Sectors(2048);

const _: () = assert!(SUPERBLOCKS[1].0 * SECTOR_BYTES == crate::BLOCK_BYTES as u64);
const _: () = assert!(SUPERBLOCKS[1].0 + 8 <= BITMAP.0 && BITMAP.0 + 8 <= JOURNAL.0);

/// As many of `rows` as there are, then zeroes.
///
/// # Panics
///
/// If there is no room for all.
pub fn padded<T: Plain, const N: usize>(rows: impl ExactSizeIterator<Item = T>) -> [T; N] {
    assert!(rows.len() <= N, "{} rows, but room for {N}", rows.len());
    let mut all = [T::ZERO; N];
    all.iter_mut().zip(rows).for_each(|(at, row)| *at = row);
    all
}

/// The checksum of `block` with the four bytes at `at` taken as zeroes.
fn checksum(block: &[u8], at: usize) -> [u8; 4] {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..at]);
    digest.update(&[0; 4]);
    digest.update(&block[at + 4..]);
    (digest.finalize() as u32).to_le_bytes()
}

/// Writes the checksum of `block` into the four bytes at `at`.
fn set_checksum(block: &mut [u8], at: usize) {
    let sum = checksum(block, at);
    block[at..at + 4].copy_from_slice(&sum);
}

/// True if the checksum is there.
fn has_checksum(block: &[u8], at: usize) -> bool {
    block[at..at + 4] == checksum(block, at)
}
