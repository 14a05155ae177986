//! Places of the blocks of other shards' devices, kept for later hits.
//!
//! A unit has its place in the table by a hash of its gate and number. Units that have the same
//! place displace each other.
//!
//! Hits are counted here and reported together: the places of each unit's reads as one.
//!
//! Invariants:
//!     a read is given ⟹ its slots had the generations of their units just now
//!     units kept <= `UNITS_MAX`; memory is taken for those that were kept, a page at a time
//!     a unit has reads that are not reported ⟺ its name is in `due`, or a touch of it in `displaced`
//!
//! Not here: whether the bytes count, which is found when they have been read (`located`).

use block::{
    Extent, Generations, KeptHits, KeptTouch, LOCATED_BLOCK_BYTES, LOCATED_BLOCK_SECTORS,
    LOCATED_BLOCKS_MAX, Lba, LocatedEnd, LocatedRead, LocatedUnit, Nanos, ReadTimes, Sectors,
};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Units kept at most: 4 GiB of 64 KiB each.
const UNITS_MAX: usize = 1 << 16;
/// Most bytes of memory of the units that a shard keeps.
pub const KEPT_BYTES_MAX: usize = UNITS_MAX * size_of::<Option<KeptUnit>>();
/// Units of a page.
const PAGE_UNITS: usize = 256;
/// Fewest touches of a report, if there are so many.
const TOUCHES: usize = 64;
/// A report has one in so many of the units that are due, so that more reads of each come together.
const REPORTS: usize = 64;

/// The name of a unit: the number of its gate, and its own on the device of that.
#[derive(Clone, Copy, PartialEq, Eq)]
struct UnitName {
    gate: u32,
    number: u64,
}

struct KeptUnit {
    name: UnitName,
    unit: LocatedUnit,
    /// Reads that are not reported, with the part of the last.
    unreported: Option<KeptTouch>,
}

type UnitPage = Box<[Option<KeptUnit>]>;

/// Reads and their times, until they are reported.
struct TimedReads {
    sectors: Sectors,
    times: Histogram<u64>,
    /// The last time, and the number of reads in a row with that time, which `times` lacks: the
    /// reads of a turn often have the same.
    run: (Nanos, u64),
}

/// The hits of a gate that are not reported.
#[derive(Default)]
pub(crate) struct GateHits {
    requests: TimedReads,
    blocks: u64,
    disks: Vec<(u32, TimedReads)>,
}

/// The units that a shard keeps, and the reads of these that are not reported.
pub(crate) struct KeptUnits {
    pages: Vec<Option<UnitPage>>,
    due: VecDeque<UnitName>,
    displaced: Vec<(u32, KeptTouch)>,
}

impl Default for KeptUnits {
    fn default() -> KeptUnits {
        KeptUnits {
            pages: (0..UNITS_MAX / PAGE_UNITS).map(|_| None).collect(),
            due: VecDeque::new(),
            displaced: Vec::new(),
        }
    }
}

impl Default for TimedReads {
    fn default() -> TimedReads {
        TimedReads {
            sectors: Sectors(0),
            times: Histogram::new(2).expect("so few digits can be kept"),
            run: (Nanos(0), 0),
        }
    }
}

impl TimedReads {
    #[inline]
    fn add(&mut self, sectors: Sectors, time: Nanos) {
        self.sectors.0 += sectors.0;
        if time != self.run.0 {
            self.end_run();
            self.run.0 = time;
        }
        self.run.1 += 1;
    }

    fn end_run(&mut self) {
        let (time, reads) = (self.run.0, std::mem::take(&mut self.run.1));
        if reads > 0 {
            self.times.record_n(time.0, reads).expect("it grows");
        }
    }

    fn is_empty(&self) -> bool {
        self.times.is_empty() && self.run.1 == 0
    }

    fn take(&mut self) -> ReadTimes {
        self.end_run();
        let times = self.times.iter_recorded();
        let times = times.map(|at| {
            (
                Nanos(at.value_iterated_to()),
                at.count_since_last_iteration(),
            )
        });
        let taken = ReadTimes {
            sectors: std::mem::take(&mut self.sectors),
            times: times.collect(),
        };
        self.times.reset();
        taken
    }
}

