//! Places of the blocks of other shards' devices, kept for later hits.
//!
//! A unit has its place in the table by a hash of its gate and number. Units that have the same
//! place displace each other.
//!
//! Invariants:
//!     a read is given ⟹ its slots had the generations of their units just now
//!     units kept <= `UNITS_MAX`; memory is taken for those that were kept, a page at a time
//!
//! Not here: whether the bytes count, which is found when they have been read (`located`).

use block::{
    Extent, Generations, LOCATED_BLOCK_BYTES, LOCATED_BLOCKS_MAX, Lba, LocatedRead, LocatedUnit,
    SECTOR_BYTES, Sectors,
};
use std::ops::Range;

/// Units kept at most: 4 GiB of 64 KiB each, for 8 MiB of memory.
const UNITS_MAX: usize = 1 << 16;
/// Units of a page.
const PAGE_UNITS: usize = 256;

/// The name of a unit: the number of its gate, and its own on the device of that.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnitName {
    gate: u32,
    number: u64,
}

struct KeptUnit {
    name: UnitName,
    unit: LocatedUnit,
}

type UnitPage = Box<[Option<KeptUnit>]>;

/// The units that a shard keeps.
pub(crate) struct KeptUnits(Vec<Option<UnitPage>>);

impl Default for KeptUnits {
    fn default() -> KeptUnits {
        KeptUnits((0..UNITS_MAX / PAGE_UNITS).map(|_| None).collect())
    }
}

impl UnitName {
    /// Page and place in the page, by multiplicative hashing (Knuth, TAOCP 3, 6.4).
    #[inline]
    fn place(self) -> (usize, usize) {
        let key = self.number ^ u64::from(self.gate) << 44;
        let hash = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize % UNITS_MAX;
        (hash / PAGE_UNITS, hash % PAGE_UNITS)
    }
}

/// The blocks that `len` bytes at `offset` touch.
fn touched(offset: u64, len: usize) -> Range<u64> {
    let (block, first) = (
        LOCATED_BLOCK_BYTES as u64,
        offset / LOCATED_BLOCK_BYTES as u64,
    );
    match len {
        0 => first..first,
        _ => first..(offset + len as u64).div_ceil(block),
    }
}

/// The sectors that `len` bytes at `offset` touch.
pub(crate) fn sectors(offset: u64, len: usize) -> Extent {
    let start = offset / SECTOR_BYTES;
    let end = (offset + len as u64).div_ceil(SECTOR_BYTES);
    Extent::new(Lba(start), Sectors(end - start))
}

/// True if the bytes are of one unit.
pub(crate) fn is_of_one(offset: u64, len: usize, generations: &Generations) -> bool {
    let blocks = touched(offset, len);
    let unit = u64::from(generations.unit_blocks());
    !blocks.is_empty() && blocks.start / unit == (blocks.end - 1) / unit
}

impl KeptUnits {
    /// Keeps `unit` of the device of `gate`.
    pub(crate) fn keep(&mut self, gate: u32, unit: LocatedUnit, generations: &Generations) {
        let unit_bytes = u64::from(generations.unit_blocks()) * LOCATED_BLOCK_BYTES as u64;
        let number = unit.extent.start.byte() / unit_bytes;
        let name = UnitName { gate, number };
        let (page, at) = name.place();
        let page = self.0[page].get_or_insert_with(|| (0..PAGE_UNITS).map(|_| None).collect());
        page[at] = Some(KeptUnit { name, unit });
    }

    /// The read of `len` bytes at `offset`, if the places of all blocks are kept.
    #[inline]
    pub(crate) fn read(
        &self,
        gate: u32,
        (offset, len): (u64, usize),
        generations: &Generations,
    ) -> Option<LocatedRead> {
        let blocks = touched(offset, len);
        if blocks.is_empty() || blocks.end - blocks.start > LOCATED_BLOCKS_MAX as u64 {
            return None;
        }
        let unit_blocks = u64::from(generations.unit_blocks());
        let part = |number: u64| {
            let first = number * unit_blocks;
            let name = UnitName { gate, number };
            let (page, at) = name.place();
            let kept = self.0[page].as_ref()?[at].as_ref()?;
            if kept.name != name || !generations.is_present(kept.unit.generation) {
                return None;
            }
            let from = blocks.start.max(first) - first;
            let to = blocks.end.min(first + unit_blocks) - first;
            kept.unit.read(from as u32..to as u32)
        };
        let (head, last) = (blocks.start / unit_blocks, (blocks.end - 1) / unit_blocks);
        let mut read = part(head)?;
        if head < last {
            read.rest = (head + 1..=last).map(part).collect::<Option<_>>()?;
        }
        read.skip = (offset % LOCATED_BLOCK_BYTES as u64) as u32;
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{DiskPlace, Nanos, TargetId};

    const BLOCK: usize = LOCATED_BLOCK_BYTES;

    fn unit(number: u64, slot: u32, generations: &Generations) -> LocatedUnit {
        LocatedUnit {
            extent: Extent::new(Lba(number * 128), Sectors(128)),
            place: DiskPlace {
                target: TargetId(1),
                at: Lba(1 << 20 | number * 128),
            },
            member: 0,
            generation: generations.of(slot),
            valid: u16::MAX,
            checksums: [slot; 16],
        }
    }

    #[test]
    fn a_kept_unit_serves_its_reads_until_its_slot_changes() {
        let generations = Generations::new(Nanos::from_millis(1), 16);
        let mut kept = KeptUnits::default();
        kept.keep(7, unit(3, 30, &generations), &generations);
        kept.keep(7, unit(4, 40, &generations), &generations);
        let at = 3 * 16 * BLOCK as u64 + 100;
        let read = kept.read(7, (at, 300), &generations).unwrap();
        assert_eq!((read.blocks, read.skip, read.rest.len()), (1, 100, 0));
        assert_eq!(read.place.at, Lba(1 << 20 | 384));
        let two = kept.read(7, (at, 16 * BLOCK), &generations).unwrap();
        assert_eq!((two.blocks, two.rest[0].blocks), (16, 1));
        assert!(is_of_one(at, 300, &generations) && !is_of_one(at, 16 * BLOCK, &generations));
        for (gate, offset, len, why) in [
            (6, at, 300, "another gate"),
            (7, at + 2 * 16 * BLOCK as u64, 300, "another unit"),
            (
                7,
                at + 16 * BLOCK as u64,
                16 * BLOCK,
                "past the units that are kept",
            ),
            (7, at, 0, "no bytes"),
        ] {
            assert!(
                kept.read(gate, (offset, len), &generations).is_none(),
                "{why}"
            );
        }
        generations.change(40);
        assert!(kept.read(7, (at, 16 * BLOCK), &generations).is_none());
        assert!(kept.read(7, (at, 300), &generations).is_some());
        generations.change_all();
        assert!(kept.read(7, (at, 300), &generations).is_none());
    }

    #[test]
    fn units_that_share_a_place_displace_each_other() {
        let generations = Generations::new(Nanos::from_millis(1), 16);
        let mut kept = KeptUnits::default();
        let units = 4 * UNITS_MAX as u64;
        (0..units).for_each(|number| kept.keep(0, unit(number, 1, &generations), &generations));
        let found = |number: u64| kept.read(0, (number * 16 * BLOCK as u64, BLOCK), &generations);
        let mut count = 0;
        for number in 0..units {
            if let Some(read) = found(number) {
                assert_eq!(read.place.at, Lba(1 << 20 | number * 128));
                count += 1;
            }
        }
        assert!(count <= UNITS_MAX && count > UNITS_MAX / 2, "{count}");
    }
}
