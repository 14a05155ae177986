//! The chance that reads of a resident line hit.
//!
//! A slot holds the parts of its line that were read or written since the line came. Two numbers
//! are counted for each number of parts held and of uses so far: the reads of the sample that came
//! next, and the reads among them that asked for no other part. Later reads count too, by the
//! expected state of the line. Each counts less by the share of lines with as many uses that are
//! evicted before the next use. Otherwise an empty line would be worth little however long it stays
//! and fills. A line that is one block is found whenever resident.
//!
//! Parts that the engine could not write to the slot after all, or that a write made invalid there,
//! count as held.
//!
//! Cells with few reads are shrunk towards those of as many parts and any number of uses. These are
//! shrunk towards certainty, which is the value of a line without observations. The length of
//! lines' stay is not saved: it is soon counted again.

use super::line::{PackedLine, USES_MAX};
use crate::LineParts;

/// Rows: by uses, and in the place of no use all together.
pub(crate) const ROWS: usize = USES_MAX as usize + 1;
/// Columns: by parts held.
pub(crate) const COLUMNS: usize = LineParts::MAX + 1;

/// Reads that the coarser level is worth.
const SHRINKAGE: f32 = 8.0;
/// Reads of a cell, after which the earlier ones count half.
const READS_MAX: f32 = 512.0;
/// Most weight of a read relative to the one before: values learnt from themselves are never learnt
/// if nothing fades.
const STAY_MAX: f32 = 0.9;
/// Uses and evictions of lines of as many uses, after which the earlier ones count half.
const STAYS_MAX: f32 = 8192.0;
const ALL: usize = 0;

/// The number of reads, and of those among these and the next that found all.
pub(crate) type Cell = [f32; 2];

/// Observations, and the estimate that follows.
#[derive(Clone, Debug)]
pub(crate) struct Fills {
    cells: [[Cell; COLUMNS]; ROWS],
    found: [[f32; COLUMNS]; ROWS],
    /// Resident lines of the sample that were used again, and that were evicted, by uses.
    stays: [[f32; 2]; ROWS],
}

impl Fills {
    pub(crate) fn new() -> Fills {
        Fills::of([[[0.0; 2]; COLUMNS]; ROWS])
    }

    /// Observations from the cells of [`Fills::cells`].
    pub(crate) fn of(cells: [[Cell; COLUMNS]; ROWS]) -> Fills {
        let mut fills = Fills {
            cells,
            found: [[1.0; COLUMNS]; ROWS],
            stays: [[1.0; 2]; ROWS],
        };
        fills.refresh();
        fills
    }

    pub(crate) fn cells(&self) -> &[[Cell; COLUMNS]; ROWS] {
        &self.cells
    }

    /// Notes a read of `line`, in its state before, for `touched`.
    pub(crate) fn read(&mut self, line: PackedLine, touched: LineParts) {
        let found = f32::from(u8::from(line.held.cover(touched)));
        let later = self.stay(line);
        let found = found * (1.0 - later) + self.chance(line.used(touched)) * later;
        for row in [usize::from(line.uses()), ALL] {
            let [reads, founds] = &mut self.cells[row][line.held.count()];
            *reads += 1.0;
            *founds += found;
            if *reads > READS_MAX {
                *reads /= 2.0;
                *founds /= 2.0;
            }
        }
    }

    /// The resident `line` is used again.
    pub(crate) fn again(&mut self, line: PackedLine) {
        self.left(line, 0);
    }

    /// The resident `line` is evicted.
    pub(crate) fn evicted(&mut self, line: PackedLine) {
        self.left(line, 1);
    }

    fn left(&mut self, line: PackedLine, how: usize) {
        let stays = &mut self.stays[usize::from(line.uses())];
        stays[how] += 1.0;
        if stays[0] + stays[1] > STAYS_MAX {
            *stays = stays.map(|n| n / 2.0);
        }
    }

    /// Returns the chance of another use of a resident line before its eviction.
    fn stay(&self, line: PackedLine) -> f32 {
        let [used, evicted] = self.stays[usize::from(line.uses())];
        (used / (used + evicted)).min(STAY_MAX)
    }

    /// The chance that the next reads of `line` find all, as of the last refresh.
    #[inline(always)]
    pub(crate) fn chance(&self, line: PackedLine) -> f32 {
        if line.held == LineParts::WHOLE {
            return 1.0;
        }
        self.found[usize::from(line.uses())][line.held.count()]
    }

    /// Takes the observations since the last time into account.
    pub(crate) fn refresh(&mut self) {
        for (row, cells) in self.cells.iter().enumerate() {
            for (parts, own) in cells.iter().enumerate() {
                let shrunk = |[reads, founds]: Cell, to: f32| {
                    (founds + SHRINKAGE * to) / (reads + SHRINKAGE)
                };
                let any = shrunk(self.cells[ALL][parts], 1.0);
                self.found[row][parts] = if row == ALL { any } else { shrunk(*own, any) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::LineClass;
    use super::*;

    #[test]
    fn what_holds_more_is_found_more_often() {
        let mut fills = Fills::new();
        let line = |held| PackedLine::new(0, LineClass(0), 1, held);
        let (half, part) = (LineParts::of(0, 8, 4), LineParts::of(0, 1, 4));
        assert_eq!(fills.chance(line(part)), 1.0);
        for _ in 0..40 {
            for block in 0..16 {
                for held in [half, part, LineParts::of(0, 9, 4), LineParts::of(0, 2, 4)] {
                    fills.read(line(held), LineParts::of(block, 1, 4));
                }
            }
            fills.refresh();
        }
        let [of_half, of_part] = [half, part].map(|held| fills.chance(line(held)));
        // Half is there, a sixteenth; of the reads after that a little more is.
        assert!((0.5..0.6).contains(&of_half), "{of_half}");
        assert!((0.0625..0.4).contains(&of_part), "{of_part}");
        assert_eq!(fills.chance(line(LineParts::WHOLE)), 1.0);
        // Where lines stay, their later parts count more; where lines go at once, less.
        let (mut staying, mut going) = (fills.clone(), fills.clone());
        for _ in 0..400 {
            staying.again(line(part));
            going.evicted(line(part));
            for block in 0..16 {
                for fills in [&mut staying, &mut going] {
                    fills.read(line(part), LineParts::of(block, 1, 4));
                }
            }
        }
        staying.refresh();
        going.refresh();
        assert!(staying.chance(line(part)) > of_part + 0.1);
        assert!((0.05..of_part).contains(&going.chance(line(part))));
        let again = Fills::of(*fills.cells());
        assert_eq!(again.chance(line(half)), of_half);
    }
}
