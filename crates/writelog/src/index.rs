//! The blocks of a volume that are newer in the log than at the origin, and their places.
//!
//! Invariants:
//!     a block is in `data` or in one run of `zeroes`, never in both
//!     an entry names the newest record of its block that all copies have

use super::blocks::{BlockSpot, Blocks};
use layout::{Became, LogRecord, RecordExtent};
use std::collections::BTreeMap;
use std::ops::Range;

/// A run of blocks for a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum IndexPiece {
    /// Blocks in the log, contiguous there.
    Log(Range<u64>, Vec<BlockSpot>),
    /// Blocks that were zeroed or discarded.
    Zero(Range<u64>),
    /// Blocks that are newest at the origin.
    Origin(Range<u64>),
}

#[derive(Default)]
pub(super) struct LogIndex {
    data: Blocks,
    /// Cleared runs by their first blocks.
    zeroes: BTreeMap<u64, Cleared>,
    /// Blocks of all cleared runs.
    cleared: u64,
}

/// A run of blocks that was zeroed or discarded.
#[derive(Clone, Copy)]
struct Cleared {
    end: u64,
    /// Number of its record.
    number: u64,
    discarded: bool,
}

impl LogIndex {
    /// Blocks with data.
    pub(super) fn blocks(&self) -> u64 {
        self.data.count()
    }

    /// Blocks that differ from the origin's, by data or by a clear.
    pub(super) fn dirty(&self) -> u64 {
        self.data.count() + self.cleared
    }

    /// Blocks with data, and cleared runs.
    pub(super) fn changes(&self) -> u64 {
        self.data.count() + self.zeroes.len() as u64
    }

    /// Indexes the record `number`; its data begins at block `at` of the area.
    pub(super) fn insert(&mut self, number: u64, extents: &[RecordExtent], at: u32, crcs: &[u32]) {
        let mut spots = (at..).zip(crcs);
        for extent in extents {
            let blocks = extent.block..extent.block + u64::from(extent.count);
            self.cut_zeroes(&blocks);
            match extent.became {
                Became::Data => {
                    let spots = spots.by_ref().map(|(at, crc)| BlockSpot { at, crc: *crc });
                    blocks
                        .zip(spots)
                        .for_each(|(block, spot)| self.data.insert(block, spot));
                }
                Became::Zero | Became::Discarded => {
                    self.cut_data(&blocks);
                    let cleared = Cleared {
                        end: blocks.end,
                        number,
                        discarded: extent.became == Became::Discarded,
                    };
                    self.put_zeroes(blocks.start, cleared);
                }
            }
        }
    }

