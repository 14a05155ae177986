//! The cleaner's unit of work: records from `written_back_to` on, and the newest version of each
//! block in them.
//!
//! An ordered log takes records of one interval, in one segment. That splits an interval, which the
//! promise allows.
//!
//! Other logs take a window: records of any intervals, up to the last complete one. A window is at
//! most [`WINDOW_BLOCKS`] and a quarter of each limit, so that its share of the log and of
//! `max_lag` is small.
//!
//! A log with a journal takes windows that fit in the journal. The first is the very one that a
//! former incarnation committed.
//!
//! Invariant: a version that is left out has a later one in the same load. One in a later load
//! would do for acknowledged writes. But a block that is written without end would then never be at
//! the origin, and `max_lag` would not hold.

use super::index::LogIndex;
use super::journal::WriteJournal;
use super::pace::seconds;
use super::records::FoundChange;
use super::stage::LogStage;
use super::state::CleanerCursor;
use super::{Cleaning, WriteBackShared};
use block::{Device, IoResult, Nanos};
use layout::{BLOCK_BYTES, Became, LogRecord, SEGMENT_BLOCKS};
use std::collections::VecDeque;
use std::ops::Range;

/// Most blocks of a window: 64 MiB.
const WINDOW_BLOCKS: u64 = 64 << 20 >> BLOCK_BYTES.trailing_zeros();
/// A window's part of each limit.
const PART: u64 = 4;
/// Most changes of a segment: a record of one block may clear one run, and cut another in two.
const SEGMENT_CHANGES: u64 = 2 * SEGMENT;
/// Most blocks of one read.
const SEGMENT: u64 = SEGMENT_BLOCKS as u64;
/// Most blocks of one write to the origin: 1 MiB.
pub(super) const RUN_BLOCKS: u64 = 1 << 20 >> BLOCK_BYTES.trailing_zeros();

/// Data for one round of write-back.
#[derive(Default)]
pub(super) struct OriginLoad {
    pub(super) newest: LogIndex,
    /// Interval of its last record.
    pub(super) interval: u64,
    /// Time at which its last record was written.
    pub(super) written_at: u64,
    /// True if the journal has it.
    pub(super) committed: bool,
    /// True if a former incarnation may have written back a part of it.
    pub(super) redone: bool,
    /// True if its records are of several intervals.
    crosses: bool,
    /// Blocks changed by its records; a zeroed or discarded extent counts as one.
    pub(super) blocks: u64,
    pub(super) next: CleanerCursor,
    /// Runs that are not at the origin yet.
    pub(super) left: VecDeque<Range<u64>>,
    /// Time spent on failed attempts.
    pub(super) took: Nanos,
    /// Time for which the cleaner left the origin to clients.
    pub(super) rested: Nanos,
}

impl<P: Device> WriteBackShared<P> {
    /// Returns the next load.
    pub(super) async fn load(&self) -> IoResult<OriginLoad> {
        let complete = || {
            let state = self.state.borrow();
            let more = state.completed_to > state.cursor.number;
            (more || self.copies.are_gone()).then_some(())
        };
        loop {
            self.changed.until_some(complete).await;
            if self.copies.are_gone() {
                return Err(self.copies.error());
            }
            let (mut load, limit) = {
                let state = self.state.borrow();
                let next = state.cursor;
                (
                    OriginLoad {
                        next,
                        ..OriginLoad::default()
                    },
                    state.completed_to,
                )
            };
            match (self.redo_to(), self.cleaning()) {
                (Some(to), _) => self.take_committed(&mut load, to).await?,
                (None, Cleaning::Ordered) => self.take_batch(&mut load, limit).await?,
                (None, Cleaning::Coalesced | Cleaning::Journaled) => {
                    self.take_window(&mut load, limit).await?;
                }
            }
            if load.blocks > 0 {
                load.begin();
                return Ok(load);
            }
            // Only notes so far: dirty data is further on.
            self.state.borrow_mut().cursor = load.next;
        }
    }

    /// Takes records of one interval that are in one segment.
    async fn take_batch(&self, load: &mut OriginLoad, limit: u64) -> IoResult {
        let mut interval = None;
        let takes = |record: &LogRecord| {
            let others = interval.is_some_and(|i| i != record.interval);
            interval.get_or_insert(record.interval);
            !others
        };
        let found = self.records(&mut load.next, limit, takes).await?;
        load.take(&found);
        Ok(())
    }

    /// Takes all records before `to`, which the journal has.
    async fn take_committed(&self, load: &mut OriginLoad, to: u64) -> IoResult {
        while load.next.number < to {
            let found = self.records(&mut load.next, to, |_| true).await?;
            load.take(&found);
        }
        (load.committed, load.redone) = (true, true);
        Ok(())
    }

    /// Takes records of any intervals.
    async fn take_window(&self, load: &mut OriginLoad, limit: u64) -> IoResult {
        let _under = self.stages.enter(LogStage::Window);
        let (carried_max, log_max) = self.window_max();
        let room = self.journal().map_or(u64::MAX, WriteJournal::room);
        let mut log_blocks = 0;
        while load.next.number < limit
            && load.newest.blocks() + SEGMENT <= carried_max
            && load.newest.changes() + SEGMENT_CHANGES <= room
            && log_blocks + SEGMENT <= log_max
        {
            let found = match self.records(&mut load.next, limit, |_| true).await {
                // The records before this one can be written back.
                Err(_) if load.blocks > 0 => break,
                found => found?,
            };
            load.take(&found);
            let records = found.iter();
            log_blocks += records
                .map(|found| u64::from(found.record.blocks()))
                .sum::<u64>();
        }
        Ok(())
    }

    /// Limits of a window: blocks to write back, and blocks of the log.
    fn window_max(&self) -> (u64, u64) {
        // Before the first measurement, a window is as small as a load of an ordered log.
        let rate = self.pace.borrow().origin_rate().unwrap_or(0.0);
        let in_time = rate * seconds(self.config.max_lag);
        let limits = [self.config.dirty_max / BLOCK_BYTES as u64, in_time as u64];
        let parts = limits.into_iter().map(|limit| limit / PART);
        let carried = parts.fold(WINDOW_BLOCKS, u64::min);
        let room = u64::from(self.room_blocks());
        (carried.max(SEGMENT), (room / PART).max(SEGMENT))
    }
}

impl OriginLoad {
    fn take(&mut self, found: &[FoundChange]) {
        for FoundChange { record, at } in found {
            let changed = record.extents.iter().map(|extent| match extent.became {
                Became::Data => u64::from(extent.count),
                Became::Zero | Became::Discarded => 1,
            });
            self.crosses |= self.blocks > 0 && self.interval != record.interval;
            self.interval = record.interval;
            self.written_at = record.written_at;
            self.blocks += changed.sum::<u64>();
            self.newest
                .insert(record.number, &record.extents, *at, &record.crcs);
        }
    }

    /// Queues all runs: no block is at the origin for sure.
    pub(super) fn begin(&mut self) {
        self.left = self.newest.runs(RUN_BLOCKS).into();
    }

    /// True if versions are left out, of any of several intervals.
    pub(super) fn skips(&self) -> bool {
        self.crosses && self.carries() < self.blocks
    }

    /// Blocks and cleared runs that go to the origin.
    pub(super) fn carries(&self) -> u64 {
        self.newest.changes()
    }
}
