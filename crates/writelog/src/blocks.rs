//! The places of blocks with data, by address.
//!
//! Blocks are kept in parts of 65,536 (256 MiB of the volume), so that a key costs two bytes. An
//! entry has ten bytes. A B-tree of entries stays below 32 bytes a block, in whatever order it is
//! filled.

use std::collections::BTreeMap;
use std::ops::Range;

/// Place of a block in the area, counted in blocks, and its checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockSpot {
    pub(super) at: u32,
    pub(super) crc: u32,
}

#[derive(Default)]
pub(super) struct Blocks {
    parts: BTreeMap<u64, BTreeMap<u16, BlockSpot>>,
    count: u64,
}

fn part_of(block: u64) -> (u64, u16) {
    (block >> u16::BITS, block as u16)
}

impl Blocks {
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn get(&self, block: u64) -> Option<BlockSpot> {
        let (part, low) = part_of(block);
        self.parts.get(&part)?.get(&low).copied()
    }

    pub(super) fn insert(&mut self, block: u64, spot: BlockSpot) {
        let (part, low) = part_of(block);
        let before = self.parts.entry(part).or_default().insert(low, spot);
        self.count += u64::from(before.is_none());
    }

    pub(super) fn remove(&mut self, block: u64) {
        let (part, low) = part_of(block);
        if let Some(blocks) = self.parts.get_mut(&part)
            && blocks.remove(&low).is_some()
        {
            self.count -= 1;
            if blocks.is_empty() {
                self.parts.remove(&part);
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, BlockSpot)> {
        self.range(0..u64::MAX)
    }

    /// Entries by address.
    pub(super) fn range(&self, blocks: Range<u64>) -> impl Iterator<Item = (u64, BlockSpot)> {
        let (first, low) = part_of(blocks.start);
        let parts = self.parts.range(first..);
        let all = parts.flat_map(move |(part, spots)| {
            let from = if *part == first { low } else { 0 };
            let base = part << u16::BITS;
            let spots = spots.range(from..);
            spots.map(move |(low, spot)| (base + u64::from(*low), *spot))
        });
        all.take_while(move |(block, _)| *block < blocks.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(
            changes in prop::collection::vec((0u64..12, 0u64..20, any::<bool>()), 1..200),
            from in 0u64..12, to in 0u64..12,
        ) {
            let (mut blocks, mut map) = (Blocks::default(), BTreeMap::new());
            // Places near the ends of parts.
            let place = |near: u64, by: u64| (near << 15) + by;
            for (number, (near, by, insert)) in (0..).zip(changes) {
                let (block, spot) = (place(near, by), BlockSpot { at: number, crc: 7 });
                if insert {
                    blocks.insert(block, spot);
                    map.insert(block, spot);
                } else {
                    blocks.remove(block);
                    map.remove(&block);
                }
                prop_assert_eq!(blocks.get(block), map.get(&block).copied());
                prop_assert_eq!(blocks.count(), map.len() as u64);
            }
            let range = place(from.min(to), 3)..place(from.max(to), 9);
            let expected: Vec<_> = map.range(range.clone()).map(|(b, s)| (*b, *s)).collect();
            prop_assert_eq!(blocks.range(range).collect::<Vec<_>>(), expected);
            prop_assert!(blocks.iter().eq(map.iter().map(|(b, s)| (*b, *s))));
        }
    }
}
