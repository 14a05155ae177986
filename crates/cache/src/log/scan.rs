//! What both copies of a log hold.
//!
//! The log is the union of both copies' records from the greatest `done_to` on, up to the
//! first number that neither has. Headers of segments say what was durable, and what the
//! segment before has: of that nothing more is read. The rest is read whole, of both
//! copies, and verified.
//!
//! Invariants:
//!     a record is taken from a summary ⟹ it was durable on each copy that was trusted, and each
//!                                        that is there is
//!     a record is taken from its segment ⟹ a copy has it whole
//!     a header with a later number is on a copy that is there ⟹ no incarnation adds to a segment
//!
//! The last keeps a summary true whatever is lost of what follows it: a copy that has been
//! away may have the header of a segment that the log has gone on without.

use super::copies::Copies;
use block::{Buf, Device, Env, IoError, Kind};
use futures_util::future::join_all;
use layout::{BLOCK_BYTES, Record, SEGMENT_BLOCKS, Segment, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// Headers that are read at once, of both copies: enough for a fast device, and 1 MiB.
const HEADERS_AT_ONCE: usize = 128;
/// Slots that are read whole at once, of both copies: likewise, and 8 MiB.
const SLOTS_AT_ONCE: usize = 4;

/// What each block of a log names.
pub(super) struct Ours {
    pub(super) pool: Uuid,
    pub(super) log: u32,
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

/// A segment, by its header.
struct Headed {
    slot: u32,
    header: Segment,
}

/// All that was found.
#[derive(Default)]
pub(super) struct Scan {
    /// What each segment holds, from its header on: what is done with is the way to the rest.
    /// Of what a summary has, the header alone.
    pub(super) parts: BTreeMap<u64, Vec<Part>>,
    /// The best record of each number.
    pub(super) records: BTreeMap<u64, Found>,
    pub(super) done_to: u64,
    /// The number of the next segment.
    pub(super) next_segment: u64,
    /// Slots whose header a copy cannot read.
    pub(super) unreadable: Vec<(u32, usize)>,
    segments: BTreeMap<u64, Headed>,
    /// The fence of each incarnation.
    fences: BTreeMap<u32, u64>,
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
    let slots: Vec<u32> = (0..copies.segments()).collect();
    for slots in slots.chunks(HEADERS_AT_ONCE) {
        let works = slots.iter();
        let works = works.map(|slot| read_headers(copies, env, &there, *slot));
        for (slot, read) in slots.iter().zip(join_all(works).await) {
            for (copy, block) in there.iter().zip(read?) {
                scan.header(ours, *slot, *copy, is_trusted(*copy), block);
            }
        }
    }
    // A copy that is to be made whole needs all that the other has.
    let summarized = match there == trusted {
        true => scan.summaries(ours),
        false => BTreeSet::new(),
    };
    let rest = scan.segments.iter();
    let rest = rest.filter(|(number, _)| !summarized.contains(number));
    let rest: Vec<(u64, u32)> = rest.map(|(number, found)| (*number, found.slot)).collect();
    for segments in rest.chunks(SLOTS_AT_ONCE) {
        let works = segments.iter();
        let works = works.map(|(_, slot)| read_whole(copies, &trusted, *slot));
        for ((number, slot), read) in segments.iter().zip(join_all(works).await) {
            scan.segment(ours, *number, *slot, &read?);
        }
    }
    scan.void();
    Ok(scan)
}

/// The first block of a slot of each copy, as far as it can be read.
async fn read_headers<P: Device>(
    copies: &Copies<P>,
    env: &Env,
    there: &[usize],
    slot: u32,
) -> Unread<Vec<Option<Buf>>> {
    let header = async |copy: &usize| {
        let buf = env.pool.take(BLOCK_BYTES);
        match copies.read(*copy, slot * SEGMENT_BLOCKS, buf).await {
            (buf, Ok(())) => Ok(Some(buf)),
            (_, Err(error)) if error.kind() == Kind::Media => Ok(None),
            (_, Err(error)) => Err((*copy, error)),
        }
    };
    let headers = join_all(there.iter().map(header)).await;
    headers.into_iter().collect()
}

/// All of a slot, as each copy that counts has it.
async fn read_whole<P: Device>(
    copies: &Copies<P>,
    trusted: &[usize],
    slot: u32,
) -> Unread<[Option<Vec<u8>>; 2]> {
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
            return;
        };
        let header = Segment::decode(&block, ours.pool).ok();
        let Some(header) = header.filter(|header| header.log == ours.log) else {
            return;
        };
        let number = header.number;
        self.next_segment = self.next_segment.max(number + 1);
        if !is_trusted {
            return;
        }
        // One that a single copy got may have been made again by a later incarnation, which
        // could not know of it.
        match self.segments.get(&number).map(|known| &known.header) {
            Some(known) if known.incarnation > header.incarnation => {}
            Some(known) if known.incarnation == header.incarnation => {
                self.parts.get_mut(&number).expect("it is known")[0].sound[copy] = true;
            }
            _ => {
                let part = Part {
                    offset: 0,
                    blocks: 1,
                    sound: [copy == 0, copy == 1],
                };
                self.parts.insert(number, vec![part]);
                self.segments.insert(number, Headed { slot, header });
            }
        }
    }

    /// Takes what summaries say of segments that are durable; which.
    fn summaries(&mut self, ours: &Ours) -> BTreeSet<u64> {
        let headers = self.segments.values_mut();
        let summaries = headers.filter_map(|found| found.header.summary.take());
        let (mut of, mut durable_to) = (BTreeMap::new(), 0);
        for summary in summaries {
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
                self.found(slot, offset, record);
            }
        }
        summarized
    }

    /// The records of segment `number`, as far as either copy has them.
    fn segment(&mut self, ours: &Ours, number: u64, slot: u32, copies: &[Option<Vec<u8>>; 2]) {
        let mut offset = 1;
        while offset < SEGMENT_BLOCKS {
            let whole = |copy: &Option<Vec<u8>>| {
                let rest = &copy.as_ref()?[offset as usize * BLOCK_BYTES..];
                let record = Record::decode(&rest[..BLOCK_BYTES], ours.pool).ok()?;
                let data = rest.get(BLOCK_BYTES..record.blocks() as usize * BLOCK_BYTES)?;
                let is_ours = record.segment == number && record.log == ours.log;
                (is_ours && record.has(data)).then_some(record)
            };
            let found = copies.each_ref().map(whole);
            let newest = found
                .iter()
                .flatten()
                .max_by_key(|record| record.incarnation);
            let Some(record) = newest.cloned() else {
                break;
            };
            let blocks = record.blocks();
            self.parts.entry(number).or_default().push(Part {
                offset,
                blocks,
                sound: found.map(|found| found.as_ref() == Some(&record)),
            });
            self.found(slot, offset, record);
            offset += blocks;
        }
    }

    fn found(&mut self, slot: u32, offset: u32, record: Record) {
        self.done_to = self.done_to.max(record.done_to);
        self.fences.insert(record.incarnation, record.fence);
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

    /// Leaves the log: records from `done_to` on, up to the first hole.
    fn void(&mut self) {
        let (done_to, fences) = (self.done_to, &self.fences);
        let void = |record: &Record| {
            let later = fences.range(record.incarnation + 1..);
            later.into_iter().any(|(_, fence)| record.number >= *fence)
        };
        self.records
            .retain(|number, found| *number >= done_to && !void(&found.record));
        let numbers = self.records.keys().zip(done_to..);
        let hole = numbers.take_while(|(number, next)| *number == next).count();
        let end = done_to + hole as u64;
        self.records.retain(|number, _| *number < end);
    }
}
