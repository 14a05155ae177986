//! An access in a profile: hashes of the line, and the parts touched.

use crate::index::mix;

/// Seeds that make two hashes out of one finaliser: halves of the golden ratio's and of pi's
/// fraction. No line has such a number, which would hash to zero.
const SEEDS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc90f_daa2_2168_c234];

/// Two independent hashes of a line; four samplers take half of one each.
#[derive(Clone, Copy)]
pub(super) struct Hashes(pub(super) [u64; 2]);

impl Hashes {
    #[inline]
    pub(super) fn of(line: u64) -> Hashes {
        Hashes(SEEDS.map(|seed| mix(line ^ seed)))
    }
}

/// The 4 KiB blocks of a line that an access touches: one bit for each 32nd of the line, or for
/// each block of a line with fewer.
pub type Blocks = u32;

/// The bits of the parts `first ..= last` of a line.
pub fn blocks(first: u64, last: u64) -> Blocks {
    Blocks::MAX >> (31 - (last - first)) << first
}

/// Bytes of the parts of a line that are distinguished.
pub fn part_bytes(line_bytes: u64) -> u64 {
    (line_bytes / 32).max(4096)
}
