//! The cleaner: writes dirty data back to the origin, oldest first.
//!
//! One round takes a [`OriginLoad`], makes its records durable in the pool, and commits it to the
//! journal, if there is one. Then the newest version of each block goes to the origin, by address;
//! the origin is flushed, and `written_back_to` made durable. Only then the next round begins.
//!
//! Invariants:
//!     on the origin ⟹ durable in the pool before
//!     a load begins ⟹ the one before it is at the origin, durably, and the pool records that
//!     a version is left out ⟹ the same load carries a later one
//!
//! Not here: the contents of a load (`load`).

use super::WriteBackShared;
use super::index::LogIndex;
use super::journaling::Journaled;
use super::load::OriginLoad;
use super::pace::{HALF, seconds};
use super::share::{EXPECTED, rest};
use super::stage::LogStage;
use block::{Device, Fua, IoResult, Nanos};
use futures_util::future::{join_all, select};
use layout::{BLOCK_BYTES, Became};
use std::ops::Range;
use std::pin::pin;

/// Pause after an error of the origin: the first, and the longest.
const BACKOFF: [Nanos; 2] = [Nanos::from_secs(1), Nanos::from_secs(60)];
/// Longest such pause while something waits for the cleaner.
const BACKOFF_PRESSED: Nanos = Nanos::from_secs(4);
/// Writes in flight to the origin beside clients that read from the origin.
const DEPTH_BESIDE: usize = 4;
/// Writes in flight to the origin without such clients, where a disk orders them.
const DEPTH_ALONE: usize = 16;

/// Blocks of a cleared run that go to the origin at once: 4 MiB, or a 256th of the run if that is
/// more.
const CLEAR_BLOCKS: u64 = 4 << 20 >> BLOCK_BYTES.trailing_zeros();
const CLEAR_PARTS: u64 = 256;

