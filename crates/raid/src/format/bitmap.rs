//! The write-intent bitmap on a member: one bit a region, in sectors that each stand
//! alone, so that a torn write harms nothing: bits are set before the writes that they
//! announce begin. Arrays of few regions have one block of it at [`BITMAP`], others as many
//! as they need, right before the data.

use super::{BITMAP, BLOCK_BYTES, Fields, Uuid, put};
use block::{SECTOR_BYTES, Sectors};

const MAGIC: u32 = 0x6d61_7069;
const SECTOR: usize = SECTOR_BYTES as usize;
const HEAD_BYTES: usize = 32;
const BITS_PER_SECTOR: usize = (SECTOR - HEAD_BYTES) * 8;
const AT_CHECKSUM: usize = 4;

const SECTORS: usize = BLOCK_BYTES / SECTOR;

/// The regions in a block of the bitmap.
pub(crate) const REGIONS: usize = SECTORS * BITS_PER_SECTOR;
/// The most regions of an array.
pub(crate) const REGIONS_MAX: usize = 16 * REGIONS;

/// The blocks of the bitmap of so many regions.
pub(crate) fn blocks(regions: usize) -> usize {
    regions.div_ceil(REGIONS).max(1)
}

/// What the bitmap of so many regions takes right before the data.
pub(crate) fn before_data(regions: usize) -> Sectors {
    match blocks(regions) {
        1 => Sectors::ZERO,
        blocks => Sectors((blocks * SECTORS) as u64),
    }
}

/// Where a block of the bitmap of so many regions is on a member.
pub(crate) fn place(regions: usize, data_at: Sectors, block: usize) -> Sectors {
    let first = match before_data(regions) {
        Sectors::ZERO => BITMAP,
        before => data_at - before,
    };
    first + Sectors((block * SECTORS) as u64)
}

/// Writes block `number` of the bitmap of `array`, in which the regions `marked` are marked,
/// counted from the block's first.
pub(crate) fn encode(block: &mut [u8], array: Uuid, number: usize, marked: &[usize]) {
    block.fill(0);
    for region in marked {
        let (sector, bit) = (region / BITS_PER_SECTOR, region % BITS_PER_SECTOR);
        block[sector * SECTOR + HEAD_BYTES + bit / 8] |= 1 << (bit % 8);
    }
    for (index, sector) in block.chunks_exact_mut(SECTOR).enumerate() {
        put(sector, 0, &MAGIC.to_le_bytes());
        put(sector, 8, &array.0);
        put(
            sector,
            24,
            &((number * SECTORS + index) as u64).to_le_bytes(),
        );
        let sum = super::checksum(sector, AT_CHECKSUM);
        put(sector, AT_CHECKSUM, &sum.to_le_bytes());
    }
}

/// Whether a sector is that of block `number` of the bitmap of `array` which is to be there.
fn is_sound(sector: &[u8], array: Uuid, number: usize, index: usize) -> bool {
    let fields = Fields(sector);
    fields.u32(0) == MAGIC
        && fields.u32(AT_CHECKSUM) == super::checksum(sector, AT_CHECKSUM)
        && fields.uuid(8) == array
        && fields.u64(24) == (number * SECTORS + index) as u64
}

/// Whether all of `block` is block `number` of the bitmap of `array`.
pub(crate) fn is_legible(block: &[u8], array: Uuid, number: usize) -> bool {
    let mut sectors = block.chunks_exact(SECTOR).enumerate();
    sectors.all(|(index, sector)| is_sound(sector, array, number, index))
}

/// Calls `set` for each marked region of block `number`, counted from the block's first.
/// A sector that is not this array's bitmap marks all its regions: too much is copied then,
/// never too little.
pub(crate) fn decode(block: &[u8], array: Uuid, number: usize, mut set: impl FnMut(usize)) {
    for (index, sector) in block.chunks_exact(SECTOR).enumerate() {
        let sound = is_sound(sector, array, number, index);
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
        decode(block, array, 2, |region| {
            set.insert(region);
        });
        set
    }

    #[test]
    fn bits_are_read_back_and_a_torn_bitmap_marks_too_much() {
        let array = Uuid([3; 16]);
        let regions = BTreeSet::from([0, 1, BITS_PER_SECTOR, REGIONS - 1]);
        let mut block = vec![0; BLOCK_BYTES];
        encode(
            &mut block,
            array,
            2,
            &regions.iter().copied().collect::<Vec<_>>(),
        );
        assert_eq!(marked(&block, array), regions);
        assert_eq!(marked(&block, Uuid([4; 16])).len(), REGIONS);
        assert!(is_legible(&block, array, 2) && !is_legible(&block, array, 1));
        block[SECTOR + 100] ^= 1;
        assert!(!is_legible(&block, array, 2));
        let read = marked(&block, array);
        assert!(read.is_superset(&regions));
        assert_eq!(read.len(), BITS_PER_SECTOR + 3);
    }

    #[test]
    fn a_map_of_many_regions_lies_before_the_data() {
        let data_at = Sectors(4096);
        assert_eq!(place(1, data_at, 0), BITMAP);
        assert_eq!(place(REGIONS, data_at, 0), BITMAP);
        assert_eq!(place(REGIONS + 1, data_at, 0), Sectors(4080));
        assert_eq!(place(REGIONS + 1, data_at, 1), Sectors(4088));
        assert_eq!(place(REGIONS_MAX, data_at, 15), Sectors(4088));
    }
}
