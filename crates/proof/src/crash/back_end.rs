//! What befalls origins beside losses of power: they forget writes and go on, they
//! are away for a while, and their back end takes and restores snapshots.
//!
//! What an origin holds, now and durably, is asked of its medium, behind everything
//! that the engine sees.

use super::bench::Bench;
use super::case::Space;
use super::model::{FlushMark, Saved};
use super::report::Event;
use super::stage::Stage;
use crate::cachesim::stamp;
use block::{Env, IoError, IoResult, Lba, Nanos, SECTOR_BYTES};
use sim::{Image, Medium};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// How long the back end takes for what it does.
const WORK: Nanos = Nanos::from_micros(300);
/// Attempts to invalidate a volume whose origin has losses to tell of, or is away.
const ATTEMPTS: u32 = 100;

/// The origins from behind, by volume.
pub(super) struct BackEnd {
    media: Vec<Medium>,
    snapshots: RefCell<Vec<Option<(Image, Saved)>>>,
    volumes: Vec<State>,
}

#[derive(Default)]
struct State {
    /// Somebody works on it.
    busy: Cell<bool>,
    /// It was restored, and has not been invalidated.
    restored: Cell<bool>,
    /// The daemon stops, and has closed it at a standstill.
    closed: Cell<bool>,
    /// It answers with errors.
    away: Cell<bool>,
    /// How often it did.
    absences: Cell<u64>,
    /// How many of its losses who brings it to a standstill has been told of.
    told: Cell<Told>,
    /// And who invalidates it, whose flush may be the one that meets a loss.
    told_invalidating: Cell<Told>,
}

/// What an administrator has been told of an origin's losses.
#[derive(Clone, Copy, Default)]
struct Told {
    /// How many.
    losses: u64,
    /// It was away then, and may fail once more.
    once_more: bool,
}

/// A moment, as far as the answers of an origin go.
#[derive(Clone, Copy)]
pub(super) struct Since {
    away: bool,
    absences: u64,
}

impl BackEnd {
    pub(super) fn new(media: Vec<Medium>) -> BackEnd {
        BackEnd {
            snapshots: RefCell::new(vec![None; media.len()]),
            volumes: media.iter().map(|_| State::default()).collect(),
            media,
        }
    }

    pub(super) fn since(&self, volume: usize) -> Since {
        let state = &self.volumes[volume];
        Since {
            away: state.away.get(),
            absences: state.absences.get(),
        }
    }

    /// Whether the origin has answered with errors since then.
    fn was_away(&self, volume: usize, since: Since) -> bool {
        since.away || self.volumes[volume].absences.get() != since.absences
    }

    /// Whether a client may be given an error for what happened since then.
    pub(super) fn is_excused(&self, volume: usize, since: Since) -> bool {
        self.was_away(volume, since) || self.is_closed(volume)
    }

    /// Whether the daemon serves it no more.
    pub(super) fn is_closed(&self, volume: usize) -> bool {
        self.volumes[volume].closed.get()
    }

    /// The daemon is dead; whether a volume was restored that it had not invalidated.
    pub(super) fn end_life(&self) -> bool {
        let mut restored = false;
        for state in &self.volumes {
            restored |= state.restored.take();
            state.busy.set(false);
            state.closed.set(false);
            state.told.take();
            state.told_invalidating.take();
            state.away.set(false);
        }
        restored
    }
}

/// The bytes of each window of a volume's origin, with their first sector.
fn windows(
    bench: &Bench,
    volume: usize,
    read: impl Fn(&Medium, Lba, &mut [u8]),
) -> Vec<(u64, Vec<u8>)> {
    let space: Space = bench.case.volumes[volume];
    let window = |number| {
        let sectors = space.window(number);
        let mut bytes = vec![0; (space.each * SECTOR_BYTES) as usize];
        read(
            &bench.back_end.media[volume],
            Lba(sectors.start),
            &mut bytes,
        );
        (sectors.start, bytes)
    };
    (0..space.windows).map(window).collect()
}

