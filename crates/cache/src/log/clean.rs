//! The cleaner: carries intervals to the origin, oldest first.
//!
//! It takes a batch: records of one interval, in one segment, that are durable in the pool;
//! carries them out, newest versions alone; flushes the origin; makes `done_to` durable; and
//! only then begins the next. A batch is an interval that was split, which the promise
//! allows. Zeroes and discards are batches of their own.
//!
//! Invariants:
//!     on the origin ⟹ durable in the pool before
//!     a batch begins ⟹ the one before it is at the origin, durably, and the pool knows
//!
//! Not here: coalescing over intervals.

use super::Inner;
use super::pace::HALF;
use super::share::{EXPECTED, rest};
use super::stage::Stage;
use block::{Buf, Device, Fua, IoError, IoResult, Kind, Nanos, Shared};
use futures_util::future::{join_all, select};
use layout::{BLOCK_BYTES, Became, Record, RecordExtent, SEGMENT_BLOCKS};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;

/// After an error of the origin, at first and at most.
const BACKOFF: [Nanos; 2] = [Nanos::from_secs(1), Nanos::from_secs(60)];
/// How soon memory is asked for again.
const NO_MEMORY: Nanos = Nanos::from_millis(1);
/// Writes of a batch that are at the origin at once.
const DEPTH: usize = 4;

/// What the origin gets at once.
struct Batch {
    interval: u64,
    records: Vec<Part>,
    /// The number after its last record, and where that is.
    to: u64,
    cursor: (u64, u32),
    data: Shared,
}

impl Batch {
    /// Blocks that its records changed; a zeroed or discarded extent counts as one.
    fn blocks(&self) -> u64 {
        let extents = self.records.iter().flat_map(|part| &part.extents);
        let blocks = extents.map(|extent| match extent.became {
            Became::Data => u64::from(extent.count),
            Became::Zero | Became::Discarded => 1,
        });
        blocks.sum()
    }
}

struct Part {
    number: u64,
    extents: Vec<RecordExtent>,
    /// Where its data is: in the area, and in the batch's.
    at: u32,
    from: usize,
}

pub(super) async fn run<P: Device>(log: Rc<Inner<P>>) {
    let mut backoff = BACKOFF[0];
    loop {
        let changed = &log.changed;
        changed
            .until_some(|| (log.closing.get() || log.may_clean()).then_some(()))
            .await;
        if log.closing.get() {
            break;
        }
        let due = log.state.borrow().oldest().unwrap_or_default() + log.config.clean_after;
        let wait = log.env.timer.sleep(due - log.clock());
        select(
            pin!(wait),
            pin!(changed.until_some(|| log.is_urgent().then_some(()))),
        )
        .await;
        if log.closing.get() {
            break;
        }
        match log.clean().await {
            Ok(()) => backoff = BACKOFF[0],
            Err(error) => {
                *log.trouble.borrow_mut() = Some(error);
                let wait = log.env.timer.sleep(backoff);
                let closing = changed.until_some(|| log.closing.get().then_some(()));
                select(pin!(wait), pin!(closing)).await;
                backoff = BACKOFF[1].min(backoff + backoff);
                continue;
            }
        }
        *log.trouble.borrow_mut() = None;
    }
    log.cleaner_ended.set(true);
    log.changed.notify();
}

impl<P: Device> Inner<P> {
    fn may_clean(&self) -> bool {
        let state = self.state.borrow();
        state.done_to < state.completed_to.min(state.owed_to) && !self.copies.are_gone()
    }

    fn is_urgent(&self) -> bool {
        self.is_pressed() || self.fullness() > HALF
    }

    /// Whether somebody waits for the cleaner.
    fn is_pressed(&self) -> bool {
        self.closing.get()
            || self.pressed.get() > 0
            || self.stages.is(Stage::Drain)
            || !self.copies.are_both()
    }

    async fn clean(&self) -> IoResult {
        let batch = self.collect().await?;
        let begun = self.env.timer.now();
        {
            let state = &mut *self.state.borrow_mut();
            if batch.interval == state.interval {
                state.close_interval();
            }
        }
        if self.state.borrow().durable_to < batch.to {
            self.flush_log().await?;
        }
        assert!(self.state.borrow().durable_to >= batch.to);
        self.apply(&batch).await?;
        if self.origin.geometry().volatile {
            let _under = self.stages.enter(Stage::OriginFlush);
            self.origin.flush().await?;
        }
        self.note(batch.to).await?;
        let state = &mut *self.state.borrow_mut();
        for part in &batch.records {
            state.index.remove(part.number, &part.extents, part.at);
        }
        state.done(batch.to, batch.cursor);
        if state.done_to < state.owed_to {
            let took = self.env.timer.now() - begun;
            self.pace.borrow_mut().carried(batch.blocks(), took);
        }
        self.changed.notify();
        Ok(())
    }

