//! One life of a daemon: the daemon opens, clients take steps from the script, and the daemon ends
//! in order unless the power goes first.

use super::back_end::Since;
use super::bench::{CrashBench, LastLook, LifePhase};
use super::case::CrashStep;
use super::flushes;
use super::neighbours;
use super::stage::{self, CrashStage};
use super::standstill;
use crate::model::Space;
use crate::stamp::{self, ANYTHING, Value, ZERO};
use block::{Boundary, Device, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos, SECTOR_BYTES};
use cache::{Cache, Counter};
use futures_util::future::join_all;
use shard::Local;
use sim::SimDriver;
use std::ops::Range;
use std::rc::Rc;

/// Time that the end waits before releasing stuck operations.
const TIMEOUT: Nanos = Nanos::from_millis(20);
/// Sectors compared at a time when everything is read back.
const EXAMINED: u64 = 64;

/// Runs the life until the script is used up.
pub(super) async fn live(bench: Rc<CrashBench>, local: Local<SimDriver>) {
    let back = bench.witness_back.take();
    if let Some(bytes) = back {
        stage::restore_witness(&bench, &local, &bytes).await;
    }
    let stage = stage::open(&bench, &local).await;
    bench.opened(&stage.caches);
    overwrite_hidden(&bench);
    let _last_look = LastLook(bench.clone());
    let (recovering, caches) = (bench.clone(), stage.caches.clone());
    local.env().spawn.spawn(async move {
        join_all(caches.iter().map(Cache::warmed)).await;
        recovering.phase.set(LifePhase::Serving);
    });
    let clients = (0..bench.case.clients).map(|_| client(&bench, &local, &stage));
    join_all(clients).await;
    settle(&bench, &local, &stage).await;
    if bench.is_scripted_out() && !bench.has_failed() {
        // Twice: first from any device, then from the pool as far as the first pass filled it.
        for _ in 0..2 {
            let served = |volume: &usize| !bench.back_end.is_closed(*volume);
            for volume in (0..bench.origins.len()).filter(served) {
                examine(&bench, &local, &stage, volume).await;
            }
            settle(&bench, &local, &stage).await;
        }
    }
    for cache in &stage.caches {
        let hits = cache.counters().get(Counter::ReadsHit);
        bench.report.borrow_mut().count("hits", hits);
    }
    bench.phase.set(LifePhase::Closing);
    stage::close(&bench, &local, stage).await;
}

async fn client(bench: &Rc<CrashBench>, local: &Local<SimDriver>, stage: &CrashStage) {
    while let Some(number) = bench.next_step() {
        bench.report.borrow_mut().operations += 1;
        let step = &bench.case.steps[number];
        perform(bench, local, stage, step).await;
        bench.look(local.env().timer.now());
    }
}

async fn perform(
    bench: &Rc<CrashBench>,
    local: &Local<SimDriver>,
    stage: &CrashStage,
    step: &CrashStep,
) {
    let env = local.env();
    let offset = |sectors: &Range<u64>| sectors.start * SECTOR_BYTES;
    let bytes = |sectors: &Range<u64>| (sectors.end - sectors.start) * SECTOR_BYTES;
    let reaches = |volume: &usize, sectors: &Range<u64>| {
        Space::number(sectors.start) < bench.setting()[*volume].windows
    };
    match step {
        CrashStep::Read(volume, sectors)
        | CrashStep::Write(volume, sectors, _)
        | CrashStep::Zero(volume, sectors)
        | CrashStep::Discard(volume, sectors)
            if !reaches(volume, sectors) => {}
        CrashStep::Read(volume, sectors) => {
            read(bench, stage, *volume, sectors).await;
        }
        CrashStep::Write(volume, sectors, fua) => {
            let version = bench.models[*volume].borrow_mut().version();
            let mut buf = env.pool.get(bytes(sectors) as usize).await;
            stamp::stamp(&mut buf, sectors.start, version);
            let force = if *fua { Fua::Yes } else { Fua::No };
            let write = stage.gates[*volume].write(offset(sectors), buf.share(), force);
            change(bench, *volume, sectors, version, *fua, write).await;
        }
        CrashStep::Zero(volume, sectors) => {
            let zero = stage.gates[*volume].zero(offset(sectors), bytes(sectors));
            change(bench, *volume, sectors, ZERO, false, zero).await;
        }
        CrashStep::Discard(volume, sectors) => {
            let discard = stage.gates[*volume].discard(offset(sectors), bytes(sectors));
            change(bench, *volume, sectors, ANYTHING, false, discard).await;
        }
        CrashStep::Flush(volume) => {
            let begun = flushes::begin_flush(bench, *volume);
            let flushed = stage.gates[*volume].flush().await;
            flushes::end_flush(bench, *volume, begun, flushed);
        }
        CrashStep::Mode(volume, mode) => {
            bench.set_mode(*volume, *mode);
            stage.gates[*volume].device().set_mode(*mode);
        }
        CrashStep::Unplug(disk) => bench.plug(*disk, false),
        CrashStep::Plug(disk) => plug(bench, local, stage, *disk).await,
        CrashStep::Pause(span) => env.timer.sleep(*span).await,
        CrashStep::Forget(volume) => flushes::forget(bench, *volume),
        CrashStep::Away(volume, span) => standstill::be_away(bench, &env, *volume, *span).await,
        CrashStep::Hang(disk) => bench.hang(*disk),
        CrashStep::Snapshot(volume) => standstill::work(bench, &env, stage, *volume, false).await,
        CrashStep::Rollback(volume) => standstill::work(bench, &env, stage, *volume, true).await,
        CrashStep::Invalidate(volume) => standstill::invalidate(bench, &env, stage, *volume).await,
        CrashStep::Renew => neighbours::renew_durably(bench, &stage.caches[0]).await,
        CrashStep::Stop => bench.stopping.set(true),
    }
}

