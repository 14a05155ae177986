//! The operations of a disk, in order, and the bytes that the disk may hold after a cut.
//!
//! Invariants:
//!     a write ended before the begin of a flush that ended before the cut, or was forced and
//!     ended ⟹ the write is in every image
//!     a write began after the cut ⟹ the write is in no image

use block::SECTOR_BYTES;
use sim::SimRng;
use std::time::{Duration, Instant};

/// The bytes of a write.
pub(super) enum WrittenContent {
    Bytes(Vec<u8>),
    Zeroes(u64),
}

impl WrittenContent {
    fn len(&self) -> u64 {
        match self {
            WrittenContent::Bytes(bytes) => bytes.len() as u64,
            WrittenContent::Zeroes(len) => *len,
        }
    }
}

struct RecordedBytes {
    offset: u64,
    content: WrittenContent,
    forced: bool,
    began: usize,
    ended: Option<usize>,
}

/// The operations, by moments. A moment's number is the count of earlier begins and ends of writes
/// and flushes.
#[derive(Default)]
pub(super) struct WriteRecord {
    moments: usize,
    /// The writes, in the order of their begins.
    writes: Vec<RecordedBytes>,
    /// The moments of each flush's begin and end.
    flushes: Vec<(usize, usize)>,
    /// The moment of each commit's acknowledgement, with the commit's number.
    commits: Vec<(usize, u64)>,
    last: Option<Instant>,
}

impl WriteRecord {
    fn next(&mut self) -> usize {
        self.moments += 1;
        self.last = Some(Instant::now());
        self.moments
    }

    /// A write begins. Returns its number.
    pub(super) fn begin(&mut self, offset: u64, content: WrittenContent, forced: bool) -> usize {
        let began = self.next();
        self.writes.push(RecordedBytes {
            offset,
            content,
            forced,
            began,
            ended: None,
        });
        self.writes.len() - 1
    }

    /// The write was acknowledged.
    pub(super) fn end(&mut self, write: usize) {
        self.writes[write].ended = Some(self.next());
    }

    /// A flush begins. Returns its moment.
    pub(super) fn begin_flush(&mut self) -> usize {
        self.next()
    }

    /// The flush was acknowledged.
    pub(super) fn end_flush(&mut self, began: usize) {
        let ended = self.next();
        self.flushes.push((began, ended));
    }

    /// A client's commit `number` was acknowledged as durable.
    pub(super) fn commit(&mut self, number: u64) {
        self.commits.push((self.moments, number));
    }

    /// True if no operation began or ended for `span`.
    pub(super) fn is_quiet(&self, span: Duration) -> bool {
        self.last.is_none_or(|last| last.elapsed() > span)
    }

    pub(super) fn writes(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn flushes(&self) -> usize {
        self.flushes.len()
    }

    /// The commits acknowledged before `cut`.
    pub(super) fn committed(&self, cut: usize) -> impl Iterator<Item = u64> {
        let before = self.commits.iter().filter(move |(at, _)| *at <= cut);
        before.map(|(_, number)| *number)
    }

    /// The moments to cut at: the end of each flush, and `between` others.
    pub(super) fn cuts(&self, between: usize, rng: &mut SimRng) -> Vec<usize> {
        let mut cuts: Vec<usize> = self.flushes.iter().map(|(_, ended)| *ended).collect();
        cuts.extend((0..between).map(|_| rng.between(1, self.moments as u64) as usize));
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// An image of the disk after a cut; `disk` is its content at first.
    pub(super) fn image(&self, cut: usize, disk: &[u8], rng: &mut SimRng) -> Vec<u8> {
        let mut image = disk.to_vec();
        let flushed = self.flushes.iter().filter(|(_, ended)| *ended <= cut);
        let flushed = flushed.map(|(began, _)| *began).max().unwrap_or(0);
        for write in self.writes.iter().filter(|write| write.began <= cut) {
            let ended = write.ended.filter(|ended| *ended <= cut);
            let durable = ended.is_some_and(|ended| write.forced || ended < flushed);
            // Kept, lost, or each sector by itself.
            let fate = if durable { 0 } else { rng.below(3) };
            let sectors = write.content.len() / SECTOR_BYTES;
            for sector in 0..sectors {
                if fate == 0 || fate == 1 && rng.chance(0.5) {
                    write.apply(sector, &mut image);
                }
            }
        }
        image
    }
}

impl RecordedBytes {
    fn apply(&self, sector: u64, image: &mut [u8]) {
        let from = (sector * SECTOR_BYTES) as usize;
        let to = from + SECTOR_BYTES as usize;
        let place = &mut image[self.offset as usize + from..self.offset as usize + to];
        match &self.content {
            WrittenContent::Bytes(bytes) => place.copy_from_slice(&bytes[from..to]),
            WrittenContent::Zeroes(_) => place.fill(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(record: &mut WriteRecord, offset: u64, byte: u8, forced: bool) -> usize {
        record.begin(offset, WrittenContent::Bytes(vec![byte; 1024]), forced)
    }

    #[test]
    fn what_was_flushed_is_in_every_image_and_the_rest_in_any_part() {
        let mut record = WriteRecord::default();
        let first = write(&mut record, 0, 1, false);
        record.end(first);
        let flush = record.begin_flush();
        let second = write(&mut record, 0, 2, false);
        record.end(second);
        record.end_flush(flush);
        record.commit(7);
        let forced = write(&mut record, 1024, 3, true);
        record.end(forced);
        let cut = record.moments;
        let late = write(&mut record, 0, 4, true);
        record.end(late);
        assert_eq!(record.committed(cut).collect::<Vec<_>>(), [7]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let image = record.image(cut, &[0; 2048], &mut SimRng::new(seed));
            assert!(image[1024..].iter().all(|byte| *byte == 3));
            seen.insert((image[0], image[512]));
        }
        let expected = [(1, 1), (1, 2), (2, 1), (2, 2)];
        assert!(seen.into_iter().eq(expected));
        let early = record.image(flush, &[0; 2048], &mut SimRng::new(1));
        assert_eq!(early[1024], 0);
        assert_eq!(record.committed(flush).count(), 0);
    }
}
