//! The contents of both copies of a log.
//!
//! The log is the union of both copies' records from the greatest `written_back_to` on, up to the
//! first number that neither has. A segment's header says how far the log was durable, and lists
//! the records of the segment before: such a segment is not read further. All others are read
//! whole, from both copies, and verified.
//!
//! A header of a record has its own checksum: its claims count though its data is torn. A record
//! that was on both copies is taken from an overtaken copy where no trusted copy has it.
//!
//! Invariants:
//!     a record is taken from a summary ⟹ it was durable on each copy that was trusted
//!     a record is taken from its segment ⟹ a copy has it whole
//!     a record is taken from an overtaken copy ⟹ the last incarnation had it on both copies
//!     a header with a later number is on a present copy ⟹ no incarnation adds to a segment
//!     the log ends ⟹ nothing readable says that more was durable, else that is `missing`
//!
//! The third keeps a summary true after any loss of later segments. A copy that has been away may
//! have the header of a segment that the log has gone on without.

use super::copies::{LogCopies, SegmentRead};
use super::missing::KnownIncarnations;
use block::{Buf, Device, Env, IoError, IoErrorKind};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, LogRecord, PageError, SEGMENT_BLOCKS, Segment, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Headers that are read at once, of both copies: enough for a fast device, and 1 MiB.
const HEADERS_AT_ONCE: usize = 128;
/// Slots that are read whole at once, of both copies: likewise, and 8 MiB.
const SLOTS_AT_ONCE: usize = 4;

/// Thoroughness of an opening, and its refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrutiny {
    /// Records that are known to have been durable have to be present.
    Usual,
    /// A copy that counted will count no more. Before that the whole of the other is read, and has
    /// to have all records that were on both, whole.
    Alone,
}

/// The log to scan, and the state known of it.
pub(super) struct OwnLog {
    pub(super) pool: Uuid,
    pub(super) log: u32,
    /// The incarnation that scans.
    pub(super) incarnation: u32,
    pub(super) scrutiny: Scrutiny,
    /// True if the operator asks for the remains: everything is read.
    pub(super) asked: bool,
    /// Records before this number are in the journal, and so durable.
    pub(super) pending_to: u64,
}

/// A record that was found.
pub(super) struct FoundRecord {
    pub(super) record: LogRecord,
    pub(super) slot: u32,
    pub(super) offset: u32,
}

impl FoundRecord {
    /// True if `bytes` are this very record, whole. Copies of a record have the same bytes, and no
    /// two records have the same number and incarnation.
    pub(super) fn is_whole_in(&self, bytes: &[u8], pool: Uuid) -> bool {
        let (header, data) = bytes.split_at(BLOCK_BYTES);
        let names = |record: &LogRecord| (record.number, record.incarnation, record.segment);
        let is_it = |record: LogRecord| {
            let same = names(&record) == names(&self.record) && record.crcs == self.record.crcs;
            same && record.extents == self.record.extents && record.has(data)
        };
        LogRecord::decode(header, pool).is_ok_and(is_it)
    }
}

/// Blocks of a segment that belong together, and the copies that have them whole.
pub(super) struct SegmentPart {
    pub(super) offset: u32,
    pub(super) blocks: u32,
    pub(super) sound: [bool; 2],
}

/// A segment by its header, or by its first record if the header is unreadable.
struct Headed {
    slot: u32,
    header: Option<Segment>,
}

/// The result of a scan.
#[derive(Default)]
pub(super) struct Scan {
    /// Contents of each segment, from its header on, with records before `written_back_to`: they
    /// lead to the rest. For a segment with a summary, the header alone, unless the segment was
    /// read too.
    pub(super) parts: BTreeMap<u64, Vec<SegmentPart>>,
    /// The best record of each number.
    pub(super) records: BTreeMap<u64, FoundRecord>,
    pub(super) written_back_to: u64,
    /// Number of the next segment.
    pub(super) next_segment: u64,
    /// Slots with a header that a copy cannot read.
    pub(super) unreadable: Vec<(u32, usize)>,
    /// Numbers of records that are known to have been durable (or complete, if that counts), and
    /// that no copy has whole.
    pub(super) missing: Vec<Range<u64>>,
    segments: BTreeMap<u64, Headed>,
    /// Records of segments from summaries: the number of each, by its offset.
    listed: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Records from summaries that were read, and are whole on no copy.
    damaged: BTreeSet<u64>,
    /// Segments in which the place of the next record cannot be read.
    unread: BTreeSet<u64>,
    /// Slots without a valid header on a trusted copy.
    headless: BTreeSet<u32>,
    /// Slots with a valid header on a trusted copy.
    headed: BTreeSet<u32>,
    /// Whole records of an overtaken copy, by number and incarnation, and that copy.
    overtaken: BTreeMap<(u64, u32), (FoundRecord, usize)>,
    known: KnownIncarnations,
}