/// From now on only what the origin holds may be read.
fn settle_model(bench: &Bench, volume: usize) {
    for (start, bytes) in windows(bench, volume, Medium::latest) {
        let held = bench.models[volume].borrow_mut().settle(start, &bytes);
        if let Err(what) = held {
            bench.violate(format!("the origin of volume {volume} by itself: {what}"));
        }
    }
}

/// A flush that began at `mark` was acknowledged: its origin holds it durably.
pub(super) fn flushed(bench: &Bench, volume: usize, mark: FlushMark) {
    bench.models[volume].borrow_mut().end_flush(mark);
    for (start, bytes) in windows(bench, volume, Medium::durable) {
        let held = bench.models[volume]
            .borrow_mut()
            .holds_durably(start, &bytes);
        if let Err(what) = held {
            bench.violate(format!("after a flush of volume {volume}: {what}"));
        }
    }
}

/// A write with forced unit access was acknowledged.
pub(super) fn forced(bench: &Bench, volume: usize, sectors: &Range<u64>) {
    let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
    bench.back_end.media[volume].durable(Lba(sectors.start), &mut bytes);
    let held = bench.models[volume]
        .borrow_mut()
        .holds_durably(sectors.start, &bytes);
    if let Err(what) = held {
        bench.violate(format!("after a forced write of volume {volume}: {what}"));
    }
}

/// A flush of a client, or at the end of a daemon, has ended.
pub(super) fn end_flush(
    bench: &Bench,
    volume: usize,
    (mark, since): (FlushMark, Since),
    result: IoResult,
) {
    let Err(error) = result else {
        return flushed(bench, volume, mark);
    };
    let away = bench.back_end.was_away(volume, since);
    if !excused(bench, volume, mark, since) {
        let what = "a flush failed, and its origin had no loss to tell of";
        return bench.violate(format!("{what}: {error}"));
    }
    bench.report.borrow_mut().meet(Event::LossTold);
    let settled = bench.models[volume].borrow_mut().tell(mark, away);
    // What was restored may be cached as it was, until it is invalidated.
    if settled && !bench.back_end.volumes[volume].restored.get() {
        settle_model(bench, volume);
    }
}

pub(super) fn begin_flush(bench: &Bench, volume: usize) -> (FlushMark, Since) {
    let mark = bench.models[volume].borrow().begin_flush();
    (mark, bench.back_end.since(volume))
}

fn excused(bench: &Bench, volume: usize, mark: FlushMark, since: Since) -> bool {
    bench.models[volume].borrow().may_fail(mark) || bench.back_end.was_away(volume, since)
}

/// The origin forgets, and goes on at once.
pub(super) fn forget(bench: &Bench, volume: usize) {
    bench.control.forget(bench.origins[volume]);
    bench.models[volume].borrow_mut().forget();
}

/// The origin forgets, and is away for `span`.
pub(super) async fn be_away(bench: &Bench, env: &Env, volume: usize, span: Nanos) {
    let state = &bench.back_end.volumes[volume];
    if state.away.replace(true) {
        return;
    }
    bench.report.borrow_mut().meet(Event::OriginAway);
    state.absences.set(state.absences.get() + 1);
    forget(bench, volume);
    bench.control.kill(bench.origins[volume]);
    env.timer.sleep(span).await;
    bench.control.revive(bench.origins[volume]);
    env.timer.sleep(Nanos(1)).await;
    state.away.set(false);
}