    /// As [`LogIndex::insert`] for one record after the other, each with the first block of its data.
    /// Blocks are inserted by address: a B-tree that grows at its end is much faster.
    pub(super) fn fill<'a>(&mut self, records: impl Iterator<Item = (&'a LogRecord, u32)>) {
        let mut blocks = Vec::new();
        for (record, at) in records {
            let is_data = |extent: &RecordExtent| extent.became == Became::Data;
            if !record.extents.iter().all(is_data) {
                self.fill_blocks(&mut blocks);
                self.insert(record.number, &record.extents, at, &record.crcs);
                continue;
            }
            let all = record.extents.iter();
            let all = all.flat_map(|e| e.block..e.block + u64::from(e.count));
            let spots = (at..).zip(&record.crcs);
            let spots = spots.map(|(at, crc)| BlockSpot { at, crc: *crc });
            blocks.extend(all.zip(spots));
        }
        self.fill_blocks(&mut blocks);
    }

    fn fill_blocks(&mut self, blocks: &mut Vec<(u64, BlockSpot)>) {
        // A stable sort: the last record of a block holds.
        blocks.sort_by_key(|(block, _)| *block);
        for (block, spot) in blocks.drain(..) {
            self.cut_zeroes(&(block..block + 1));
            self.data.insert(block, spot);
        }
    }

    /// Removes records that were written back, of which `carried` is the index. Blocks of later
    /// records stay.
    pub(super) fn forget(&mut self, carried: &LogIndex) {
        for (block, spot) in carried.data.iter() {
            if self.data.get(block).is_some_and(|held| held.at == spot.at) {
                self.data.remove(block);
            }
        }
        for (start, run) in &carried.zeroes {
            // Later records may have cut the run into parts.
            let parts = self.zeroes.range(*start..run.end);
            let parts = parts.filter(|(_, part)| part.number == run.number);
            let starts: Vec<u64> = parts.map(|(start, _)| *start).collect();
            starts.iter().for_each(|start| self.take_zeroes(*start));
        }
    }

    /// Runs that were zeroed or discarded.
    pub(super) fn cleared(&self) -> impl Iterator<Item = (Range<u64>, Became)> {
        let runs = self.zeroes.iter();
        runs.map(|(start, run)| match run.discarded {
            true => (*start..run.end, Became::Discarded),
            false => (*start..run.end, Became::Zero),
        })
    }

    /// Runs of at most `most` blocks with data, by address.
    pub(super) fn runs(&self, most: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (block, _) in self.data.iter() {
            match runs.last_mut() {
                Some(run) if run.end == block && run.end - run.start < most => run.end += 1,
                _ => runs.push(block..block + 1),
            }
        }
        runs
    }

    /// Removes the data of `blocks`.
    fn cut_data(&mut self, blocks: &Range<u64>) {
        let covered = self.data.range(blocks.clone()).map(|(block, _)| block);
        for block in covered.collect::<Vec<_>>() {
            self.data.remove(block);
        }
    }

    /// Removes `blocks` from the cleared runs.
    fn cut_zeroes(&mut self, blocks: &Range<u64>) {
        while let Some((start, run)) = self.last_zeroes_before(blocks.end) {
            if run.end <= blocks.start {
                break;
            }
            self.take_zeroes(start);
            if start < blocks.start {
                let end = blocks.start;
                self.put_zeroes(start, Cleared { end, ..run });
            }
            if run.end > blocks.end {
                self.put_zeroes(blocks.end, run);
            }
        }
    }

    fn put_zeroes(&mut self, start: u64, run: Cleared) {
        self.cleared += run.end - start;
        self.zeroes.insert(start, run);
    }

    fn take_zeroes(&mut self, start: u64) {
        let run = self.zeroes.remove(&start);
        self.cleared -= run.map_or(0, |run| run.end - start);
    }

    fn last_zeroes_before(&self, end: u64) -> Option<(u64, Cleared)> {
        let (start, run) = self.zeroes.range(..end).next_back()?;
        Some((*start, *run))
    }

    /// Returns the runs that cover `blocks`, in order. A run of the log is contiguous in its area,
    /// and in one segment.
    pub(super) fn pieces(&self, blocks: Range<u64>) -> Vec<IndexPiece> {
        let mut pieces = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let piece = self.piece(at, blocks.end);
            at = match &piece {
                IndexPiece::Log(run, _) | IndexPiece::Zero(run) | IndexPiece::Origin(run) => {
                    run.end
                }
            };
            pieces.push(piece);
        }
        pieces
    }

    /// True if a block of `blocks` differs from the origin's.
    pub(super) fn has(&self, blocks: Range<u64>) -> bool {
        let end = blocks.end;
        !matches!(self.piece(blocks.start, end), IndexPiece::Origin(run) if run.end == end)
    }

    fn piece(&self, from: u64, end: u64) -> IndexPiece {
        if let Some((_, run)) = self.last_zeroes_before(from + 1)
            && run.end > from
        {
            return IndexPiece::Zero(from..run.end.min(end));
        }
        let mut spots: Vec<BlockSpot> = Vec::new();
        for (block, (next, spot)) in (from..end).zip(self.data.range(from..end)) {
            let follows = spots.last().is_none_or(|last| {
                last.at + 1 == spot.at && !spot.at.is_multiple_of(layout::SEGMENT_BLOCKS)
            });
            if next != block || !follows {
                break;
            }
            spots.push(spot);
        }
        if !spots.is_empty() {
            return IndexPiece::Log(from..from + spots.len() as u64, spots);
        }
        let data = self.data.range(from..end).next().map(|(block, _)| block);
        let zeroes = self.zeroes.range(from..end).next().map(|(start, _)| *start);
        IndexPiece::Origin(from..data.unwrap_or(end).min(zeroes.unwrap_or(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::LOG_NUMBER;
    use proptest::prelude::*;

    fn extent(block: u64, count: u32, became: Became) -> RecordExtent {
        RecordExtent {
            block,
            count,
            became,
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Held {
        Origin,
        Zero(u64),
        Log(BlockSpot),
    }

    proptest! {
        /// The index beside a table with a row a block, as records are added and written back.
        #[test]
        fn it_is_a_table_of_blocks(
            records in prop::collection::vec((0u64..60, 1u32..9, 0u8..3, 0usize..4), 1..60),
        ) {
            let (mut index, mut table) = (LogIndex::default(), [Held::Origin; 70]);
            let (mut at, mut live) = (1, std::collections::VecDeque::new());
            for (number, (block, count, kind, done)) in (0..).zip(records) {
                let became = [Became::Data, Became::Zero, Became::Discarded][kind as usize];
                let data = if became == Became::Data { count } else { 0 };
                let crcs: Vec<u32> = (0..data).map(|i| i ^ number as u32).collect();
                let extents = vec![extent(block, count, became)];
                index.insert(number, &extents, at, &crcs);
                for i in 0..count {
                    table[(block + u64::from(i)) as usize] = match crcs.get(i as usize) {
                        Some(crc) => Held::Log(BlockSpot { at: at + i, crc: *crc }),
                        None => Held::Zero(number),
                    };
                }
                live.push_back((number, extents, at, crcs));
                at += 1 + data;
                let done: Vec<_> = live.drain(..done.min(live.len())).collect();
                let mut carried = LogIndex::default();
                for (number, extents, at, crcs) in &done {
                    carried.insert(*number, extents, *at, crcs);
                }
                index.forget(&carried);
                for (number, extents, at, _) in &done {
                    for (held, block) in table.iter_mut().zip(0u64..) {
                        let first = extents[0].block;
                        let own = Held::Zero(*number) == *held
                            || matches!(held, Held::Log(s) if extents[0].became == Became::Data
                                && (first..first + u64::from(extents[0].count)).contains(&block)
                                && s.at == at + (block - first) as u32);
                        if own {
                            *held = Held::Origin;
                        }
                    }
                }
                let mut found = Vec::new();
                for piece in index.pieces(0..70) {
                    match piece {
                        IndexPiece::Log(run, spots) => {
                            prop_assert_eq!(run.end - run.start, spots.len() as u64);
                            found.extend(spots.into_iter().map(Some).map(Ok));
                        }
                        IndexPiece::Zero(run) => found.extend(run.map(|_| Ok(None))),
                        IndexPiece::Origin(run) => found.extend(run.map(|_| Err(()))),
                    }
                }
                let expected: Vec<_> = table.iter().map(|held| match held {
                    Held::Origin => Err(()),
                    Held::Zero(_) => Ok(None),
                    Held::Log(spot) => Ok(Some(*spot)),
                }).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    proptest! {
        #[test]
        fn records_at_once_are_as_one_after_the_other(
            records in prop::collection::vec(
                prop::collection::vec((0u64..60, 1u32..9, 0u8..12), 0..4), 1..40,
            ),
        ) {
            let (mut at, mut one_by_one, mut all) = (1, LogIndex::default(), Vec::new());
            for (number, extents) in (0..).zip(records) {
                // Most extents have data.
                let became = |kind| match kind {
                    0 => Became::Zero,
                    1 => Became::Discarded,
                    _ => Became::Data,
                };
                let extents = extents.into_iter();
                let extents: Vec<_> = extents.map(|(b, n, kind)| extent(b, n, became(kind))).collect();
                let data = extents.iter().filter(|e| e.became == Became::Data);
                let blocks: u32 = data.map(|e| e.count).sum();
                let record = LogRecord {
                    number,
                    incarnation: 1,
                    segment: 0,
                    interval: 0,
                    written_back_to: 0,
                    fence: 0,
                    written_at: 0,
                    durable_to: 0,
                    complete_to: 0,
                    log: LOG_NUMBER,
                    extents,
                    crcs: (at..at + blocks).map(|crc| !crc).collect(),
                };
                one_by_one.insert(number, &record.extents, at, &record.crcs);
                at += 1 + blocks;
                all.push((record, at - 1 - blocks));
            }
            let mut filled = LogIndex::default();
            filled.fill(all.iter().map(|(record, at)| (record, *at)));
            prop_assert_eq!(filled.pieces(0..70), one_by_one.pieces(0..70));
            prop_assert!(filled.cleared().eq(one_by_one.cleared()));
        }
    }

    #[test]
    fn a_run_ends_at_the_end_of_a_segment() {
        let mut index = LogIndex::default();
        index.insert(1, &[extent(0, 1, Became::Data)], 255, &[1]);
        index.insert(2, &[extent(1, 1, Became::Data)], 256, &[2]);
        assert_eq!(index.pieces(0..2).len(), 2);
    }
}
