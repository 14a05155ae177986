//! The write-intent map on a member: one bit a region, in eight sectors that
//! each stand alone, so that a torn write harms nothing: bits are set before
//! the writes that they announce begin.

use super::{BLOCK_BYTES, Fields, Uuid, put};
use block::SECTOR_BYTES;

const MAGIC: u32 = 0x6d61_7069;
const SECTOR: usize = SECTOR_BYTES as usize;
const HEAD_BYTES: usize = 32;
const BITS_PER_SECTOR: usize = (SECTOR - HEAD_BYTES) * 8;
const AT_CHECKSUM: usize = 4;

/// The most regions of an array.
pub(crate) const REGIONS_MAX: usize = BLOCK_BYTES / SECTOR * BITS_PER_SECTOR;

/// Writes the map of `array`, in which the regions `marked` are marked.
pub(crate) fn encode(block: &mut [u8], array: Uuid, marked: &[usize]) {
    block.fill(0);
    for region in marked {
        let (sector, bit) = (region / BITS_PER_SECTOR, region % BITS_PER_SECTOR);
        block[sector * SECTOR + HEAD_BYTES + bit / 8] |= 1 << (bit % 8);
    }
    for (index, sector) in block.chunks_exact_mut(SECTOR).enumerate() {
        put(sector, 0, &MAGIC.to_le_bytes());
        put(sector, 8, &array.0);
        put(sector, 24, &(index as u64).to_le_bytes());
        let sum = super::checksum(sector, AT_CHECKSUM);
        put(sector, AT_CHECKSUM, &sum.to_le_bytes());
    }
}

/// Calls `set` for each marked region. A sector that is not this array's map
/// marks all its regions: too much is copied then, never too little.
pub(crate) fn decode(block: &[u8], array: Uuid, mut set: impl FnMut(usize)) {
    for (index, sector) in block.chunks_exact(SECTOR).enumerate() {
        let fields = Fields(sector);
        let sound = fields.u32(0) == MAGIC
            && fields.u32(AT_CHECKSUM) == super::checksum(sector, AT_CHECKSUM)
            && fields.uuid(8) == array
            && fields.u64(24) == index as u64;
        for (byte, bits) in sector[HEAD_BYTES..].iter().enumerate() {
            let bits = if sound { *bits } else { u8::MAX };
            for bit in (0..8).filter(|bit| bits & 1 << bit != 0) {
                set(index * BITS_PER_SECTOR + byte * 8 + bit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn marked(block: &[u8], array: Uuid) -> BTreeSet<usize> {
        let mut set = BTreeSet::new();
        decode(block, array, |region| {
            set.insert(region);
        });
        set
    }

    #[test]
    fn marks_are_read_back_and_a_torn_map_marks_too_much() {
        let array = Uuid([3; 16]);
        let regions = BTreeSet::from([0, 1, BITS_PER_SECTOR, REGIONS_MAX - 1]);
        let mut block = vec![0; BLOCK_BYTES];
        encode(
            &mut block,
            array,
            &regions.iter().copied().collect::<Vec<_>>(),
        );
        assert_eq!(marked(&block, array), regions);
        assert_eq!(marked(&block, Uuid([4; 16])).len(), REGIONS_MAX);
        block[SECTOR + 100] ^= 1;
        let read = marked(&block, array);
        assert!(read.is_superset(&regions));
        assert_eq!(read.len(), BITS_PER_SECTOR + 3);
    }
}