/// Takes a snapshot of a volume, or puts back one that was taken; a volume on which
/// somebody else works is left alone.
pub(super) async fn work(bench: &Bench, env: &Env, stage: &Stage, volume: usize, back: bool) {
    let state = &bench.back_end.volumes[volume];
    if state.busy.replace(true) {
        return;
    }
    let since = bench.back_end.since(volume);
    match stage.gates[volume].device().quiesce().await {
        // Nothing is in flight: all that was acknowledged is durable.
        Ok(()) => {
            let all = bench.models[volume].borrow().begin_flush();
            // What clients have not been told of, the back end may have been.
            if !bench.models[volume]
                .borrow()
                .knows_less(state.told.get().losses)
            {
                flushed(bench, volume, all);
            }
            at_standstill(bench, env, stage, volume, back).await;
            if !state.closed.get() {
                let resumed = stage.gates[volume].device().resume();
                resumed.expect("it stands still");
            }
        }
        Err(error) => judge(bench, volume, since, &state.told, &error),
    }
    state.busy.set(false);
}

async fn at_standstill(bench: &Bench, env: &Env, stage: &Stage, volume: usize, back: bool) {
    let state = &bench.back_end.volumes[volume];
    env.timer.sleep(WORK).await;
    let snapshot = bench.back_end.snapshots.borrow()[volume].clone();
    match snapshot.filter(|_| back) {
        None => {
            let saved = bench.models[volume].borrow().save();
            let image = bench.back_end.media[volume].save();
            bench.back_end.snapshots.borrow_mut()[volume] = Some((image, saved));
            bench.report.borrow_mut().meet(Event::Snapshot);
            env.timer.sleep(WORK).await;
        }
        Some((image, saved)) => {
            bench.back_end.media[volume].restore(&image);
            bench.models[volume].borrow_mut().restore(&saved);
            state.restored.set(true);
            env.timer.sleep(WORK).await;
            if bench.stopping.get() {
                // What a daemon does first that is to stop.
                state.closed.set(true);
                stage.gates[volume].device().close().await;
                return bench.report.borrow_mut().meet(Event::StopAtStandstill);
            }
            if invalidate_now(bench, env, stage, volume).await {
                state.restored.set(false);
                bench.report.borrow_mut().meet(Event::Rollback);
            }
        }
    }
}

/// Invalidates a volume.
pub(super) async fn invalidate(bench: &Bench, env: &Env, stage: &Stage, volume: usize) {
    let state = &bench.back_end.volumes[volume];
    if !state.busy.replace(true) {
        if invalidate_now(bench, env, stage, volume).await {
            bench.report.borrow_mut().meet(Event::Invalidation);
        }
        state.busy.set(false);
    }
}

async fn invalidate_now(bench: &Bench, env: &Env, stage: &Stage, volume: usize) -> bool {
    let told = &bench.back_end.volumes[volume].told_invalidating;
    for _ in 0..ATTEMPTS {
        let since = bench.back_end.since(volume);
        match stage.gates[volume].device().invalidate().await {
            Ok(()) => {
                settle_model(bench, volume);
                return true;
            }
            Err(error) => judge(bench, volume, since, told, &error),
        }
        env.timer.sleep(WORK).await;
    }
    bench.violate(format!("volume {volume} cannot be invalidated"));
    false
}

/// Whether the origin is to blame for what an administrator was told, who is told of
/// what it lost as a client is, for a standstill and an invalidation each.
fn judge(bench: &Bench, volume: usize, since: Since, told: &Cell<Told>, error: &IoError) {
    let losses = bench.models[volume].borrow().losses();
    let away = bench.back_end.was_away(volume, since);
    let now = Told {
        losses,
        once_more: away,
    };
    let before = told.replace(now);
    if before.losses == losses && !before.once_more && !away {
        bench.violate(format!("an administrator was given an error: {error}"));
    }
}

/// Others write all of `window`, of which the volume knows nothing now.
pub(super) fn overwrite(bench: &Bench, volume: usize, window: Range<u64>) {
    let value = bench.models[volume].borrow_mut().version();
    let mut bytes = vec![0; ((window.end - window.start) * SECTOR_BYTES) as usize];
    stamp::stamp(&mut bytes, window.start, value);
    bench.back_end.media[volume].write(Lba(window.start), &bytes);
    bench.models[volume].borrow_mut().overwrite(&window, value);
}
