//! Writes: append to both copies, index, answer, in the order of the records.
//!
//! A write that forces unit access is durable only if all records before it are: an opening reads
//! up to the first hole. So both copies are flushed after such a write, unless all before it is
//! durable.
//!
//! Writes wait for their turn (`pace`) before there is room, then for others that `join` them, then
//! for the limits.
//!
//! Without one of the copies a new write is acknowledged only once at the origin. Writes in flight
//! wait for the cleaner; later writes go to the origin once nothing is dirty.

use super::WriteBackShared;
use super::join::JoinedWrite;
use super::pace::seconds;
use super::stage::LogStage;
use super::state::{RESERVE, RecordInFlight};
use block::{Buf, Device, Extent, Fua, IoError, IoErrorKind, IoResult, Nanos, SharedBuf};
use futures_util::future::{Either, join, select};
use layout::{
    BLOCK_BYTES, Became, LOG_NUMBER, LogRecord, RECORD_BLOCKS_MAX, RecordExtent, SEGMENT_BLOCKS,
    Segment, SegmentCopy, SegmentSummary, SummaryWriter, block_crc,
};
use std::pin::pin;
use std::rc::Rc;

/// Limit of segments without a flush: a part of the log, and 64 MiB. An opening reads such segments
/// whole.
const UNFLUSHED_PART: u32 = 4;
const UNFLUSHED_MAX: u32 = 64;

/// Destination of a write.
enum AppendRoom {
    Log,
    Origin,
    NewSegment,
}

impl<P: Device> WriteBackShared<P> {
    /// Writes whole blocks.
    pub(super) async fn write(&self, extent: Extent, data: SharedBuf, fua: Fua) -> IoResult {
        let most = RECORD_BLOCKS_MAX as usize * BLOCK_BYTES;
        let mut block = Self::blocks(extent).start;
        for from in (0..data.len()).step_by(most) {
            let part = data.slice(from..data.len().min(from + most));
            let count = (part.len() / BLOCK_BYTES) as u32;
            let last = from + part.len() == data.len();
            let extent = RecordExtent {
                block,
                count,
                became: Became::Data,
            };
            // In the log a forced last part makes all parts before it durable. The origin keeps no
            // order.
            let ends = if last { fua } else { Fua::No };
            self.change(extent, Some(part), ends, fua).await?;
            block += u64::from(count);
        }
        Ok(())
    }

    /// Zeroes or discards whole blocks.
    pub(super) async fn clear(&self, extent: Extent, became: Became) -> IoResult {
        let mut blocks = Self::blocks(extent);
        while !blocks.is_empty() {
            let count = (blocks.end - blocks.start).min(u64::from(u32::MAX));
            let extent = RecordExtent {
                block: blocks.start,
                count: count as u32,
                became,
            };
            self.change(extent, None, Fua::No, Fua::No).await?;
            blocks.start += count;
        }
        Ok(())
    }

    /// Writes to the log with `fua`, or to the origin with `durable`.
    async fn change(
        &self,
        extent: RecordExtent,
        data: Option<SharedBuf>,
        fua: Fua,
        durable: Fua,
    ) -> IoResult {
        let write = JoinedWrite::new(extent, data, fua);
        self.paced(write.changes()).await;
        match self.logged(&write).await? {
            None => {
                let _under = self.stages.enter(LogStage::Degraded);
                self.retire_journal().await?;
                self.directly(&write, durable).await
            }
            Some(number) => {
                let _forced = (fua == Fua::Yes).then(|| self.stages.enter(LogStage::Forced));
                self.answerable(number).await?;
                let is_durable = || self.state.borrow().durable_to > number;
                if fua == Fua::Yes && self.copies.are_both() && !is_durable() {
                    self.flush_log().await?;
                }
                self.in_time(number).await
            }
        }
    }

    /// Delays a write of `blocks` blocks by its pacing.
    async fn paced(&self, blocks: u64) {
        if !self.copies.are_both() {
            return;
        }
        let (now, fullness) = (self.env.timer.now(), self.fullness());
        let retiring = self.retiring.get();
        let turn = self.pace.borrow_mut().turn(now, fullness, retiring, blocks);
        let Some(turn) = turn else {
            return;
        };
        let joins = || self.pace.borrow().joins(turn).then_some(());
        let wait = pin!(self.env.timer.sleep(turn.at - now));
        let joined = pin!(self.turns.until_some(joins));
        if let Either::Left(_) = select(wait, joined).await {
            self.pace.borrow_mut().goes_on(turn);
            self.turns.notify();
        }
    }