    /// The next batch.
    async fn collect(&self) -> IoResult<Batch> {
        loop {
            let complete = || {
                let state = self.state.borrow();
                let more = state.completed_to > state.cursor_number;
                (more || self.copies.are_gone()).then_some(())
            };
            self.changed.until_some(complete).await;
            if self.copies.are_gone() {
                return Err(self.copies.error());
            }
            let (segment, slot, from, used, first, limit) = {
                let state = &mut *self.state.borrow_mut();
                let at = state
                    .segments
                    .iter()
                    .position(|s| s.number == state.cursor.0);
                let mut at = at.expect("the cursor is in a live segment");
                if state.cursor.1 == state.segments[at].used && at + 1 < state.segments.len() {
                    at += 1;
                    state.cursor = (state.segments[at].number, 1);
                }
                let live = &state.segments[at];
                let first = state.cursor_number;
                (
                    live.number,
                    live.slot,
                    state.cursor.1,
                    live.used,
                    first,
                    state.completed_to,
                )
            };
            let mut data = self.memory((used - from) as usize * BLOCK_BYTES).await;
            let mut batch = Vec::new();
            let (mut number, mut offset, mut interval) = (first, from, None);
            let mut other = None;
            let read = self.read_area(slot * SEGMENT_BLOCKS + from, data, 0).await;
            data = read;
            while number < limit && offset < used {
                let at = (offset - from) as usize * BLOCK_BYTES;
                let found = match sound(&data[at..], number, segment, self) {
                    Some(record) => record,
                    None => {
                        // The other copy of all that is left of the segment.
                        if other.replace(()).is_some() {
                            return Err(unreadable(number));
                        }
                        let again = self.memory(data.len()).await;
                        let again = self.read_area(slot * SEGMENT_BLOCKS + from, again, 1).await;
                        match sound(&again[at..], number, segment, self) {
                            Some(record) => {
                                let end = at + record.blocks() as usize * BLOCK_BYTES;
                                data[at..end].copy_from_slice(&again[at..end]);
                                other = None;
                                record
                            }
                            None => return Err(unreadable(number)),
                        }
                    }
                };
                if !found.extents.is_empty() {
                    let clears = found.extents.iter().any(|e| e.became != Became::Data);
                    let others = interval.is_some_and(|i| i != found.interval);
                    if others || clears && !batch.is_empty() {
                        break;
                    }
                    interval = Some(found.interval);
                    batch.push(Part {
                        number,
                        at: slot * SEGMENT_BLOCKS + offset + 1,
                        from: at + BLOCK_BYTES,
                        extents: found.extents.clone(),
                    });
                    number += 1;
                    offset += found.blocks();
                    if clears {
                        break;
                    }
                } else {
                    number += 1;
                    offset += found.blocks();
                }
            }
            if let Some(interval) = interval {
                return Ok(Batch {
                    interval,
                    records: batch,
                    to: number,
                    cursor: (segment, offset),
                    data: data.share(),
                });
            }
            // Notes alone: what is owed is further on.
            let state = &mut *self.state.borrow_mut();
            state.cursor = (segment, offset);
            state.cursor_number = number;
        }
    }

    /// Blocks of the area from a copy, `skip` others after the first; zeroes if it cannot.
    async fn read_area(&self, at: u32, buf: Buf, skip: usize) -> Buf {
        let online = self.copies.online();
        let lost = (0..2).filter(|copy| self.copies.areas[*copy].is_some());
        let mut copies: Vec<usize> = online.collect();
        copies.extend(lost);
        copies.dedup();
        let Some(copy) = copies.get(skip) else {
            let mut buf = buf;
            buf.fill(0);
            return buf;
        };
        let (mut buf, read) = self.copies.read(*copy, at, buf).await;
        if read.is_err() {
            buf.fill(0);
        }
        buf
    }

    /// Memory that nobody else wants.
    async fn memory(&self, bytes: usize) -> Buf {
        loop {
            match self.env.pool.try_get(bytes) {
                Some(buf) => return buf,
                None => self.env.timer.sleep(NO_MEMORY).await,
            }
        }
    }

