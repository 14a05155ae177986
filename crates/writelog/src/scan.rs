//! What both copies of a log hold.
//!
//! The log is the union of both copies' records from the greatest `done_to` on, up to the
//! first number that neither has. Headers of segments say what was durable, and what the
//! segment before has: of that nothing more is read. The rest is read whole, of both
//! copies, and verified.
//!
//! Invariants:
//!     a record is taken from a summary ⟹ it was durable on each copy that was trusted
//!     a record is taken from its segment ⟹ a copy has it whole
//!     a header with a later number is on a copy that is there ⟹ no incarnation adds to a segment
//!     the log ends ⟹ nothing that can be read says that more was durable, else it is `missing`
//!
//! The third keeps a summary true whatever is lost of what follows it: a copy that has been
//! away may have the header of a segment that the log has gone on without.

use super::copies::{Copies, SegmentRead};
use super::missing::Known;
use block::{Buf, Device, Env, IoError, Kind};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, PageError, Record, SEGMENT_BLOCKS, Segment, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Headers that are read at once, of both copies: enough for a fast device, and 1 MiB.
const HEADERS_AT_ONCE: usize = 128;
/// Slots that are read whole at once, of both copies: likewise, and 8 MiB.
const SLOTS_AT_ONCE: usize = 4;

/// How thoroughly an opening looks, and what it refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrutiny {
    /// What is known to have been durable has to be there.
    Usual,
    /// A copy that counted will count no more. All of the other is read before, and what was
    /// on both has to be there, whole.
    Alone,
}

/// Which log it is, and what is known of it.
pub(super) struct Ours {
    pub(super) pool: Uuid,
    pub(super) log: u32,
    pub(super) scrutiny: Scrutiny,
    /// The operator asks what there is: all is read.
    pub(super) asked: bool,
    /// Records before this number are in the journal, and so durable.
    pub(super) pending_to: u64,
}

/// A record that was found.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) slot: u32,
    pub(super) offset: u32,
}

/// Blocks of a segment that belong together, and which copies have them whole.
pub(super) struct Part {
    pub(super) offset: u32,
    pub(super) blocks: u32,
    pub(super) sound: [bool; 2],
}

/// A segment, by its header; of one that cannot be read, by its first record.
struct Headed {
    slot: u32,
    header: Option<Segment>,
}

/// All that was found.
#[derive(Default)]
pub(super) struct Scan {
    /// What each segment holds, from its header on: what is done with is the way to the rest.
    /// Of what a summary has, the header alone, unless it was read too.
    pub(super) parts: BTreeMap<u64, Vec<Part>>,
    /// The best record of each number.
    pub(super) records: BTreeMap<u64, Found>,
    pub(super) done_to: u64,
    /// The number of the next segment.
    pub(super) next_segment: u64,
    /// Slots whose header a copy cannot read.
    pub(super) unreadable: Vec<(u32, usize)>,
    /// Numbers of records that are known to have been durable, or complete if that counts, and
    /// that no copy has whole.
    pub(super) missing: Vec<Range<u64>>,
    segments: BTreeMap<u64, Headed>,
    /// Slots that have records of a segment from a summary: the number of each, by its offset.
    listed: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Records from summaries, read, and whole on no copy.
    damaged: BTreeSet<u64>,
    /// Segments in which the place of the next record cannot be read.
    unread: BTreeSet<u64>,
    /// Slots in which a trusted copy has no header that makes sense, and none has another.
    headless: BTreeSet<u32>,
    /// Slots that have one.
    headed: BTreeSet<u32>,
    known: Known,
}

/// A copy that does not answer, or fails as a whole, and how.
pub(super) type Unread<T> = Result<T, (usize, IoError)>;

