//! From sectors to blocks to lines, and the keys that name lines.
//!
//! A block is 4 KiB, the unit of validity and of checksums. A line is a power
//! of two of blocks, the unit of replacement, aligned on its volume.

use block::{Extent, Lba, Sectors};
use layout::LINE_BITS;
use policy::{LineKey, LineParts};
use std::ops::Range;

pub(crate) use layout::{BLOCK_BYTES, BLOCK_SECTORS};

/// Volume ids that exist, over the life of a cache.
pub(crate) const VOLUME_IDS: u32 = 1 << (64 - LINE_BITS);

/// The volume and the line that a key names.
pub(crate) fn split_key(key: LineKey) -> (u32, u64) {
    ((key.0 >> LINE_BITS) as u32, key.0 & ((1 << LINE_BITS) - 1))
}

/// The blocks that `extent` touches.
pub(crate) fn covering(extent: Extent) -> Range<u64> {
    extent.start.0 / BLOCK_SECTORS..extent.end().0.div_ceil(BLOCK_SECTORS)
}

/// The blocks that lie wholly inside `extent`; possibly none.
pub(crate) fn inside(extent: Extent) -> Range<u64> {
    let start = extent.start.0.div_ceil(BLOCK_SECTORS);
    start..(extent.end().0 / BLOCK_SECTORS).max(start)
}

/// The sectors of `blocks`.
pub(crate) fn extent_of(blocks: &Range<u64>) -> Extent {
    Extent::new(
        Lba(blocks.start * BLOCK_SECTORS),
        Sectors((blocks.end - blocks.start) * BLOCK_SECTORS),
    )
}

pub(crate) fn bytes_of(blocks: &Range<u64>) -> usize {
    (blocks.end - blocks.start) as usize * BLOCK_BYTES
}

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// A run of blocks inside one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockRun {
    /// The first block, counted from the start of the line.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl BlockRun {
    pub(crate) fn overlaps(self, other: BlockRun) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// The part of one line that a request touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinePart {
    pub(crate) key: LineKey,
    pub(crate) run: BlockRun,
}

/// The blocks of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineShape {
    shift: u32,
}

impl LineShape {
    pub(crate) fn new(line_bytes: u32) -> LineShape {
        LineShape {
            shift: (line_bytes as usize / BLOCK_BYTES).trailing_zeros(),
        }
    }

    pub(crate) fn shift(self) -> u32 {
        self.shift
    }

    pub(crate) fn blocks(self) -> u32 {
        1 << self.shift
    }

    pub(crate) fn sectors(self) -> Sectors {
        Sectors(BLOCK_SECTORS << self.shift)
    }

    /// All blocks of a line.
    pub(crate) fn whole(self) -> BlockRun {
        BlockRun {
            first: 0,
            count: self.blocks(),
        }
    }

    /// Most blocks of a volume such that its lines have keys.
    pub(crate) fn blocks_max(self) -> u64 {
        1 << (LINE_BITS + self.shift)
    }

    /// The lines that `blocks` of a volume touch, in order.
    #[inline]
    pub(crate) fn parts(
        self,
        volume: u32,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = LinePart> + Clone {
        let mut at = blocks.start;
        std::iter::from_fn(move || {
            if at >= blocks.end {
                return None;
            }
            let line = at >> self.shift;
            let end = blocks.end.min((line + 1) << self.shift);
            let part = LinePart {
                key: self.key(volume, line),
                run: BlockRun {
                    first: (at - (line << self.shift)) as u32,
                    count: (end - at) as u32,
                },
            };
            at = end;
            Some(part)
        })
    }

    /// The key of a line of a volume.
    pub(crate) fn key(self, volume: u32, line: u64) -> LineKey {
        LineKey(u64::from(volume) << LINE_BITS | line)
    }

    /// The parts of its line that a run of blocks touches, as policies have them.
    #[inline]
    pub(crate) fn touched(self, run: BlockRun) -> LineParts {
        LineParts::of(run.first, run.count, self.shift)
    }

    /// The number of lines that `blocks` touch.
    pub(crate) fn lines(self, blocks: &Range<u64>) -> u64 {
        ((blocks.end + u64::from(self.blocks()) - 1) >> self.shift) - (blocks.start >> self.shift)
    }

    /// The part of the line `key` that `blocks` of a volume touch.
    pub(crate) fn part_of(
        self,
        volume: u32,
        blocks: &Range<u64>,
        key: LineKey,
    ) -> Option<BlockRun> {
        let (owner, line) = split_key(key);
        let start = (line << self.shift).max(blocks.start);
        let end = ((line + 1) << self.shift).min(blocks.end);
        (owner == volume && start < end).then(|| BlockRun {
            first: (start - (line << self.shift)) as u32,
            count: (end - start) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_touched_and_blocks_whole() {
        let extent = |s, n| Extent::new(Lba(s), Sectors(n));
        assert_eq!(covering(extent(7, 2)), 0..2);
        assert_eq!(inside(extent(7, 2)), 1..1);
        assert_eq!(inside(extent(7, 18)), 1..3);
        assert_eq!(covering(extent(8, 16)), inside(extent(8, 16)));
        assert_eq!(extent_of(&(1..3)), extent(8, 16));
    }

    #[test]
    fn parts_cover_the_blocks_exactly() {
        for line_bytes in [4096, 16384, 65536, 1 << 20] {
            let shape = LineShape::new(line_bytes);
            for blocks in [0..1, 3..40, 15..17, 256..1024, 5..5] {
                let parts: Vec<_> = shape.parts(3, blocks.clone()).collect();
                let covered: u64 = parts.iter().map(|p| u64::from(p.run.count)).sum();
                assert_eq!(covered, blocks.end - blocks.start);
                if covered > 0 {
                    assert_eq!(parts.len() as u64, shape.lines(&blocks));
                }
                for part in parts {
                    assert!(part.run.first + part.run.count <= shape.blocks());
                    assert_eq!(shape.part_of(3, &blocks, part.key), Some(part.run));
                    assert_eq!(shape.part_of(2, &blocks, part.key), None);
                }
            }
        }
    }
}
