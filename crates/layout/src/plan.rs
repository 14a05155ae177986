//! The plan of a pool device: the place of each area.
//!
//! The plan follows from the device's size and the length of a line alone. One superblock is enough
//! to find the rest, and a superblock that disagrees with the plan is recognised as damaged.

use crate::map::entries_per_page;
use crate::volumes::{TABLE_BLOCKS_MAX, volumes_fitting};
use crate::{BLOCK_BYTES, BLOCK_SECTORS, SUPERBLOCK_BLOCKS};
use block::{Extent, Lba, Sectors};

/// Blocks of the write-intent bitmap: two pairs, written in turn.
pub const BITMAP_BLOCKS: u64 = 4;
/// Blocks of log that even the smallest device has.
const LOG_BLOCKS_MIN: u64 = 16;
/// Blocks of log for each page of the map. A page holds more than its slots can have pending, so a
/// commit is at most as many blocks as the map has pages: one fits beside a half full log, and so
/// does the last one of a checkpoint.
const LOG_BLOCKS_PER_PAGE: u64 = 4;
/// Bytes of the policy's hints, for each slot.
const HINTS_BYTES_PER_SLOT: u64 = 16;
/// Blocks of a device for each block of a table area, up to [`TABLE_BLOCKS_MAX`].
const BLOCKS_PER_TABLE_BLOCK: u64 = 128;
/// Blocks of a witness: two superblocks, and their table areas.
pub const WITNESS_BLOCKS: u64 = 2 * (SUPERBLOCK_BLOCKS + TABLE_BLOCKS_MAX);
/// The table areas of a witness.
pub const WITNESS_TABLES: [PlannedArea; 2] = [
    PlannedArea {
        start: 2 * SUPERBLOCK_BLOCKS,
        blocks: TABLE_BLOCKS_MAX,
    },
    PlannedArea {
        start: 2 * SUPERBLOCK_BLOCKS + TABLE_BLOCKS_MAX,
        blocks: TABLE_BLOCKS_MAX,
    },
];
/// Slots of a device; a policy numbers them twice over in 32 bits.
const SLOTS_MAX: u64 = 1 << 30;

/// A run of blocks on the device, counted in blocks from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedArea {
    /// The first.
    pub start: u64,
    /// The number.
    pub blocks: u64,
}

impl PlannedArea {
    /// The first block after the area.
    pub const fn end(self) -> u64 {
        self.start + self.blocks
    }

    /// Address of the area's block `n` on a part of a device that starts at `base`.
    pub fn lba(self, base: Lba, n: u64) -> Lba {
        assert!(n < self.blocks, "block {n} of {self:?}");
        base + Sectors((self.start + n) * BLOCK_SECTORS)
    }

    /// The sectors of the area.
    pub fn extent(self, base: Lba) -> Extent {
        let start = base + Sectors(self.start * BLOCK_SECTORS);
        Extent::new(start, Sectors(self.blocks * BLOCK_SECTORS))
    }
}

/// Reason for which a device cannot be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// The device has no room for a line beside the metadata.
    TooSmall,
    /// The device would have too many lines.
    TooManyLines,
}

/// The areas of a device, and its numbers of blocks and lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutPlan {
    /// Blocks of the device's part that is used.
    pub blocks: u64,
    /// Blocks of a line.
    pub line_blocks: u32,
    /// Lines that the device has room for.
    pub slots: u32,
    /// Lines that log, map and hints have room for: the table areas are where the last ones were.
    pub places: u32,
    /// The two copies of the superblock.
    pub superblocks: [PlannedArea; 2],
    /// The write-intent bitmap: two pairs of copies.
    pub bitmap: PlannedArea,
    /// The ring of map changes.
    pub log: PlannedArea,
    /// The two places of a checkpoint of the map.
    pub maps: [PlannedArea; 2],
    /// The two places of the policy's hints.
    pub hints: [PlannedArea; 2],
    /// The lines themselves.
    pub lines: PlannedArea,
    /// The rest of the volumes of each superblock.
    pub tables: [PlannedArea; 2],
}

