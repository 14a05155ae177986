//! The writes that the cleaner of a log sends to an origin, and the dirty data in the log
//! meanwhile.
//!
//! The cleaner is that of `writelog`, played through at the times of the writes. A batch is taken
//! once its oldest write has waited for `gather`, or later, when the batch before is at the origin.
//! A batch has the records that were there by then. If order is kept, these are of one interval in
//! one segment, else of as many segments as a window may have. Of each block the newest version is
//! written back, by address, and a flush follows. Then a note is written to the log.
//!
//! The log has room for everything and writes never wait: writes that would wait are counted.
//!
//! Invariants:
//!     batches begin in the order of their writes, one after the other
//!     memory is bounded: one batch is open, and dirty batches are kept in [`ENTRIES_MAX`]
//!     pieces
//!
//! Left out: the origin's time for clients' reads, the journal's time, a cleaner that does not
//! gather once half of a limit is reached, and that a note may be the first of a segment.

use super::origin::CleanedOrigin;
use block::Nanos;
use layout::{BLOCK_BYTES, RECORD_BLOCKS_MAX, SEGMENT_BLOCKS};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// The span of acknowledged writes that may be lost, unless configured otherwise.
pub(super) const MAX_LAG: Nanos = Nanos::from_secs(30);
/// Most bytes of a window. A window also has at most a quarter of the origin's blocks within
/// `max_lag`: as `writelog::load`.
pub(super) const WINDOW_BYTES: u64 = 64 << 20;
const WINDOW_BLOCKS: u64 = WINDOW_BYTES / BLOCK_BYTES as u64;
const PART: u64 = 4;
/// Most blocks of a write to the origin: 1 MiB.
const RUN_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES as u64;
const SEGMENT: u64 = SEGMENT_BLOCKS as u64;
/// Blocks of the log that hold a note, or a segment's header.
const HEADER: u64 = 1;
/// Divisor of each limit; writes wait from that part on: as `writelog::pace`.
const PACED: u64 = 2;
/// Batches that are kept apart; more are merged in pairs, and held until both are done.
const ENTRIES_MAX: usize = 4096;

/// Records that a batch may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BatchTakes {
    /// Records of one interval, in one segment.
    Interval,
    /// Records of any interval.
    Window,
}

impl BatchTakes {
    /// Time for which writes gather before the write back: as `node::log`.
    pub(super) fn gather(self) -> Nanos {
        let part = Nanos(MAX_LAG.0 / 8);
        match self {
            BatchTakes::Interval => part.min(Nanos::from_secs(1)),
            BatchTakes::Window => part,
        }
    }
}

/// Records that the cleaner has not taken yet.
#[derive(Default)]
struct LaneBatch {
    since: Nanos,
    blocks: BTreeSet<u64>,
    changed: u64,
    log_blocks: u64,
}

/// A batch that is not yet at the origin.
#[derive(Clone, Copy)]
struct DirtyBatch {
    since: Nanos,
    ends: Nanos,
    log_blocks: u64,
}

/// Sums of a lane.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct LaneSums {
    /// Writes of clients, and those that no limit held back.
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// Blocks that clients wrote, and those that were written back.
    pub(super) changed: u64,
    pub(super) carried: u64,
    /// Writes and flushes of the origin.
    pub(super) writes: u64,
    pub(super) flushes: u64,
    pub(super) busy: Nanos,
    /// Time in which the oldest dirty write is older than half of `max_lag`.
    pub(super) behind: Nanos,
    /// Written to each device of the log.
    pub(super) log_written: u64,
    /// The most dirty blocks of the log while no limit was reached.
    pub(super) log_dirty_max: u64,
    /// The most blocks of one batch, under the same condition.
    pub(super) log_batch_max: u64,
}

pub(super) struct CleanerLane {
    takes: BatchTakes,
    origin: CleanedOrigin,
    open: LaneBatch,
    /// Blocks in use of the segment that is being filled.
    segment_used: u64,
    free_at: Nanos,
    behind_to: Nanos,
    dirty: VecDeque<DirtyBatch>,
    dirty_blocks: u64,
    sums: LaneSums,
}

impl CleanerLane {
    pub(super) fn new(takes: BatchTakes, origin: CleanedOrigin) -> CleanerLane {
        CleanerLane {
            takes,
            origin,
            open: LaneBatch::default(),
            segment_used: SEGMENT,
            free_at: Nanos::ZERO,
            behind_to: Nanos::ZERO,
            dirty: VecDeque::new(),
            dirty_blocks: 0,
            sums: LaneSums::default(),
        }
    }