/// Reads what there is of the log, on the copies that take part.
pub(super) async fn scan<P: Device>(ours: &Ours, copies: &Copies<P>, env: &Env) -> Unread<Scan> {
    let mut scan = Scan::default();
    let area = |copy: usize| copies.areas[copy].as_ref();
    let there: Vec<usize> = copies.online().collect();
    let is_trusted = |copy: usize| area(copy).is_some_and(|area| area.trusted);
    let trusted = there.iter().copied().filter(|copy| is_trusted(*copy));
    let trusted: Vec<usize> = trusted.collect();
    let is_blank = |copy: &usize, slot: u32| area(*copy).is_some_and(|area| area.is_blank(slot));
    let slots = (0..copies.segments()).filter(|slot| !there.iter().all(|c| is_blank(c, *slot)));
    let slots: Vec<u32> = slots.collect();
    for slots in slots.chunks(HEADERS_AT_ONCE) {
        let works = slots.iter();
        let works = works.map(|slot| read_blocks(copies, env, &there, *slot, 0));
        for (slot, read) in slots.iter().zip(join_all(works).await) {
            for (copy, block) in there.iter().zip(read?) {
                scan.header(ours, *slot, *copy, is_trusted(*copy), block);
            }
        }
    }
    scan.find_headless(ours, copies, env, &trusted).await?;
    let summarized = scan.summaries(ours);
    // A copy that is to be made whole needs all that the other has, and one that is to be
    // trusted alone has to have it.
    let alone = ours.scrutiny == Scrutiny::Alone;
    let whole = there != trusted || alone || ours.asked;
    let rest = scan.segments.iter();
    let rest = rest.filter(|(number, _)| match summarized.contains(number) {
        true => whole && scan.listed.contains_key(number),
        false => true,
    });
    let rest: Vec<(u64, u32)> = rest.map(|(number, found)| (*number, found.slot)).collect();
    for segments in rest.chunks(SLOTS_AT_ONCE) {
        let works = segments.iter();
        let works = works.map(|(_, slot)| read_whole(copies, &trusted, *slot));
        for ((number, slot), read) in segments.iter().zip(join_all(works).await) {
            scan.segment(ours, *number, *slot, &read?);
        }
    }
    scan.end(ours);
    Ok(scan)
}

/// A block of a slot of each of `there`, as far as it can be read.
async fn read_blocks<P: Device>(
    copies: &Copies<P>,
    env: &Env,
    there: &[usize],
    slot: u32,
    offset: u32,
) -> Unread<Vec<Option<Buf>>> {
    let read = async |copy: &usize| {
        let buf = env.pool.take(BLOCK_BYTES);
        let at = slot * SEGMENT_BLOCKS + offset;
        match copies.read(*copy, at, buf).await {
            (buf, Ok(())) => Ok(Some(buf)),
            (_, Err(error)) if error.kind() == Kind::Media => Ok(None),
            (_, Err(error)) => Err((*copy, error)),
        }
    };
    let blocks = join_all(there.iter().map(read)).await;
    blocks.into_iter().collect()
}

/// All of a slot, as each copy that counts has it.
async fn read_whole<P: Device>(
    copies: &Copies<P>,
    trusted: &[usize],
    slot: u32,
) -> Unread<[Option<SegmentRead>; 2]> {
    let mut segments = [None, None];
    let whole = trusted.iter().map(|copy| copies.read_segment(*copy, slot));
    for (copy, read) in trusted.iter().zip(join_all(whole).await) {
        segments[*copy] = Some(read.map_err(|error| (*copy, error))?);
    }
    Ok(segments)
}

