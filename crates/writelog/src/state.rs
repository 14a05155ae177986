//! The state of a log in memory: dirty data and free room.
//!
//! Invariants:
//!     written_back_to <= durable_to <= completed_to <= next
//!     a segment is free ⟹ all its records are before `written_back_to`, and that is durable
//!     the front of `ages` is no newer than the oldest dirty record

use super::index::LogIndex;
use super::join::JoinQueue;
use block::Nanos;
use layout::{JOURNAL_HALF_MIN, LOG_AREA, RecordExtent, SEGMENT_BLOCKS, SummaryWriter};
use std::collections::VecDeque;

/// Segments that only the cleaner and openings may begin. Notes about the records of one segment
/// fill one more at most before the first is free.
pub(super) const RESERVE: usize = 4;
/// Fewest segments of an area.
pub(super) const SEGMENTS_MIN: u32 = 8;
/// Bytes of the smallest device for a log: its superblocks take a segment's room.
pub const LOG_BYTES_MIN: u64 = (SEGMENTS_MIN as u64 + 1) << 20;
/// Bytes of the smallest device for a journal.
pub const JOURNAL_BYTES_MIN: u64 = (LOG_AREA + 2 * JOURNAL_HALF_MIN) * layout::BLOCK_BYTES as u64;
/// Number of ages kept over `max_lag`.
const AGES: u64 = 64;

/// A segment whose records may be dirty.
pub(super) struct LiveSegment {
    pub(super) number: u64,
    pub(super) slot: u32,
    /// Number of its first record.
    pub(super) first: u64,
    /// Blocks in use.
    pub(super) used: u32,
    /// Reads of clients in progress.
    pub(super) readers: u32,
}

/// A record in flight.
pub(super) struct RecordInFlight {
    pub(super) extents: Vec<RecordExtent>,
    pub(super) crcs: Vec<u32>,
    /// First block of its data.
    pub(super) at: u32,
    pub(super) forced: bool,
    /// Number of copies that have it, once none is in flight.
    pub(super) ended: Option<usize>,
}

/// Place of a new record.
pub(super) struct RecordSpot {
    pub(super) number: u64,
    pub(super) segment: u64,
    /// The block of its header, in the area.
    pub(super) at: u32,
}

/// Place at which the cleaner reads on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct CleanerCursor {
    pub(super) segment: u64,
    /// A block of the segment, and the number of the record that begins there.
    pub(super) offset: u32,
    pub(super) number: u64,
}

pub(super) struct LogState {
    /// Number of the next record.
    pub(super) next: u64,
    /// First number of this incarnation.
    pub(super) fence: u64,
    /// Records before it are on all copies.
    pub(super) completed_to: u64,
    /// Records before it were on both copies while both were online.
    pub(super) both_to: u64,
    pub(super) durable_to: u64,
    /// Records before it are durable by the claim of a record.
    pub(super) marked_to: u64,
    pub(super) written_back_to: u64,
    /// Number after the last record that changes anything.
    pub(super) last_write_end: u64,
    /// Writes that wait for a record.
    pub(super) queue: JoinQueue,
    /// Records in flight, from `completed_to` on.
    pub(super) flights: VecDeque<RecordInFlight>,
    /// Segments in order; the last is being filled.
    pub(super) segments: VecDeque<LiveSegment>,
    pub(super) free: VecDeque<u32>,
    pub(super) next_segment: u64,
    /// Summary of the last segment.
    pub(super) summary: Option<SummaryWriter>,
    /// Place of the cleaner. Beyond `written_back_to` by notes only.
    pub(super) cursor: CleanerCursor,
    pub(super) interval: u64,
    /// True if the interval has a record.
    pub(super) interval_used: bool,
    pub(super) index: LogIndex,
    /// Numbers of records, each with the time of the first record from there on.
    pub(super) ages: VecDeque<(u64, Nanos)>,
    pub(super) turning: bool,
}

impl LogState {
    /// Closes the interval: later records are of another.
    pub(super) fn close_interval(&mut self) {
        if std::mem::take(&mut self.interval_used) {
            self.interval += 1;
        }
    }

    /// True if the segment that is being filled has room for `blocks` blocks.
    pub(super) fn has_room(&self, blocks: u32) -> bool {
        let used = self.segments.back().expect("one is being filled").used;
        !self.turning && used + blocks <= SEGMENT_BLOCKS
    }

    /// True if an opening may go on with the last segment: it has room, and no later header may
    /// have its summary.
    pub(super) fn may_resume(&self) -> bool {
        let last = self.segments.back().map(|last| last.number);
        last.is_some_and(|last| last + 1 == self.next_segment && self.has_room(1))
    }