    /// Fullness by the nearest limit: writes stop at 1.
    pub(super) fn fullness(&self) -> f64 {
        let state = self.state.borrow();
        let dirty = state.index.blocks() as f64;
        let max_lag = seconds(self.config.max_lag);
        let age = state.oldest().map_or(Nanos::ZERO, |at| self.clock() - at);
        let rate = self.pace.borrow().origin_rate();
        let carried_in_time = rate.map(|rate| rate * max_lag);
        [
            dirty * BLOCK_BYTES as f64 / self.config.dirty_max as f64,
            f64::from(state.blocks_used()) / f64::from(self.room_blocks()),
            seconds(age) / max_lag,
            carried_in_time.map_or(0.0, |blocks| dirty / blocks),
        ]
        .into_iter()
        .fold(0.0, f64::max)
    }

    /// Blocks of the log that clients may fill.
    pub(super) fn room_blocks(&self) -> u32 {
        (self.copies.segments() - RESERVE as u32) * SEGMENT_BLOCKS
    }

    /// Puts a write into a record. Returns the record's number once no copy is in flight, or `None`
    /// if the write is to go to the origin.
    async fn logged(&self, write: &Rc<JoinedWrite>) -> IoResult<Option<u64>> {
        let is_full = {
            let queue = &mut self.state.borrow_mut().queue;
            queue.push(write);
            queue.is_full()
        };
        if is_full {
            self.changed.notify();
        }
        let turn = || {
            let record = write.record.get();
            let leads = || self.state.borrow().queue.leads(write).then_some(None);
            record.map(Some).or_else(leads)
        };
        if let Some(number) = self.changed.until_some(turn).await {
            return Ok(Some(number));
        }
        let room = self.room(1 + write.blocks, u64::from(write.blocks)).await;
        if !matches!(room, Ok(AppendRoom::Log)) {
            self.state.borrow_mut().queue.leave(write);
            self.changed.notify();
            return room.map(|_| None);
        }
        let joined = {
            let state = &mut *self.state.borrow_mut();
            let (dirty, dirty_max) = (state.index.blocks(), self.config.dirty_max);
            let left = SEGMENT_BLOCKS - state.segments.back().expect("it has room").used - 1;
            let clean = (dirty_max / BLOCK_BYTES as u64).saturating_sub(dirty);
            state
                .queue
                .take(left.min(clean.try_into().unwrap_or(u32::MAX)))
        };
        let _join = (joined.len() > 1).then(|| self.stages.enter(LogStage::Join));
        Ok(Some(self.append(&joined).await))
    }

    /// Waits for room in the log for a client's record, or until the write is to go to the origin.
    async fn room(&self, blocks: u32, dirty: u64) -> IoResult<AppendRoom> {
        loop {
            let room = self.pressing(|| {
                if self.sealed.get() {
                    let what = "the write-back log takes no changes any more; see `hotset status`";
                    return Some(Err(IoError::new(IoErrorKind::Gone, what)));
                }
                if !self.copies.are_both() {
                    let drained = self.is_drained();
                    if self.copies.are_stuck() {
                        return Some(Err(self.copies.error()));
                    }
                    if let Some(error) = self.refusal().filter(|_| !drained) {
                        return Some(Err(error));
                    }
                    let ready = drained && self.copies.are_losses_durable();
                    return ready.then_some(Ok(AppendRoom::Origin));
                }
                if !self.copies.standing.records_dirty() {
                    return None;
                }
                let state = self.state.borrow();
                let dirty = (state.index.blocks() + dirty) * BLOCK_BYTES as u64;
                let fits = dirty <= self.config.dirty_max;
                if fits && state.may_fill(blocks) {
                    return Some(Ok(AppendRoom::Log));
                }
                match fits && state.may_turn(false) {
                    true => Some(Ok(AppendRoom::NewSegment)),
                    false => self.refusal().map(Err),
                }
            });
            match room.await? {
                AppendRoom::NewSegment => self.start_segment().await?,
                room => return Ok(room),
            }
        }
    }