pub(super) async fn run<P: Device>(log: &WriteBackShared<P>) {
    let mut backoff = BACKOFF[0];
    // The rest of a load after an error: only that is tried again.
    let mut load = None;
    loop {
        let changed = &log.changed;
        let next = || log.closing.get() || log.may_clean() || log.may_settle();
        changed.until_some(|| next().then_some(())).await;
        if log.closing.get() {
            break;
        }
        if log.may_settle() {
            log.settle().await;
            continue;
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
        let left = |load: &Option<OriginLoad>| load.as_ref().map(|load| load.left.len());
        let before = left(&load);
        match log.clean(&mut load).await {
            Ok(()) => backoff = BACKOFF[0],
            Err(error) => {
                *log.trouble.borrow_mut() = Some(error);
                changed.notify();
                if left(&load) != before {
                    backoff = BACKOFF[0];
                }
                log.back_off(backoff).await;
                backoff = BACKOFF[1].min(backoff + backoff);
                continue;
            }
        }
        *log.trouble.borrow_mut() = None;
    }
}

impl<P: Device> WriteBackShared<P> {
    fn may_clean(&self) -> bool {
        let state = self.state.borrow();
        state.written_back_to < state.completed_to.min(state.last_write_end)
            && !self.copies.are_gone()
    }

    /// True if all dirty data was written back after the loss of one copy.
    fn may_settle(&self) -> bool {
        let alone = self.copies.online().count() == 1 && self.copies.are_losses_durable();
        let open = self.copies.standing.wants_dirty();
        alone && self.is_drained() && open && !self.sealed.get()
    }

    /// Records for later incarnations that nothing is dirty, and nothing will be: they need no copy
    /// then.
    async fn settle(&self) {
        if self.retire_journal().await.is_ok() {
            let standing = &self.copies.standing;
            standing.want(|wanted| wanted.may_be_dirty = false);
        }
    }

    async fn back_off(&self, pause: Nanos) {
        let first = pause.min(BACKOFF_PRESSED);
        let wait = self.env.timer.sleep(first);
        let closing = self.changed.until_some(|| self.closing.get().then_some(()));
        select(pin!(wait), pin!(closing)).await;
        self.pause(pause - first).await;
    }

    /// Sleeps for `span`, unless work presses.
    async fn pause(&self, span: Nanos) {
        let rest = self.env.timer.sleep(span);
        let pressed = self.changed.until_some(|| self.is_pressed().then_some(()));
        select(pin!(rest), pin!(pressed)).await;
    }

    fn is_urgent(&self) -> bool {
        self.is_pressed() || self.fullness() > HALF
    }

    /// True if the cleaner has to hurry: on closing, retirement, a drain, a waiting write or a lost
    /// copy.
    fn is_pressed(&self) -> bool {
        self.closing.get()
            || self.retiring.get()
            || self.pressed.get() > 0
            || self.stages.is(LogStage::Drain)
            || !self.copies.are_both()
    }

    /// Writes back `kept`, or the next load, which is kept after a failure.
    async fn clean(&self, kept: &mut Option<OriginLoad>) -> IoResult {
        let load = match kept {
            Some(load) => load,
            None => kept.insert(self.load().await?),
        };
        let begun = self.env.timer.now();
        let to = load.next.number;
        {
            let state = &mut *self.state.borrow_mut();
            if load.interval == state.interval {
                state.close_interval();
            }
        }
        if self.state.borrow().durable_to < to {
            self.flush_log().await?;
        }
        assert!(self.state.borrow().durable_to >= to);
        if !load.committed {
            match self.commit(load).await? {
                Journaled::Committed => load.committed = true,
                Journaled::Forsaken => {
                    *kept = None;
                    return Ok(());
                }
            }
        }
        let _redoes = load.redone.then(|| self.stages.enter(LogStage::Redo));
        let _skips = load.skips().then(|| self.stages.enter(LogStage::Skip));
        let carried = self.write_back_load(load).await;
        if carried.is_err() {
            load.took += self.env.timer.now() - begun;
        }
        carried?;
        self.note(to).await?;
        let state = &mut *self.state.borrow_mut();
        state.index.forget(&load.newest);
        state.done(load.next);
        if state.written_back_to < state.last_write_end {
            let took = load.took + (self.env.timer.now() - begun) - load.rested;
            let mut pace = self.pace.borrow_mut();
            pace.carried(load.blocks, load.carries(), took);
        }
        *kept = None;
        self.changed.notify();
        Ok(())
    }

    /// Writes the rest of a load back, durably.
    async fn write_back_load(&self, load: &mut OriginLoad) -> IoResult {
        {
            let _under = self.stages.enter(LogStage::Apply);
            self.write_back_cleared(&load.newest, &self.origin).await?;
            while !load.left.is_empty() {
                self.write_back_some(load).await?;
            }
        }
        if self.origin.geometry().volatile {
            let _under = self.stages.enter(LogStage::OriginFlush);
            let flushed = self.origin.flush().await;
            if flushed.is_err() {
                // A failed flush may have lost any part of the load.
                load.begin();
            }
            flushed?;
        }
        Ok(())
    }

    pub(super) async fn write_back_cleared(&self, newest: &LogIndex, to: &impl Device) -> IoResult {
        for (blocks, became) in newest.cleared() {
            // In parts, so that `carried` shows the progress.
            let most = CLEAR_BLOCKS.max((blocks.end - blocks.start) / CLEAR_PARTS);
            let mut start = blocks.start;
            while start < blocks.end {
                let end = blocks.end.min(start + most);
                let at = Self::extent(start..end);
                match became {
                    Became::Discarded => to.discard(at).await?,
                    _ => to.zero(at).await?,
                }
                self.carried.set(self.carried.get() + (end - start));
                start = end;
            }
        }
        Ok(())
    }

    /// Writes back the next runs of a load, at once.
    async fn write_back_some(&self, load: &mut OriginLoad) -> IoResult {
        let begun = self.env.timer.now();
        let depth = match self.gives_way() {
            true => DEPTH_BESIDE,
            false => DEPTH_ALONE,
        };
        let next = depth.min(load.left.len());
        let runs: Vec<_> = load.left.drain(..next).collect();
        let works = runs
            .iter()
            .map(|run| self.write_back_run(&load.newest, run.clone(), &self.origin));
        let mut result = Ok(());
        for (run, carried) in runs.iter().zip(join_all(works).await) {
            if carried.is_ok() {
                self.carried.set(self.carried.get() + (run.end - run.start));
            } else {
                load.left.push_front(run.clone());
                result = carried;
            }
        }
        let ended = self.env.timer.now();
        self.give_way(ended - begun).await;
        load.rested += self.env.timer.now() - ended;
        result
    }

    /// Writes back one run. Each run has memory of its own only, so that no run waits for the
    /// memory of another.
    pub(super) async fn write_back_run(
        &self,
        newest: &LogIndex,
        run: Range<u64>,
        to: &impl Device,
    ) -> IoResult {
        let at = Self::extent(run.clone());
        let buf = self.memory(at.len.bytes() as usize).await;
        let (buf, read) = self.read_pieces(newest.pieces(run), buf).await;
        read?;
        to.write(at.start, buf.share(), Fua::No).await
    }

    /// True if clients read from the origin, and nothing presses.
    fn gives_way(&self) -> bool {
        let now = self.env.timer.now();
        let reads = self.read_at.get().is_some_and(|at| now - at <= EXPECTED);
        reads && !self.is_pressed()
    }

    /// Leaves the origin to clients that read from it, unless other work presses.
    async fn give_way(&self, took: Nanos) {
        if self.gives_way() {
            self.pause(rest(took, self.fullness())).await;
        }
    }

    /// Makes durable in the pool that all records before `to` are at the origin.
    async fn note(&self, to: u64) -> IoResult {
        let _under = self.stages.enter(LogStage::Note);
        while !self.state.borrow().has_room(1) {
            let may_turn = self.state.borrow().may_turn(true);
            if !may_turn {
                let room = || {
                    let state = self.state.borrow();
                    let room = state.has_room(1) || state.may_turn(true);
                    (room || self.copies.are_gone()).then_some(())
                };
                self.changed.until_some(room).await;
                if self.copies.are_gone() {
                    return Err(self.copies.error());
                }
                continue;
            }
            self.start_segment().await?;
        }
        let number = self.append_note(to).await;
        let ended = || {
            let complete = self.state.borrow().completed_to > number;
            (complete || self.copies.are_gone()).then_some(())
        };
        self.changed.until_some(ended).await;
        // A hole before the note would hide it, and an opening would need the segments that it
        // frees.
        if self.state.borrow().durable_to <= number {
            self.flush_log().await?;
        }
        match self.copies.are_gone() {
            true => Err(self.copies.error()),
            false => Ok(()),
        }
    }

    /// Returns once the origin can take the dirty data within `span`, or the error in the way.
    pub(super) async fn drain_to(&self, span: Nanos) -> IoResult {
        let _under = self.stages.enter(LogStage::Drain);
        self.changed.notify();
        let is_little = || {
            let rate = self.pace.borrow().origin_rate().unwrap_or(0.0);
            self.state.borrow().index.changes() as f64 <= rate * seconds(span)
        };
        let drained = || {
            if self.is_drained() || span > Nanos::ZERO && is_little() {
                return Some(Ok(()));
            }
            let gone = self.copies.are_gone();
            let error = gone.then(|| self.copies.error());
            error.or_else(|| self.refusal()).map(Err)
        };
        self.changed.until_some(drained).await
    }
}