impl Scan {
    /// What a copy has at the beginning of a slot. Of one that does not count the number alone
    /// matters.
    fn header(
        &mut self,
        ours: &Ours,
        slot: u32,
        copy: usize,
        is_trusted: bool,
        block: Option<Buf>,
    ) {
        let Some(block) = block else {
            self.unreadable.push((slot, copy));
            if is_trusted {
                self.headless.insert(slot);
            }
            return;
        };
        let header = Segment::decode(&block, ours.pool);
        let is_torn = header.as_ref().err() == Some(&PageError::Checksum);
        if is_trusted && is_torn && block.iter().any(|byte| *byte != 0) {
            self.headless.insert(slot);
        }
        let Some(header) = header.ok().filter(|header| header.log == ours.log) else {
            return;
        };
        let number = header.number;
        self.next_segment = self.next_segment.max(number + 1);
        if !is_trusted {
            return;
        }
        self.headed.insert(slot);
        // One that a single copy got may have been made again by a later incarnation, which
        // could not know of it.
        let known = self
            .segments
            .get(&number)
            .and_then(|known| known.header.as_ref());
        match known {
            Some(known) if known.incarnation > header.incarnation => {}
            Some(known) if known.incarnation == header.incarnation => {
                self.parts.get_mut(&number).expect("it is known")[0].sound[copy] = true;
            }
            _ => self.begin(number, slot, [copy == 0, copy == 1], Some(header)),
        }
    }

    fn begin(&mut self, number: u64, slot: u32, sound: [bool; 2], header: Option<Segment>) {
        let part = Part {
            offset: 0,
            blocks: 1,
            sound,
        };
        self.parts.insert(number, vec![part]);
        self.segments.insert(number, Headed { slot, header });
    }

    /// Finds segments whose header is lost by their first record: a header is durable before
    /// there is one.
    async fn find_headless<P: Device>(
        &mut self,
        ours: &Ours,
        copies: &Copies<P>,
        env: &Env,
        trusted: &[usize],
    ) -> Unread<()> {
        let slots: Vec<u32> = self.headless.difference(&self.headed).copied().collect();
        for slots in slots.chunks(HEADERS_AT_ONCE) {
            let works = slots.iter();
            let works = works.map(|slot| read_blocks(copies, env, trusted, *slot, 1));
            for (slot, read) in slots.iter().zip(join_all(works).await) {
                let blocks = read?.into_iter().flatten();
                let records = blocks.filter_map(|b| Record::decode(&b, ours.pool).ok());
                let records = records.filter(|record| record.log == ours.log);
                let newest = records.max_by_key(|record| (record.segment, record.incarnation));
                let Some(number) = newest.map(|record| record.segment) else {
                    continue;
                };
                if !self.segments.contains_key(&number) {
                    self.next_segment = self.next_segment.max(number + 1);
                    self.begin(number, *slot, [false; 2], None);
                }
            }
        }
        Ok(())
    }

    /// Takes what summaries say of segments that are durable; which.
    fn summaries(&mut self, ours: &Ours) -> BTreeSet<u64> {
        let headers = self.segments.values_mut();
        let headers = headers.filter_map(|found| found.header.as_mut());
        let (mut of, mut durable_to) = (BTreeMap::new(), 0);
        for header in headers {
            let Some(summary) = header.summary.take() else {
                continue;
            };
            self.known.durable(header.incarnation, summary.durable_to);
            durable_to = durable_to.max(summary.durable_to);
            self.done_to = self.done_to.max(summary.done_to);
            // A header that was made later has what became of the segment.
            of.insert(summary.segment, summary);
        }
        of.retain(|_, summary| summary.end().is_some_and(|end| end <= durable_to));
        let mut summarized: BTreeSet<u64> = of.keys().copied().collect();
        // What is done is passed over, fences and all: what they make void is so by a record that
        // is not done, of a later incarnation with its number, or with a fence before it.
        let done_to = self.done_to;
        of.retain(|_, summary| summary.end() > Some(done_to));
        for (number, summary) in of {
            let slot = self.segments.get(&number).map(|found| found.slot);
            let (Some(slot), Ok(records)) = (slot, summary.records(ours.log)) else {
                summarized.remove(&number);
                continue;
            };
            for (offset, record) in records {
                let listed = self.listed.entry(number).or_default();
                listed.insert(offset, record.number);
                self.found(slot, offset, record);
            }
        }
        summarized
    }