    /// Waits until `look` returns a value, and hurries the cleaner meanwhile.
    async fn pressing<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        if let Some(found) = look() {
            return found;
        }
        self.pressed.set(self.pressed.get() + 1);
        self.changed.notify();
        let found = self.changed.until_some(look).await;
        self.pressed.set(self.pressed.get() - 1);
        found
    }

    /// Begins a segment. The header is durable before any record is written to the segment.
    /// Segments that an opening would read whole stay a part of the log.
    pub(super) async fn start_segment(&self) -> IoResult {
        let _under = self.stages.enter(LogStage::SegmentStart);
        let (segment, is_unflushed) = {
            let state = &mut *self.state.borrow_mut();
            let Some(slot) = state.free.pop_front() else {
                let what = "the write-back log is full; see to its origin: the log empties then";
                return Err(IoError::new(IoErrorKind::NoSpace, what));
            };
            state.turning = true;
            let number = state.next_segment;
            state.next_segment += 1;
            let full = state.summary.take();
            let full = full.map(|summary| summary.finish(state.durable_to, state.written_back_to));
            let most = (self.copies.segments() / UNFLUSHED_PART).min(UNFLUSHED_MAX);
            (
                self.segment(number, slot, full),
                state.is_unflushed(most as usize),
            )
        };
        let mut buf = self.env.pool.take(BLOCK_BYTES);
        segment.encode(self.config.log, &mut buf);
        let slot = segment.copies[0].slot;
        let written = self
            .copies
            .write(slot * SEGMENT_BLOCKS, buf.share(), Fua::Yes);
        let flushed = async {
            if is_unflushed {
                self.flush_log().await?;
            }
            Ok(())
        };
        let (copies, flushed) = join(written, flushed).await;
        let state = &mut *self.state.borrow_mut();
        state.turning = false;
        self.changed.notify();
        if copies == 0 {
            state.free.push_front(slot);
            return Err(self.copies.error());
        }
        let first = state.next;
        state.summary = Some(SummaryWriter::new(segment.number, first, 1));
        state.segments.push_back(super::state::LiveSegment {
            number: segment.number,
            slot,
            first,
            used: 1,
            readers: 0,
        });
        state.free_segments();
        flushed
    }

    pub(super) fn segment(
        &self,
        number: u64,
        slot: u32,
        summary: Option<SegmentSummary>,
    ) -> Segment {
        let member = |copy: usize| {
            self.copies.areas[copy]
                .as_ref()
                .map_or(u16::MAX, |a| a.member)
        };
        Segment {
            number,
            incarnation: self.config.incarnation,
            log: LOG_NUMBER,
            copies: [0, 1].map(|copy| SegmentCopy {
                member: member(copy),
                slot,
            }),
            summary,
        }
    }

    /// Appends a record of writes, for which there is room. Returns its number, once no copy is in
    /// flight.
    async fn append(&self, writes: &[Rc<JoinedWrite>]) -> u64 {
        let written_back_to = self.state.borrow().written_back_to;
        self.append_done(writes, written_back_to, Fua::No).await
    }

    /// Appends a forced record without changes: a note of `written_back_to`, or a fence.
    pub(super) async fn append_note(&self, written_back_to: u64) -> u64 {
        self.append_done(&[], written_back_to, Fua::Yes).await
    }

    pub(super) async fn append_done(
        &self,
        writes: &[Rc<JoinedWrite>],
        written_back_to: u64,
        fua: Fua,
    ) -> u64 {
        let _under = self.stages.enter(LogStage::Append);
        let forced = writes.last().is_some_and(|write| write.fua == Fua::Yes);
        let _forced = forced.then(|| self.stages.enter(LogStage::Forced));
        let fua = if forced { Fua::Yes } else { fua };
        let (mut buf, crcs) = self.record_of(writes);
        let (number, at, is_full) = {
            let state = &mut *self.state.borrow_mut();
            let now = self.clock();
            if self.copies.are_both() {
                state.both_to = state.completed_to;
            }
            state.marked_to = state.durable_to;
            let spot = state.place(1 + crcs.len() as u32);
            let record = LogRecord {
                number: spot.number,
                incarnation: self.config.incarnation,
                segment: spot.segment,
                interval: state.interval,
                written_back_to,
                fence: state.fence,
                written_at: now.0,
                durable_to: state.durable_to,
                complete_to: state.both_to,
                log: LOG_NUMBER,
                extents: writes.iter().map(|write| write.extent).collect(),
                crcs,
            };
            record.encode(self.config.log, &mut buf[..BLOCK_BYTES]);
            state
                .summary
                .as_mut()
                .expect("a segment is being filled")
                .push(&record);
            if !writes.is_empty() {
                state.age(spot.number, now, self.config.max_lag);
                state.interval_used = true;
                if forced {
                    state.close_interval();
                }
                state.queue.sent(writes, spot.number);
            }
            state.flights.push_back(RecordInFlight {
                extents: record.extents,
                crcs: record.crcs,
                at: spot.at + 1,
                forced: fua == Fua::Yes,
                ended: None,
            });
            (spot.number, spot.at, state.queue.is_full())
        };
        if is_full {
            self.changed.notify();
        }
        let copies = self.copies.write(at, buf.share(), fua).await;
        {
            let state = &mut *self.state.borrow_mut();
            state.queue.ended(writes);
            state.end(number, copies, |extents| self.refuse_located(extents));
        }
        self.changed.notify();
        number
    }

    /// Refuses the located reads of the blocks that a record has changed, in the step that indexes
    /// the record.
    fn refuse_located(&self, extents: &[RecordExtent]) {
        for extent in extents {
            let blocks = extent.block..extent.block + u64::from(extent.count);
            self.origin.refuse_located(Self::extent(blocks));
        }
    }

    /// Returns memory for a record with the data of writes, and the checksum of each block.
    fn record_of(&self, writes: &[Rc<JoinedWrite>]) -> (Buf, Vec<u32>) {
        let blocks: u32 = writes.iter().map(|write| write.blocks).sum();
        let mut buf = self.env.pool.take((1 + blocks as usize) * BLOCK_BYTES);
        let mut at = BLOCK_BYTES;
        for data in writes.iter().filter_map(|write| write.data.take()) {
            buf[at..at + data.len()].copy_from_slice(&data);
            at += data.len();
        }
        let crcs = buf[BLOCK_BYTES..].chunks(BLOCK_BYTES).map(block_crc);
        let crcs = crcs.collect();
        (buf, crcs)
    }

    /// Waits until record `number` and all before it are on both copies, or at the origin if a copy
    /// is lost.
    async fn answerable(&self, number: u64) -> IoResult {
        let ended = || {
            if self.copies.are_gone() {
                return Some(Err(self.copies.error()));
            }
            let state = self.state.borrow();
            if self.copies.are_both() {
                return (state.completed_to > number).then_some(Ok(()));
            }
            if state.written_back_to <= number {
                return self.refusal().map(Err);
            }
            self.copies.are_losses_durable().then_some(Ok(()))
        };
        self.changed.until_some(ended).await
    }

    /// Returns the error that stops the cleaner until others act: neither copy can be read, or the
    /// origin refuses writes. Waits for the cleaner would never end.
    pub(super) fn refusal(&self) -> Option<IoError> {
        let trouble = self.trouble.borrow();
        let trouble = trouble.as_ref().filter(|error| match error.kind() {
            IoErrorKind::Corrupt | IoErrorKind::NoSpace | IoErrorKind::ReadOnly => true,
            kind => matches!(
                kind,
                IoErrorKind::Unsupported | IoErrorKind::Denied | IoErrorKind::Invalid
            ),
        });
        trouble.map(IoError::duplicate)
    }

    /// Waits until the answer of record `number` is at most `max_lag` ahead of the oldest dirty
    /// record.
    async fn in_time(&self, number: u64) -> IoResult {
        let in_time = || {
            let oldest = self.state.borrow().oldest();
            oldest.is_none_or(|at| self.clock() - at <= self.config.max_lag)
        };
        let look = || {
            let waits = !in_time() && !self.copies.are_gone();
            match self.refusal().filter(|_| waits) {
                Some(error) => Some(Err(error)),
                None => (!waits).then_some(Ok(())),
            }
        };
        loop {
            self.pressing(look).await?;
            self.answerable(number).await?;
            // The loss of a copy may have taken long to become durable.
            if let Some(ended) = look() {
                return ended;
            }
        }
    }

    async fn directly(&self, write: &JoinedWrite, fua: Fua) -> IoResult {
        let extent = write.extent;
        let at = Self::extent(extent.block..extent.block + u64::from(extent.count));
        match (write.data.take(), extent.became) {
            (Some(data), _) => self.origin.write(at.start, data, fua).await,
            (None, Became::Discarded) => self.origin.discard(at).await,
            (None, _) => self.origin.zero(at).await,
        }
    }

    /// Makes complete records durable.
    pub(super) async fn flush_log(&self) -> IoResult {
        let to = self.state.borrow().completed_to;
        self.copies.flush().await?;
        let state = &mut *self.state.borrow_mut();
        state.durable_to = state.durable_to.max(to);
        self.flushed.notify();
        Ok(())
    }

    /// Makes acknowledged writes durable.
    pub(super) async fn flush(&self) -> IoResult {
        let last = {
            let state = &mut *self.state.borrow_mut();
            state.close_interval();
            state.last_write_end.checked_sub(1)
        };
        if let Some(number) = last.filter(|number| *number >= self.state.borrow().written_back_to) {
            self.answerable(number).await?;
            if self.state.borrow().durable_to <= number {
                self.flush_log().await?;
            }
            // A copy may have been lost meanwhile.
            self.answerable(number).await?;
        }
        match self.copies.are_both() {
            true => Ok(()),
            false => self.origin.flush().await,
        }
    }
}