    /// Carries the batch to the origin, the newest version of each block alone.
    async fn apply(&self, batch: &Batch) -> IoResult {
        let _under = self.stages.enter(Stage::Apply);
        let mut newest = BTreeMap::new();
        for part in &batch.records {
            let mut from = part.from;
            for extent in &part.extents {
                let blocks = extent.block..extent.block + u64::from(extent.count);
                let at = Self::extent(blocks.clone());
                match extent.became {
                    Became::Zero => self.origin.zero(at).await?,
                    Became::Discarded => self.origin.discard(at).await?,
                    Became::Data => {
                        for block in blocks {
                            newest.insert(block, from);
                            from += BLOCK_BYTES;
                        }
                    }
                }
            }
        }
        let mut runs: Vec<(u64, Vec<usize>)> = Vec::new();
        for (block, from) in newest {
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == block => run.push(from),
                _ => runs.push((block, vec![from])),
            }
        }
        for runs in runs.chunks(DEPTH) {
            let writes = runs.iter().map(async |(start, run)| {
                let data = self.gather(&batch.data, run).await;
                let at = Self::extent(*start..*start + run.len() as u64);
                self.origin.write(at.start, data, Fua::No).await
            });
            let begun = self.env.timer.now();
            for written in join_all(writes).await {
                written?;
            }
            self.give_way(self.env.timer.now() - begun).await;
        }
        Ok(())
    }

    /// Leaves the origin to clients that read from it, unless something presses.
    async fn give_way(&self, took: Nanos) {
        let now = self.env.timer.now();
        let reads = self.read_at.get().is_some_and(|at| now - at <= EXPECTED);
        if reads && !self.is_pressed() {
            let rest = self.env.timer.sleep(rest(took, self.fullness()));
            let pressed = self.changed.until_some(|| self.is_pressed().then_some(()));
            select(pin!(rest), pin!(pressed)).await;
        }
    }

    /// The blocks at these places, in one buffer; not copied if they follow each other.
    async fn gather(&self, data: &Shared, run: &[usize]) -> Shared {
        let follow = run.windows(2).all(|pair| pair[0] + BLOCK_BYTES == pair[1]);
        if follow {
            return data.slice(run[0]..run[0] + run.len() * BLOCK_BYTES);
        }
        let mut buf = self.memory(run.len() * BLOCK_BYTES).await;
        for (block, from) in buf.chunks_mut(BLOCK_BYTES).zip(run) {
            block.copy_from_slice(&data[*from..*from + BLOCK_BYTES]);
        }
        buf.share()
    }

    /// Makes durable in the pool that all before `to` is at the origin.
    async fn note(&self, to: u64) -> IoResult {
        let _under = self.stages.enter(Stage::Note);
        while !self.state.borrow().has_room(1) {
            let may_turn = self.state.borrow().may_turn(true);
            if !may_turn {
                let room = || {
                    let state = self.state.borrow();
                    (state.has_room(1) || state.may_turn(true)).then_some(())
                };
                self.changed.until_some(room).await;
                continue;
            }
            self.turn().await?;
        }
        let number = self.append_done(Vec::new(), None, Fua::Yes, to).await;
        let ended = || {
            let complete = self.state.borrow().completed_to > number;
            (complete || self.copies.are_gone()).then_some(())
        };
        self.changed.until_some(ended).await;
        // A hole before the note would hide it, and what it frees is needed then.
        if self.state.borrow().durable_to <= number {
            self.flush_log().await?;
        }
        // Whoever trusted a lost copy would carry out again what is done.
        self.copies.losses_durable().await;
        match self.copies.are_gone() {
            true => Err(self.copies.error()),
            false => Ok(()),
        }
    }

    /// Returns once nothing is owed, or the error that is in the way.
    pub(super) async fn drain(&self) -> IoResult {
        let _under = self.stages.enter(Stage::Drain);
        self.changed.notify();
        let drained = || {
            if self.is_drained() {
                return Some(Ok(()));
            }
            let gone = self.copies.are_gone();
            gone.then(|| Err(self.copies.error()))
        };
        self.changed.until_some(drained).await
    }
}

/// The record `number` of a segment, if it begins here and is whole.
fn sound<P: Device>(bytes: &[u8], number: u64, segment: u64, log: &Inner<P>) -> Option<Record> {
    let record = Record::decode(&bytes[..BLOCK_BYTES], log.config.pool).ok()?;
    let data = bytes.get(BLOCK_BYTES..record.blocks() as usize * BLOCK_BYTES)?;
    let ours = record.number == number && record.segment == segment;
    (ours && record.log == log.config.log && record.has(data)).then_some(record)
}

fn unreadable(number: u64) -> IoError {
    let what = format!("neither copy of record {number} of the write-back log can be read");
    IoError::new(Kind::Corrupt, what)
}