/// Error of a copy that fails as a whole, with the number of the copy.
pub(super) type Unread<T> = Result<T, (usize, IoError)>;

/// Reads the remains of the log on the online copies.
pub(super) async fn scan<P: Device>(
    ours: &OwnLog,
    copies: &LogCopies<P>,
    env: &Env,
) -> Unread<Scan> {
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
    // A copy that is to be completed needs all data of the other. A copy that is to be trusted
    // alone has to have all data.
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
        let works = works.map(|(_, slot)| read_whole(copies, &there, *slot));
        for ((number, slot), read) in segments.iter().zip(join_all(works).await) {
            let mut read = read?;
            for copy in there.iter().filter(|copy| !is_trusted(**copy)) {
                let read = read[*copy].take().expect("it was read");
                scan.overtaken(ours, *number, *slot, *copy, &read);
            }
            scan.segment(ours, *number, *slot, &read);
        }
    }
    scan.end(ours);
    Ok(scan)
}

/// Reads a block of a slot on each copy of `there`; `None` if its medium is damaged.
async fn read_blocks<P: Device>(
    copies: &LogCopies<P>,
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
            (_, Err(error)) if error.kind() == IoErrorKind::Media => Ok(None),
            (_, Err(error)) => Err((*copy, error)),
        }
    };
    let blocks = join_all(there.iter().map(read)).await;
    blocks.into_iter().collect()
}

/// Reads the whole of a slot on each copy of `there`.
async fn read_whole<P: Device>(
    copies: &LogCopies<P>,
    there: &[usize],
    slot: u32,
) -> Unread<[Option<SegmentRead>; 2]> {
    let mut segments = [None, None];
    let whole = there.iter().map(|copy| copies.read_segment(*copy, slot));
    for (copy, read) in there.iter().zip(join_all(whole).await) {
        segments[*copy] = Some(read.map_err(|error| (*copy, error))?);
    }
    Ok(segments)
}

impl Scan {
    /// Takes the first block of a slot on a copy. On a copy that is not trusted only the segment's
    /// number matters.
    fn header(
        &mut self,
        ours: &OwnLog,
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
        // A later incarnation may have made the segment again without knowledge of the header, if a
        // single copy had it.
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
        let part = SegmentPart {
            offset: 0,
            blocks: 1,
            sound,
        };
        self.parts.insert(number, vec![part]);
        self.segments.insert(number, Headed { slot, header });
    }