    /// True if the last `segments` segments have no durable record.
    pub(super) fn is_unflushed(&self, segments: usize) -> bool {
        let first = self.segments.len().checked_sub(segments);
        first.is_some_and(|first| self.segments[first].first >= self.durable_to)
    }

    /// True if a client's record of `blocks` blocks fits in the segment that is being filled.
    /// Segments of the reserve that the cleaner has begun are for its notes: otherwise the cleaner
    /// would begin segments without end.
    pub(super) fn may_fill(&self, blocks: u32) -> bool {
        self.has_room(blocks) && self.free.len() >= RESERVE
    }

    /// True if a client, or the cleaner, may begin another segment.
    pub(super) fn may_turn(&self, cleaner: bool) -> bool {
        !self.turning && self.free.len() > if cleaner { 0 } else { RESERVE }
    }

    /// Gives a record its place, for which there is room; `blocks` includes the header.
    pub(super) fn place(&mut self, blocks: u32) -> RecordSpot {
        let segment = self.segments.back_mut().expect("one is being filled");
        let at = segment.slot * SEGMENT_BLOCKS + segment.used;
        segment.used += blocks;
        let spot = RecordSpot {
            number: self.next,
            segment: segment.number,
            at,
        };
        self.next += 1;
        spot
    }

    /// Notes that the dirty record `number` was written at `now`.
    pub(super) fn age(&mut self, number: u64, now: Nanos, max_lag: Nanos) {
        self.last_write_end = number + 1;
        let last = self.ages.back().map(|(_, at)| *at);
        if last.is_none_or(|last| now - last >= Nanos(max_lag.0 / AGES)) {
            self.ages.push_back((number, now));
        }
    }

    /// Time at which the oldest dirty record was written, or an earlier one.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let is_dirty = self.written_back_to < self.last_write_end;
        self.ages.front().filter(|_| is_dirty).map(|(_, at)| *at)
    }

    /// Notes the end of a record, and indexes the records that are complete now. `indexed` hears of
    /// their extents.
    pub(super) fn end(&mut self, number: u64, copies: usize, indexed: impl Fn(&[RecordExtent])) {
        let place = (number - self.completed_to) as usize;
        self.flights[place].ended = Some(copies);
        let is_complete = |flight: &RecordInFlight| flight.ended.is_some_and(|copies| copies > 0);
        while self.flights.front().is_some_and(is_complete) {
            let flight = self.flights.pop_front().expect("it has a front");
            let number = self.completed_to;
            self.completed_to += 1;
            let (extents, crcs) = (&flight.extents, &flight.crcs);
            self.index.insert(number, extents, flight.at, crcs);
            indexed(extents);
            if flight.forced && self.durable_to == number {
                self.durable_to += 1;
            }
        }
    }

    /// Slot of the cursor's segment, and its blocks in use. A cursor at the end of a segment moves
    /// to the next.
    pub(super) fn place_of(&self, cursor: &mut CleanerCursor) -> (u32, u32) {
        let from = self.segments.iter();
        let mut from = from.skip_while(|live| live.number != cursor.segment);
        let mut live = from.next().expect("the cursor is in a live segment");
        if cursor.offset == live.used
            && let Some(next) = from.next()
        {
            (cursor.segment, cursor.offset) = (next.number, 1);
            live = next;
        }
        (live.slot, live.used)
    }

    /// Notes that all records before the cursor are at the origin, and that this is durable in the
    /// pool.
    pub(super) fn done(&mut self, cursor: CleanerCursor) {
        let to = cursor.number;
        self.written_back_to = to;
        self.cursor = cursor;
        // The newest age at or before `to` stays, for it stands for the records after `to` too.
        while self.ages.get(1).is_some_and(|(number, _)| *number <= to) {
            self.ages.pop_front();
        }
        if self.written_back_to >= self.last_write_end {
            self.ages.clear();
        }
        self.free_segments();
    }

    /// Blocks of the segments that are not free, without the rest of the last.
    pub(super) fn blocks_used(&self) -> u32 {
        let whole = self.segments.len().saturating_sub(1) as u32 * SEGMENT_BLOCKS;
        whole + self.segments.back().map_or(0, |last| last.used)
    }

    /// Frees segments without dirty records and readers.
    pub(super) fn free_segments(&mut self) {
        while self.segments.len() > 1 {
            let (front, next) = (&self.segments[0], &self.segments[1]);
            if next.first > self.written_back_to || front.readers > 0 {
                break;
            }
            self.free.push_back(front.slot);
            self.segments.pop_front();
            let front = self.segments[0].number;
            if self.cursor.segment < front {
                (self.cursor.segment, self.cursor.offset) = (front, 1);
            }
        }
    }
}