    /// The records of segment `number`, as far as either copy has them. What follows a place that
    /// has none is looked for: it shows what was there.
    fn segment(&mut self, ours: &Ours, number: u64, slot: u32, copies: &[Option<SegmentRead>; 2]) {
        let is_ours = |record: &Record| record.segment == number && record.log == ours.log;
        let listed = self.listed.remove(&number).unwrap_or_default();
        let (mut offset, mut is_broken) = (1, false);
        while offset < SEGMENT_BLOCKS {
            let whole = |copy: &Option<SegmentRead>| {
                let record = copy.as_ref()?.record(offset, ours.pool);
                record.filter(is_ours)
            };
            let found = copies.each_ref().map(whole);
            let from_summary = listed.get(&offset).and_then(|n| self.records.get(n));
            let from_summary = from_summary.map(|found| found.record.clone());
            let is_listed = from_summary.is_some();
            let newest = found.iter().flatten();
            let newest = newest.max_by_key(|record| record.incarnation).cloned();
            let Some(record) = from_summary.or(newest) else {
                // After a summary's last record there is none.
                if !is_broken && listed.is_empty() {
                    let mut there = copies.iter().flatten();
                    let unread = there.all(|copy| copy.is_unread(offset, ours.pool));
                    is_broken = true;
                    unread.then(|| self.unread.insert(number));
                }
                offset += 1;
                continue;
            };
            let blocks = record.blocks();
            let is_it = |found: &Record| {
                let names = |record: &Record| (record.number, record.incarnation);
                names(found) == names(&record)
            };
            let sound = found.map(|found| found.as_ref().is_some_and(is_it));
            self.parts.entry(number).or_default().push(Part {
                offset,
                blocks,
                sound,
            });
            match is_listed {
                true if sound == [false; 2] => drop(self.damaged.insert(record.number)),
                true => {}
                false => self.found(slot, offset, record),
            }
            offset += blocks;
        }
    }

    fn found(&mut self, slot: u32, offset: u32, record: Record) {
        self.done_to = self.done_to.max(record.done_to);
        self.known.record(&record);
        let known = self.records.get(&record.number);
        if known.is_none_or(|known| known.record.incarnation < record.incarnation) {
            let found = Found {
                slot,
                offset,
                record,
            };
            self.records.insert(found.record.number, found);
        }
    }

    /// Nothing that was found counts, or is missing: the origin has it all, and newer.
    pub(super) fn forget(&mut self) {
        let last = self.records.keys().next_back();
        let next = last.map_or(0, |last| last + 1);
        self.done_to = self.done_to.max(next).max(self.known.to(true));
        self.records.clear();
        self.missing.clear();
    }

    /// Leaves the log: records from `done_to` on, up to the first hole. If one is known to have
    /// been there that no copy has, it is missing; only who asks gets what follows it.
    fn end(&mut self, ours: &Ours) {
        let (done_to, known) = (self.done_to, &self.known);
        self.records.retain(|number, found| {
            *number >= done_to && !known.is_void(*number, found.record.incarnation)
        });
        let numbers = self.records.keys().zip(done_to..);
        let hole = numbers.take_while(|(number, next)| *number == next).count();
        let end = done_to + hole as u64;
        let rest = self.records.split_off(&end);
        let last = self.records.values().next_back();
        let last = last.map_or(0, |found| found.record.segment);
        let mut after = self.unread.range(last..).take(1);
        let next = self
            .segments
            .range(last + 1..)
            .next()
            .map(|(number, _)| *number);
        let is_unread = after.any(|number| *number == last || Some(*number) == next);
        let counts = ours.scrutiny == Scrutiny::Alone;
        // A cut of the power may leave a sector that was being written unreadable.
        let least = end + u64::from(is_unread && counts);
        let known_to = self.known.to(counts).max(ours.pending_to).max(least);
        if counts || ours.asked {
            self.missing
                .extend(self.damaged.range(done_to..end).map(|n| *n..n + 1));
        }
        let mut next = end;
        for number in rest.range(..known_to).map(|(number, _)| *number) {
            self.missing.extend((next < number).then_some(next..number));
            next = number + 1;
        }
        self.missing
            .extend((next < known_to).then_some(next..known_to));
        if ours.asked && end < known_to {
            self.records.extend(rest);
        }
    }
}