impl LayoutPlan {
    /// The plan of a part of a device, `len` long, with lines of `line_blocks`
    /// blocks.
    pub fn new(len: Sectors, line_blocks: u32) -> Result<LayoutPlan, PlanError> {
        assert!(line_blocks.is_power_of_two() && line_blocks <= 256);
        let blocks = len.0 / BLOCK_SECTORS;
        let fits = |slots| LayoutPlan::of(blocks, line_blocks, slots).is_some();
        let (mut low, mut high) = (0, blocks / u64::from(line_blocks) + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        match low {
            0 => Err(PlanError::TooSmall),
            slots if slots > SLOTS_MAX => Err(PlanError::TooManyLines),
            slots => Ok(LayoutPlan::of(blocks, line_blocks, slots).expect("it fits")),
        }
    }

    fn of(blocks: u64, line_blocks: u32, slots: u64) -> Option<LayoutPlan> {
        let pages = slots.div_ceil(u64::from(entries_per_page(line_blocks)));
        let hints = (slots * HINTS_BYTES_PER_SLOT).div_ceil(BLOCK_BYTES as u64) + 1;
        let mut at = 0;
        let mut take = |blocks| {
            let start = at;
            at += blocks;
            PlannedArea { start, blocks }
        };
        let superblock = take(SUPERBLOCK_BLOCKS);
        let bitmap = take(BITMAP_BLOCKS);
        let log = take((pages * LOG_BLOCKS_PER_PAGE).max(LOG_BLOCKS_MIN));
        let maps = [take(pages), take(pages)];
        let hints = [take(hints), take(hints)];
        let line = u64::from(line_blocks);
        let start = hints[1].end().next_multiple_of(line);
        let last = PlannedArea {
            start: blocks.checked_sub(SUPERBLOCK_BLOCKS)?,
            blocks: SUPERBLOCK_BLOCKS,
        };
        if start + slots * line > last.start {
            return None;
        }
        // Where these would take the only line, there are none.
        let table = (blocks / BLOCKS_PER_TABLE_BLOCK).min(TABLE_BLOCKS_MAX);
        let table = if start + line + 2 * table > last.start {
            0
        } else {
            table
        };
        let tables = [2, 1].map(|n| PlannedArea {
            start: last.start - n * table,
            blocks: table,
        });
        let places = u32::try_from(slots).unwrap_or(u32::MAX);
        let slots = slots.min((tables[0].start - start) / line);
        let lines = PlannedArea {
            start,
            blocks: slots * line,
        };
        Some(LayoutPlan {
            blocks,
            line_blocks,
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            places,
            superblocks: [superblock, last],
            bitmap,
            log,
            maps,
            hints,
            lines,
            tables,
        })
    }

    /// Volumes that a superblock here has room for, with the longest records of their origins.
    pub fn volumes(&self) -> usize {
        volumes_fitting(self.tables[0].blocks)
    }

    /// Pages of a map that have entries of slots.
    pub fn pages(&self) -> u64 {
        u64::from(self.slots.div_ceil(entries_per_page(self.line_blocks)))
    }

    /// The areas by name, in order.
    pub fn areas(&self) -> Vec<(&'static str, PlannedArea)> {
        let areas = [
            ("superblock A", self.superblocks[0]),
            ("bitmap", self.bitmap),
            ("log", self.log),
            ("map A", self.maps[0]),
            ("map B", self.maps[1]),
            ("hints A", self.hints[0]),
            ("hints B", self.hints[1]),
            ("lines", self.lines),
            ("table A", self.tables[0]),
            ("table B", self.tables[1]),
            ("superblock B", self.superblocks[1]),
        ];
        areas
            .into_iter()
            .filter(|(_, area)| area.blocks > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_are_disjoint_and_nothing_more_would_fit(
            sectors in 0u64..1 << 40,
            shift in 0u32..9,
        ) {
            let Ok(plan) = LayoutPlan::new(Sectors(sectors), 1 << shift) else { return Ok(()) };
            let mut at = 0;
            for (name, area) in plan.areas() {
                prop_assert!(area.start >= at && area.blocks > 0, "{name}: {area:?} after {at}");
                at = area.end();
            }
            prop_assert!(at <= sectors / BLOCK_SECTORS);
            prop_assert!(LayoutPlan::of(plan.blocks, 1 << shift, u64::from(plan.places) + 1).is_none());
            let lines = plan.lines.end() + (1 << shift);
            prop_assert!(plan.slots == plan.places || lines > plan.tables[0].start);
        }
    }

    #[test]
    fn metadata_stays_small_beside_the_lines() {
        for (line_blocks, most) in [(1, 0.06), (16, 0.01), (256, 0.02)] {
            let plan = LayoutPlan::new(Sectors::from_mib(16 << 10), line_blocks).unwrap();
            let share = 1.0 - plan.lines.blocks as f64 / plan.blocks as f64;
            assert!(share < most, "{line_blocks} blocks a line: {share}");
        }
        assert_eq!(
            LayoutPlan::new(Sectors(8 * 40), 1),
            Err(PlanError::TooSmall)
        );
    }
}
