//! The write-intent bitmap on a member: one bit a region, in sectors that each stand
//! alone, so that a torn write harms nothing. Bits are set before the writes that they
//! announce begin. Arrays of few regions have one block of bitmap at [`BITMAP`], others as many
//! as they need, right before the data.

use super::{BITMAP, has_checksum, set_checksum};
use crate::record::record;
use crate::{BLOCK_BYTES, Uuid};
use block::Sectors;

const MAGIC: u32 = 0x6d61_7069;
const BITS_BYTES: usize = 480;

record! {
    /// A sector of the write-intent bitmap.
    SectorRow, 512 {
        0 magic: u32, "0x6d617069";
        4 crc: u32, "checksum of the sector";
        8 array: [u8; 16], "UUID of the array";
        24 number: u32, "number of the sector in the map";
        28 writes: u32, "how often the map had been written with this write; it wraps";
        32 bits: [u8; BITS_BYTES], "3840 bits, the lowest of a byte first";
    }
}

const CRC_AT: usize = SectorRow::ROWS[1].offset as usize;
const BITS_PER_SECTOR: usize = BITS_BYTES * 8;
const SECTORS: usize = BLOCK_BYTES / SectorRow::BYTES;

/// The regions in a block of the bitmap.
pub const REGIONS: usize = SECTORS * BITS_PER_SECTOR;
/// The most regions of an array.
pub const REGIONS_MAX: usize = 16 * REGIONS;

/// The blocks of the bitmap of so many regions.
pub fn blocks(regions: usize) -> usize {
    regions.div_ceil(REGIONS).max(1)
}

/// The sectors that the bitmap of so many regions takes right before the data.
pub fn before_data(regions: usize) -> Sectors {
    match blocks(regions) {
        1 => Sectors::ZERO,
        blocks => Sectors((blocks * SECTORS) as u64),
    }
}

/// Place on a member of a block of the bitmap of so many regions.
pub fn place(regions: usize, data_at: Sectors, block: usize) -> Sectors {
    let first = match before_data(regions) {
        Sectors::ZERO => BITMAP,
        before => data_at - before,
    };
    first + Sectors((block * SECTORS) as u64)
}

/// Writes block `number` of the bitmap of `array` for the time `writes`, in which the regions
/// `marked` are marked, counted from the block's first.
pub fn encode(block: &mut [u8], array: Uuid, number: usize, writes: u32, marked: &[usize]) {
    let mut bits = [[0; BITS_BYTES]; SECTORS];
    for region in marked {
        let (sector, bit) = (region / BITS_PER_SECTOR, region % BITS_PER_SECTOR);
        bits[sector][bit / 8] |= 1 << (bit % 8);
    }
    let sectors = block.chunks_exact_mut(SectorRow::BYTES).enumerate();
    for ((index, sector), bits) in sectors.zip(bits) {
        let row = SectorRow {
            magic: MAGIC,
            crc: 0,
            array: array.to_bytes(),
            number: (number * SECTORS + index) as u32,
            writes,
            bits,
        };
        row.encode(sector);
        set_checksum(sector, CRC_AT);
    }
}

/// The sectors of block `number` of the bitmap of `array`, each of which is `None` if another
/// or none is there.
fn sectors(block: &[u8], array: Uuid, number: usize) -> impl Iterator<Item = Option<SectorRow>> {
    let sectors = block.chunks_exact(SectorRow::BYTES).enumerate();
    sectors.map(move |(index, sector)| {
        let row = SectorRow::decode(sector);
        let sound = row.magic == MAGIC
            && has_checksum(sector, CRC_AT)
            && row.array == array.to_bytes()
            && row.number == (number * SECTORS + index) as u32;
        sound.then_some(row)
    })
}

/// Count of writes of `array`'s bitmap when block `number` was written, by the newest of the
/// block's sectors; `None` if no sector is legible.
pub fn writes(block: &[u8], array: Uuid, number: usize) -> Option<u32> {
    let sectors = sectors(block, array, number).flatten();
    sectors.map(|sector| sector.writes).reduce(newest)
}

/// The later of two numbers of writes, which may have wrapped.
pub fn newest(one: u32, other: u32) -> u32 {
    match one.wrapping_sub(other) <= u32::MAX / 2 {
        true => one,
        false => other,
    }
}

/// True if all sectors of block `number` are of one write. A power cut may tear a write.
pub fn is_of_one_write(block: &[u8], array: Uuid, number: usize) -> bool {
    let mut writes = sectors(block, array, number).map(|sector| sector.map(|row| row.writes));
    let first = writes.next().flatten();
    first.is_some() && writes.all(|other| other == first)
}

/// True if all of `block` is block `number` of the bitmap of `array`.
pub fn is_legible(block: &[u8], array: Uuid, number: usize) -> bool {
    sectors(block, array, number).all(|sector| sector.is_some())
}

/// Calls `set` for each marked region of block `number`, counted from the block's first.
/// A sector that is not this array's bitmap marks all its regions: too much is copied then,
/// never too little.
pub fn decode(block: &[u8], array: Uuid, number: usize, mut set: impl FnMut(usize)) {
    for (index, sector) in sectors(block, array, number).enumerate() {
        let bytes = sector.map_or([u8::MAX; BITS_BYTES], |sector| sector.bits);
        for (byte, bits) in bytes.into_iter().enumerate() {
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
        let array = Uuid(3);
        let regions = BTreeSet::from([0, 1, BITS_PER_SECTOR, REGIONS - 1]);
        let mut block = vec![0; BLOCK_BYTES];
        encode(
            &mut block,
            array,
            2,
            7,
            &regions.iter().copied().collect::<Vec<_>>(),
        );
        assert_eq!(marked(&block, array), regions);
        assert_eq!(marked(&block, Uuid(4)).len(), REGIONS);
        assert!(is_legible(&block, array, 2) && !is_legible(&block, array, 1));
        assert_eq!(writes(&block, array, 2), Some(7));
        assert_eq!((newest(7, u32::MAX), newest(u32::MAX, 7)), (7, 7));
        block[SectorRow::BYTES + 100] ^= 1;
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