    /// A write of `blocks`.
    pub(super) fn write(&mut self, now: Nanos, blocks: Range<u64>, forced: bool) {
        self.pass(now);
        let oldest = self.oldest().unwrap_or(now);
        let waits = [now.since(oldest), self.free_at.since(now)];
        let limit = Nanos(MAX_LAG.0 / PACED);
        self.sums.asked += 1;
        self.sums.answered += u64::from(waits.iter().all(|wait| *wait <= limit));
        let mut at = blocks.start;
        while at < blocks.end {
            let end = blocks.end.min(at + u64::from(RECORD_BLOCKS_MAX));
            self.append(now, at..end);
            at = end;
        }
        // A write after `MAX_LAG` is stopped: the log need not hold it.
        let oldest = self.oldest().unwrap_or(now);
        if now.since(oldest) <= MAX_LAG {
            let dirty = self.dirty_blocks + self.open.log_blocks;
            self.sums.log_dirty_max = self.sums.log_dirty_max.max(dirty);
        }
        if forced {
            self.flush();
        }
    }

    /// A flush.
    pub(super) fn flush(&mut self) {
        if self.takes == BatchTakes::Interval {
            self.close();
        }
    }

    /// Writes back all dirty data; returns the sums, and the time of the end.
    pub(super) fn finish(mut self) -> (LaneSums, Nanos) {
        self.close();
        (self.sums, self.free_at)
    }

    /// Time of the oldest dirty write.
    fn oldest(&self) -> Option<Nanos> {
        let open = (!self.open.blocks.is_empty()).then_some(self.open.since);
        self.dirty.front().map(|dirty| dirty.since).or(open)
    }

    /// Advances the lane to `now`.
    fn pass(&mut self, now: Nanos) {
        if !self.open.blocks.is_empty() && self.begins() <= now {
            self.close();
        }
        while let Some(dirty) = self.dirty.front().filter(|dirty| dirty.ends <= now) {
            self.dirty_blocks -= dirty.log_blocks;
            self.dirty.pop_front();
        }
    }

    /// Time at which the cleaner takes the open batch.
    fn begins(&self) -> Nanos {
        let gathered = self.open.since + self.takes.gather();
        gathered.max(self.free_at)
    }

    fn append(&mut self, now: Nanos, blocks: Range<u64>) {
        let count = blocks.end - blocks.start;
        if self.segment_used + HEADER + count > SEGMENT {
            self.turn();
            if self.takes == BatchTakes::Interval || !self.has_room() {
                self.close();
            }
        }
        if self.open.blocks.is_empty() {
            self.open.since = now;
        }
        self.open.blocks.extend(blocks);
        self.open.changed += count;
        self.fill(HEADER + count);
    }

    /// Tests for room for another segment in the open window.
    fn has_room(&self) -> bool {
        let seconds = self.sums.busy.as_secs_f64();
        let rate = match seconds > 0.0 {
            true => self.sums.carried as f64 / seconds,
            false => 0.0,
        };
        let in_time = (rate * MAX_LAG.as_secs_f64()) as u64 / PART;
        let most = WINDOW_BLOCKS.min(in_time).max(SEGMENT);
        self.open.blocks.len() as u64 + SEGMENT <= most
    }

    /// Begins another segment; the rest of the last one counts as used without being written.
    fn turn(&mut self) {
        self.open.log_blocks += SEGMENT - self.segment_used;
        self.segment_used = 0;
        self.fill(HEADER);
    }

    fn fill(&mut self, blocks: u64) {
        self.segment_used += blocks;
        self.open.log_blocks += blocks;
        self.sums.log_written += blocks;
    }

    /// Hands the open batch to the cleaner.
    fn close(&mut self) {
        if self.open.blocks.is_empty() {
            return;
        }
        let begins = self.begins();
        let batch = std::mem::take(&mut self.open);
        let runs = runs(&batch.blocks);
        let ends = self.origin.carry(begins, &runs);
        let sums = &mut self.sums;
        sums.changed += batch.changed;
        sums.carried += batch.blocks.len() as u64;
        sums.writes += runs.len() as u64;
        sums.flushes += 1;
        sums.busy += ends - begins;
        sums.log_batch_max = sums.log_batch_max.max(batch.log_blocks);
        let from = (batch.since + Nanos(MAX_LAG.0 / PACED)).max(self.behind_to);
        sums.behind += ends.since(from);
        self.behind_to = self.behind_to.max(ends);
        self.free_at = ends;
        self.push_dirty(DirtyBatch {
            since: batch.since,
            ends,
            log_blocks: batch.log_blocks,
        });
        self.open.log_blocks += HEADER;
        self.sums.log_written += HEADER;
    }

    fn push_dirty(&mut self, dirty: DirtyBatch) {
        self.dirty_blocks += dirty.log_blocks;
        self.dirty.push_back(dirty);
        if self.dirty.len() > ENTRIES_MAX {
            let all: Vec<DirtyBatch> = self.dirty.drain(..).collect();
            let merged = all.chunks(2).map(|pair| DirtyBatch {
                since: pair[0].since,
                ends: pair[pair.len() - 1].ends,
                log_blocks: pair.iter().map(|dirty| dirty.log_blocks).sum(),
            });
            self.dirty.extend(merged);
        }
    }
}

/// Runs of blocks side by side.
fn runs(blocks: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == *block && run.end - run.start < RUN_BLOCKS => run.end += 1,
            _ => runs.push(*block..block + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