/// Puts a disk that is not in the pool, or was ejected, back into the pool, unless another client
/// does so already.
async fn plug(bench: &Rc<CrashBench>, local: &Local<SimDriver>, stage: &CrashStage, disk: usize) {
    if !bench.plugging[disk].replace(true) {
        put_back(bench, local, stage, disk).await;
        bench.plugging[disk].set(false);
    }
}

async fn put_back(
    bench: &Rc<CrashBench>,
    local: &Local<SimDriver>,
    stage: &CrashStage,
    disk: usize,
) {
    let (id, cache) = (bench.place(disk), &stage.caches[bench.case.pool_of(disk)]);
    let healthy = |id| {
        let devices = cache.devices();
        let found = devices.into_iter().find(|d| d.id == id);
        found.is_some_and(|d| d.state == cache::DeviceState::Online)
    };
    if bench.is_plugged(disk) && id.is_some_and(healthy) {
        return;
    }
    bench.put(disk, None);
    if let Some(id) = id {
        let removed = cache.remove_device(id).await;
        removed.expect("it is in the pool");
    }
    bench.release(disk);
    bench.plug(disk, true);
    // The world learns of the disk when this task pauses.
    local.env().timer.sleep(Nanos(1)).await;
    // A disk that fails meanwhile is left out.
    if let Ok(id) = stage::join(bench, local, stage, disk).await {
        bench.put(disk, Some(id));
    }
}

async fn change(
    bench: &CrashBench,
    volume: usize,
    sectors: &Range<u64>,
    value: Value,
    durable: bool,
    work: impl Future<Output = IoResult>,
) {
    bench.models[volume].borrow_mut().begin(sectors, value);
    let since = bench.back_end.since(volume);
    let result = work.await;
    let late = |error: &IoError| error.kind() == IoErrorKind::Timeout;
    if result.as_ref().is_err_and(late) && bench.case.origin_late > 0.0 {
        let model = &mut *bench.models[volume].borrow_mut();
        model.abandon(sectors, value);
        // A flush that was part of the write may have failed.
        return if durable {
            model.allow_loss()
        };
    }
    let done = judge(bench, volume, since, result);
    bench.models[volume]
        .borrow_mut()
        .end(sectors, value, done, durable);
    if done && durable {
        flushes::forced(bench, volume, sectors);
    }
}

async fn read(bench: &CrashBench, stage: &CrashStage, volume: usize, sectors: &Range<u64>) {
    let id = bench.models[volume].borrow_mut().begin_read(sectors);
    let since = bench.back_end.since(volume);
    let len = (sectors.end - sectors.start) * SECTOR_BYTES;
    let gate = &stage.gates[volume];
    let answer = gate.read(sectors.start * SECTOR_BYTES, len as usize).await;
    let bytes = answer.as_deref().ok();
    let right = bench.models[volume].borrow_mut().end_read(id, bytes);
    if let Err(what) = right {
        bench.violate(format!(
            "a read of sectors {sectors:?} of volume {volume}: {what}"
        ));
    }
    judge(bench, volume, since, answer.map(drop));
}

/// True if `result` is a success. Only operations on an origin that was away may fail.
fn judge(bench: &CrashBench, volume: usize, since: Since, result: IoResult) -> bool {
    let Err(error) = result else { return true };
    if !bench.back_end.is_excused(volume, since) {
        bench.violate(format!("a client was given an error: {error}"));
    }
    false
}

/// Others write where a volume that is smaller than its origin does not reach.
fn overwrite_hidden(bench: &CrashBench) {
    let volumes = bench.setting().iter().zip(&bench.case.volumes);
    for (volume, (setting, space)) in volumes.enumerate() {
        for hidden in setting.windows..space.windows {
            standstill::overwrite(bench, volume, space.window(hidden));
        }
    }
}

/// Waits until nothing is in flight, releasing stuck operations.
async fn settle(bench: &CrashBench, local: &Local<SimDriver>, stage: &CrashStage) {
    let timer = local.env().timer;
    for cache in &stage.caches {
        while timer.timeout(TIMEOUT, cache.settle()).await.is_none() {
            if bench.is_any_hung() {
                break;
            }
            bench.release_stuck();
        }
        cache.check();
    }
}

/// All of a volume equals its origin, and is allowed.
async fn examine(bench: &CrashBench, local: &Local<SimDriver>, stage: &CrashStage, volume: usize) {
    let origin = local.disk(bench.origins[volume]).expect("a disk");
    let space = bench.case.volumes[volume];
    let reach = bench.setting()[volume].windows;
    let windows = (0..reach).map(|number| space.window(number));
    let runs = windows.flat_map(|window| {
        let end = window.end;
        let starts = window.step_by(EXAMINED as usize);
        starts.map(move |start| start..(start + EXAMINED).min(end))
    });
    for sectors in runs {
        let start = sectors.start;
        read(bench, stage, volume, &sectors).await;
        let len = ((sectors.end - start) * SECTOR_BYTES) as usize;
        let seen = stage.gates[volume].read(start * SECTOR_BYTES, len).await;
        let (raw, held) = origin
            .read(Lba(start), local.env().pool.get(len).await)
            .await;
        let certain = bench.models[volume].borrow_mut().is_certain(&sectors);
        if let (Ok(seen), Ok(()), true) = (seen, held, certain)
            && seen[..] != raw[..]
        {
            bench.violate(format!(
                "volume {volume} differs from its origin near sector {start}"
            ));
        }
    }
}
