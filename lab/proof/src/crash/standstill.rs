//! An administrator at work behind the daemon: absences, snapshots, restored origins.

use super::back_end::{Reported, Since};
use super::bench::CrashBench;
use super::flushes::{flushed, forget, settle_model};
use super::report::Class;
use super::stage::CrashStage;
use crate::stamp;
use block::{Env, IoError, Lba, Nanos, SECTOR_BYTES};
use std::cell::Cell;
use std::ops::Range;

/// Time of one piece of work of the back end.
const WORK: Nanos = Nanos::from_micros(300);

/// Attempts to invalidate a volume with an origin that has losses to report, or is away.
const ATTEMPTS: u32 = 100;

/// Has the origin forget, and be away for `span`.
pub(super) async fn be_away(bench: &CrashBench, env: &Env, volume: usize, span: Nanos) {
    let state = &bench.back_end.volumes[volume];
    if state.away.replace(true) {
        return;
    }
    bench.report.borrow_mut().meet(Class::OriginAway);
    state.absences.set(state.absences.get() + 1);
    forget(bench, volume);
    bench.control.kill(bench.origins[volume]);
    env.timer.sleep(span).await;
    bench.control.revive(bench.origins[volume]);
    env.timer.sleep(Nanos(1)).await;
    state.away.set(false);
}

/// Takes a snapshot of a volume, or restores the last one. Leaves a volume alone on which another
/// administrator works.
pub(super) async fn work(
    bench: &CrashBench,
    env: &Env,
    stage: &CrashStage,
    volume: usize,
    back: bool,
) {
    let state = &bench.back_end.volumes[volume];
    if state.busy.replace(true) {
        return;
    }
    let since = bench.back_end.since(volume);
    match stage.gates[volume].device().quiesce().await {
        // Nothing is in flight: all that was acknowledged is durable.
        Ok(()) => {
            let all = bench.models[volume].borrow().begin_flush();
            // A loss that was not reported to clients may have been reported to the back end.
            if !bench.models[volume]
                .borrow()
                .knows_less(state.reported.get().losses)
            {
                flushed(bench, volume, all);
            }
            at_standstill(bench, env, stage, volume, back).await;
            if !state.closed.get() {
                let resumed = stage.gates[volume].device().resume();
                resumed.expect("it is quiesced");
            }
        }
        Err(error) => judge(bench, volume, since, &state.reported, &error),
    }
    state.busy.set(false);
}

async fn at_standstill(
    bench: &CrashBench,
    env: &Env,
    stage: &CrashStage,
    volume: usize,
    back: bool,
) {
    let state = &bench.back_end.volumes[volume];
    env.timer.sleep(WORK).await;
    let snapshot = bench.back_end.snapshots.borrow()[volume].clone();
    match snapshot.filter(|_| back) {
        None => {
            let saved = bench.models[volume].borrow().save();
            let image = bench.back_end.media[volume].save();
            bench.back_end.snapshots.borrow_mut()[volume] = Some((image, saved));
            bench.report.borrow_mut().meet(Class::Snapshot);
            env.timer.sleep(WORK).await;
        }
        Some((image, saved)) => {
            bench.back_end.media[volume].restore(&image);
            bench.models[volume].borrow_mut().restore(&saved);
            state.restored.set(true);
            env.timer.sleep(WORK).await;
            if bench.stopping.get() {
                // A daemon that is to stop closes the volume first.
                state.closed.set(true);
                stage.gates[volume].device().close().await;
                return bench.report.borrow_mut().meet(Class::StopAtStandstill);
            }
            if invalidate_now(bench, env, stage, volume).await {
                state.restored.set(false);
                bench.report.borrow_mut().meet(Class::Rollback);
            }
        }
    }
}

/// Invalidates a volume.
pub(super) async fn invalidate(bench: &CrashBench, env: &Env, stage: &CrashStage, volume: usize) {
    let state = &bench.back_end.volumes[volume];
    if !state.busy.replace(true) {
        if invalidate_now(bench, env, stage, volume).await {
            bench.report.borrow_mut().meet(Class::Invalidation);
        }
        state.busy.set(false);
    }
}

async fn invalidate_now(bench: &CrashBench, env: &Env, stage: &CrashStage, volume: usize) -> bool {
    let reported = &bench.back_end.volumes[volume].reported_invalidating;
    for _ in 0..ATTEMPTS {
        let since = bench.back_end.since(volume);
        match stage.gates[volume].device().invalidate().await {
            Ok(()) => {
                settle_model(bench, volume);
                return true;
            }
            Err(error) => judge(bench, volume, since, reported, &error),
        }
        env.timer.sleep(WORK).await;
    }
    bench.violate(format!("volume {volume} cannot be invalidated"));
    false
}

/// Checks that the origin's losses explain an error that an administrator was given. Each loss is
/// reported to administrators as to clients, once for a standstill and once for an invalidation.
fn judge(
    bench: &CrashBench,
    volume: usize,
    since: Since,
    reported: &Cell<Reported>,
    error: &IoError,
) {
    let losses = bench.models[volume].borrow().losses();
    let away = bench.back_end.was_away(volume, since);
    let now = Reported {
        losses,
        once_more: away,
    };
    let before = reported.replace(now);
    if before.losses == losses && !before.once_more && !away {
        bench.violate(format!("an administrator was given an error: {error}"));
    }
}

/// Others write all of `window`, of which the volume knows nothing now.
pub(super) fn overwrite(bench: &CrashBench, volume: usize, window: Range<u64>) {
    let value = bench.models[volume].borrow_mut().version();
    let mut bytes = vec![0; ((window.end - window.start) * SECTOR_BYTES) as usize];
    stamp::stamp(&mut bytes, window.start, value);
    bench.back_end.media[volume].write(Lba(window.start), &bytes);
    bench.models[volume].borrow_mut().overwrite(&window, value);
}