    /// Finds segments with a lost header by their first record: a header is durable before the
    /// first record.
    async fn find_headless<P: Device>(
        &mut self,
        ours: &OwnLog,
        copies: &LogCopies<P>,
        env: &Env,
        trusted: &[usize],
    ) -> Unread<()> {
        let slots: Vec<u32> = self.headless.difference(&self.headed).copied().collect();
        for slots in slots.chunks(HEADERS_AT_ONCE) {
            let works = slots.iter();
            let works = works.map(|slot| read_blocks(copies, env, trusted, *slot, 1));
            for (slot, read) in slots.iter().zip(join_all(works).await) {
                let blocks = read?.into_iter().flatten();
                let records = blocks.filter_map(|b| LogRecord::decode(&b, ours.pool).ok());
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

    /// Takes the records of durable segments from summaries. Returns the numbers of those segments.
    fn summaries(&mut self, ours: &OwnLog) -> BTreeSet<u64> {
        let headers = self.segments.values_mut();
        let headers = headers.filter_map(|found| found.header.as_mut());
        let (mut of, mut durable_to) = (BTreeMap::new(), 0);
        for header in headers {
            let Some(summary) = header.summary.take() else {
                continue;
            };
            self.known.durable(header.incarnation, summary.durable_to);
            durable_to = durable_to.max(summary.durable_to);
            self.written_back_to = self.written_back_to.max(summary.written_back_to);
            // A later header has the final state of the segment.
            of.insert(summary.segment, summary);
        }
        of.retain(|_, summary| summary.end().is_some_and(|end| end <= durable_to));
        let mut summarized: BTreeSet<u64> = of.keys().copied().collect();
        // Records before `written_back_to` are passed over, fences included. A record that such a
        // fence makes void is also void by a record from `written_back_to` on: of a later
        // incarnation, with its number, or with a fence before it.
        let written_back_to = self.written_back_to;
        of.retain(|_, summary| summary.end() > Some(written_back_to));
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

    /// Takes the records of segment `number` that either copy has. The search goes on behind a
    /// place without a record: later records show that one was there.
    fn segment(
        &mut self,
        ours: &OwnLog,
        number: u64,
        slot: u32,
        copies: &[Option<SegmentRead>; 2],
    ) {
        let is_ours = |record: &LogRecord| record.segment == number && record.log == ours.log;
        let listed = self.listed.remove(&number).unwrap_or_default();
        let (mut offset, mut is_broken) = (1, false);
        while offset < SEGMENT_BLOCKS {
            let headers = copies.iter().flatten();
            let headers = headers.filter_map(|copy| copy.header(offset, ours.pool));
            headers
                .filter(is_ours)
                .for_each(|header| self.known.record(&header));
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
                // After the last record of a summary there is none.
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
            let is_it = |found: &LogRecord| {
                let names = |record: &LogRecord| (record.number, record.incarnation);
                names(found) == names(&record)
            };
            let sound = found.map(|found| found.as_ref().is_some_and(is_it));
            self.parts.entry(number).or_default().push(SegmentPart {
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

    /// Notes the whole records of segment `number` on an overtaken copy.
    fn overtaken(
        &mut self,
        ours: &OwnLog,
        number: u64,
        slot: u32,
        copy: usize,
        read: &SegmentRead,
    ) {
        let mut offset = 1;
        while offset < SEGMENT_BLOCKS {
            let record = read.record(offset, ours.pool);
            let record = record.filter(|r| r.segment == number && r.log == ours.log);
            let Some(record) = record else {
                offset += 1;
                continue;
            };
            let next = offset + record.blocks();
            let found = FoundRecord {
                slot,
                offset,
                record,
            };
            let key = (found.record.number, found.record.incarnation);
            self.overtaken.insert(key, (found, copy));
            offset = next;
        }
    }

    /// Takes records from an overtaken copy that no trusted copy has, and that were on both. Only
    /// those of the last incarnation: a fence of a later one may be damaged.
    fn take_overtaken(&mut self, ours: &OwnLog) {
        for ((number, incarnation), (found, copy)) in std::mem::take(&mut self.overtaken) {
            let is_known = self.records.contains_key(&number);
            let is_last = incarnation + 1 == ours.incarnation;
            let was_on_both = is_last && self.known.is_complete(number, incarnation);
            if number < self.written_back_to || is_known || !was_on_both {
                continue;
            }
            let parts = self.parts.entry(found.record.segment).or_default();
            parts.push(SegmentPart {
                offset: found.offset,
                blocks: found.record.blocks(),
                sound: [copy == 0, copy == 1],
            });
            self.records.insert(number, found);
        }
    }

    fn found(&mut self, slot: u32, offset: u32, record: LogRecord) {
        self.written_back_to = self.written_back_to.max(record.written_back_to);
        self.known.record(&record);
        let known = self.records.get(&record.number);
        if known.is_none_or(|known| known.record.incarnation < record.incarnation) {
            let found = FoundRecord {
                slot,
                offset,
                record,
            };
            self.records.insert(found.record.number, found);
        }
    }

    /// Records of the log that were read, and that no trusted copy has whole.
    pub(super) fn damaged(&self) -> impl Iterator<Item = &FoundRecord> {
        let records = self.damaged.iter();
        records.filter_map(|number| self.records.get(number))
    }

    /// Discards all records, missing ones included: the origin has newer data than the log.
    pub(super) fn forget(&mut self) {
        let last = self.records.keys().next_back();
        let next = last.map_or(0, |last| last + 1);
        self.written_back_to = self.written_back_to.max(next).max(self.known.to(true));
        self.records.clear();
        self.missing.clear();
    }

    /// Keeps the log alone: records from `written_back_to` on, up to the first hole. A known record
    /// that no copy has is missing. Records after a hole are kept only at the operator's request.
    fn end(&mut self, ours: &OwnLog) {
        let (written_back_to, known) = (self.written_back_to, &self.known);
        self.records.retain(|number, found| {
            *number >= written_back_to && !known.is_void(*number, found.record.incarnation)
        });
        self.take_overtaken(ours);
        let numbers = self.records.keys().zip(written_back_to..);
        let hole = numbers.take_while(|(number, next)| *number == next).count();
        let end = written_back_to + hole as u64;
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
        // A power cut may leave a sector unreadable that was being written.
        let least = end + u64::from(is_unread && counts);
        let known_to = self.known.to(counts).max(ours.pending_to).max(least);
        if counts || ours.asked {
            self.missing
                .extend(self.damaged.range(written_back_to..end).map(|n| *n..n + 1));
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