impl GateHits {
    /// Counts the read of a slot, and the client's request if that ends it.
    #[inline]
    pub(crate) fn add(&mut self, end: &LocatedEnd, blocks: u64) {
        let place = self.disks.iter().position(|(disk, _)| *disk == end.member);
        let place = place.unwrap_or_else(|| {
            self.disks.push((end.member, TimedReads::default()));
            self.disks.len() - 1
        });
        self.disks[place].1.add(end.sectors, end.time);
        if let Some(request) = &end.request {
            self.requests.add(request.sectors, request.time);
            self.blocks += blocks;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.disks.iter().all(|(_, reads)| reads.is_empty())
    }

    /// Takes all hits, without their places.
    pub(crate) fn take(&mut self) -> KeptHits {
        let disks = self.disks.iter_mut();
        KeptHits {
            requests: self.requests.take(),
            blocks: std::mem::take(&mut self.blocks),
            disks: disks.map(|(disk, reads)| (*disk, reads.take())).collect(),
            touched: Vec::new(),
        }
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

/// The number of blocks that `len` bytes at `offset` touch.
pub(crate) fn blocks(offset: u64, len: usize) -> u64 {
    let blocks = touched(offset, len);
    blocks.end - blocks.start
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
        let page = &mut self.pages[page];
        let page = page.get_or_insert_with(|| (0..PAGE_UNITS).map(|_| None).collect());
        let former = page[at].replace(KeptUnit {
            name,
            unit,
            unreported: None,
        });
        if let Some((gate, touch)) = former.and_then(|f| Some((f.name.gate, f.unreported?))) {
            self.displaced.push((gate, touch));
        }
    }

    /// Counts a read of `len` bytes at `offset`, of kept places.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        gate: u32,
        (offset, len): (u64, usize),
        generations: &Generations,
    ) {
        let (blocks, unit) = (touched(offset, len), u64::from(generations.unit_blocks()));
        for number in blocks.start / unit..=(blocks.end - 1) / unit {
            let first = blocks.start.max(number * unit);
            let end = blocks.end.min((number + 1) * unit);
            let extent = Extent::new(
                Lba(first * LOCATED_BLOCK_SECTORS),
                Sectors((end - first) * LOCATED_BLOCK_SECTORS),
            );
            let name = UnitName { gate, number };
            let (page, at) = name.place();
            let kept = self.pages[page].as_mut().and_then(|page| page[at].as_mut());
            let Some(kept) = kept.filter(|kept| kept.name == name) else {
                self.displaced.push((gate, KeptTouch { extent, reads: 1 }));
                continue;
            };
            let reads = kept.unreported.map_or(0, |touch| touch.reads);
            if reads == 0 {
                self.due.push_back(name);
            }
            kept.unreported = Some(KeptTouch {
                extent,
                reads: reads.saturating_add(1),
            });
        }
    }

    /// Takes the places of reads, by gate: some, or `all`.
    pub(crate) fn take_touched(&mut self, all: bool) -> BTreeMap<u32, Vec<KeptTouch>> {
        let mut touched = BTreeMap::<u32, Vec<KeptTouch>>::new();
        for (gate, touch) in self.displaced.drain(..) {
            touched.entry(gate).or_default().push(touch);
        }
        let count = match all {
            true => self.due.len(),
            false => (self.due.len() / REPORTS).max(TOUCHES).min(self.due.len()),
        };
        for name in self.due.drain(..count) {
            let (page, at) = name.place();
            let kept = self.pages[page].as_mut().and_then(|page| page[at].as_mut());
            let kept = kept.filter(|kept| kept.name == name);
            if let Some(touch) = kept.and_then(|kept| kept.unreported.take()) {
                touched.entry(name.gate).or_default().push(touch);
            }
        }
        touched
    }

    /// True if the places of reads are not reported.
    pub(crate) fn has_touched(&self) -> bool {
        !self.due.is_empty() || !self.displaced.is_empty()
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
            let kept = self.pages[page].as_ref()?[at].as_ref()?;
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
            let rest = (head + 1..=last).map(part).collect::<Option<_>>()?;
            read.more.get_or_insert_default().rest = rest;
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
                at: Lba((1 << 20) + number * 128),
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
        assert_eq!((read.blocks, read.skip, read.rest().len()), (1, 100, 0));
        assert_eq!(read.place.at, Lba((1 << 20) + 384));
        let two = kept.read(7, (at, 16 * BLOCK), &generations).unwrap();
        assert_eq!((two.blocks, two.rest()[0].blocks), (16, 1));
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
    fn the_reads_of_a_unit_are_reported_together_and_none_is_lost() {
        let generations = Generations::new(Nanos::from_millis(1), 16);
        let mut kept = KeptUnits::default();
        let bytes = 16 * BLOCK as u64;
        for number in 0..4000 {
            kept.keep(9, unit(number, 1, &generations), &generations);
            kept.touch(9, (number * bytes + 4096, 8192), &generations);
            // Of two units; the latter is not kept yet.
            kept.touch(9, ((number + 1) * bytes - 1, 2), &generations);
        }
        let (mut reads, mut reports) = (0, 0);
        while kept.has_touched() {
            let touched = kept.take_touched(false).remove(&9).unwrap();
            for touch in &touched {
                let unit = touch.extent.start.0 / 128;
                assert_eq!((touch.extent.end().0 - 1) / 128, unit, "{touch:?}");
                reads += touch.reads;
            }
            reports += 1;
        }
        assert_eq!(reads, 3 * 4000);
        assert!(reports > REPORTS / 2, "{reports}");
        kept.touch(9, (0, BLOCK), &generations);
        kept.touch(9, (BLOCK as u64, BLOCK), &generations);
        let touched = kept.take_touched(true).remove(&9).unwrap();
        assert_eq!((touched.len(), touched[0].reads), (1, 2));
        assert_eq!(touched[0].extent.start, Lba(8));
    }

    #[test]
    fn every_time_of_a_read_is_reported_with_the_number_of_reads() {
        let mut reads = TimedReads::default();
        assert!(reads.is_empty());
        for (time, count) in [(20, 1), (10, 3), (20, 2), (0, 2)] {
            (0..count).for_each(|_| reads.add(Sectors(8), Nanos(time)));
            assert!(!reads.is_empty());
        }
        let taken = reads.take();
        assert_eq!(taken.sectors, Sectors(64));
        let times: Vec<_> = taken.times.iter().map(|(time, n)| (time.0, *n)).collect();
        assert_eq!(times, [(0, 2), (10, 3), (20, 3)]);
        assert!(reads.is_empty() && reads.take().times.is_empty());
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
                assert_eq!(read.place.at, Lba((1 << 20) + number * 128));
                count += 1;
            }
        }
        assert!(count <= UNITS_MAX && count > UNITS_MAX / 2, "{count}");
    }
}
