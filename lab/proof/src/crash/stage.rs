//! Opens and closes the cache under test: the only file here that knows how a daemon assembles a
//! cache.

use super::bench::CrashBench;
use super::case::{Leaf, Setting};
use super::flushes;
use super::neighbours;
use crate::model::Space;
use block::{BoxDevice, Device, Fua, Gate, IoErrorKind, IoResult, Lba, Nanos, Sectors, TargetId};
use cache::{Cache, Config, DeviceId, Durability, NewPoolDevice, Volume, VolumeConfig};
use shard::Local;
use sim::SimDriver;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Room on a pool disk beside the lines that a case wants on it: superblocks, bitmap, log, maps and
/// policy hints.
pub(super) const METADATA: Sectors = Sectors(96 * 8);
/// Room besides for table areas of 40 volumes.
pub(super) const TABLES: Sectors = Sectors(6 * 128 * 8);
/// Interval at which stuck operations are released while a pool is opened: no client waits for the
/// opening, but the campaign does.
const TIMEOUT: Nanos = Nanos::from_millis(5);
/// Time limit of a pool's end, whatever its disks do.
const CLOSE_MAX: Nanos = Nanos::from_secs(1);
/// Attempts to open a pool with disks that fail now and then, before the pool is formatted.
const ATTEMPTS: u32 = 50;

/// A cache and its volumes, open.
pub(super) struct CrashStage {
    /// One for each pool.
    pub(super) caches: Vec<Cache<Leaf>>,
    pub(super) gates: Vec<Gate<Volume<Leaf>>>,
}

/// The name of a disk of the pool.
pub(super) fn pool_name(disk: usize) -> String {
    format!("pool-{disk}")
}

fn leaf(local: &Local<SimDriver>, target: TargetId) -> Leaf {
    local.disk(target).expect("a disk")
}

fn device(bench: &CrashBench, local: &Local<SimDriver>, disk: usize) -> NewPoolDevice<Leaf> {
    let leaf = leaf(local, bench.pool[disk]);
    NewPoolDevice::whole(leaf, format!("controller-{}", disk % 2))
}

/// Gives the witness these bytes.
pub(super) async fn restore_witness(bench: &CrashBench, local: &Local<SimDriver>, bytes: &[u8]) {
    let mut buf = local.env().pool.get(bytes.len()).await;
    buf.copy_from_slice(bytes);
    let witness = leaf(local, bench.witnesses[0]);
    let written = witness.write(Lba(0), buf.share(), Fua::Yes).await;
    written.expect("the witness has no faults");
}

/// Puts a disk into the pool that was not there when the pool was opened.
pub(super) async fn join(
    bench: &CrashBench,
    local: &Local<SimDriver>,
    stage: &CrashStage,
    disk: usize,
) -> IoResult<DeviceId> {
    let cache = &stage.caches[bench.case.pool_of(disk)];
    let joined = cache.join(device(bench, local, disk), bench.uuid());
    unstuck(bench, local, joined).await
}

/// Opens the pool with the disks that are plugged in, and every volume.
///
/// A pool with faulty disks may be refused: both copies of a superblock are bad, or a disk cannot
/// be read. An administrator would then have the pool formatted.
pub(super) async fn open(bench: &CrashBench, local: &Local<SimDriver>) -> CrashStage {
    for number in 1.. {
        let format = number > ATTEMPTS;
        let error = match unstuck(bench, local, attempt(bench, local, format)).await {
            Ok(stage) => {
                bench.formed.set(true);
                return stage;
            }
            Err(error) => error,
        };
        let in_vain = number >= ATTEMPTS;
        assert!(
            !in_vain || bench.may_be_refused(),
            "the pool cannot be opened: {error}"
        );
        let blamed = (0..bench.pool.len()).find(|d| error.device() == Some(&*pool_name(*d)));
        if let (true, Some(disk)) = (in_vain && error.kind() == IoErrorKind::Media, blamed) {
            bench.plug(disk, false);
        }
        local.env().timer.sleep(Nanos(1000)).await;
    }
    unreachable!("attempts are without end")
}

async fn attempt(
    bench: &CrashBench,
    local: &Local<SimDriver>,
    format: bool,
) -> IoResult<CrashStage> {
    let mut stage = CrashStage {
        caches: Vec::new(),
        gates: Vec::new(),
    };
    let fitted = fit_out(bench, local, format, &mut stage).await;
    if fitted.is_err() {
        // No part of a failed attempt is at work when the next one begins.
        for gate in &stage.gates {
            gate.device().close().await;
        }
        for cache in &stage.caches {
            let closed = cache.close();
            local.env().timer.timeout(CLOSE_MAX, closed).await;
        }
    }
    fitted.map(|()| stage)
}

async fn fit_out(
    bench: &CrashBench,
    local: &Local<SimDriver>,
    format: bool,
    stage: &mut CrashStage,
) -> IoResult {
    let CrashStage { caches, gates } = stage;
    for pool in 0..bench.case.pools {
        caches.push(open_pool(bench, local, pool, format).await?);
    }
    // A volume that is not here any more was written elsewhere.
    for (pool, cache) in caches.iter().enumerate() {
        for (name, _) in cache.remembered() {
            let mut volumes = bench.setting().iter().enumerate();
            let is_here =
                |(volume, s): (usize, &Setting)| s.pool == pool && volume_name(volume, s) == name;
            if !neighbours::is_one(bench, &name) && !volumes.any(is_here) {
                cache.forget(&name);
            }
        }
        cache.remember().await;
    }
    for (volume, setting) in bench.setting().iter().enumerate() {
        let space = bench.case.volumes[volume];
        let reach = Space {
            windows: setting.windows,
            ..space
        };
        let config = VolumeConfig {
            name: volume_name(volume, setting).into(),
            sectors: (reach != space).then(|| reach.sectors()),
            mode: bench.mode(volume),
        };
        let origin = BoxDevice::new(leaf(local, bench.origins[volume]));
        // The volatile cache of an earlier daemon may be lost without an error.
        origin.flush().await?;
        let opened = caches[setting.pool].add_volume(config, origin)?;
        gates.push(Gate::new(opened, local.env()));
    }
    neighbours::greet(bench, local, &caches[0])?;
    neighbours::remember(bench, &caches[0]).await;
    for cache in &caches[1..] {
        cache.remember().await;
    }
    Ok(())
}

fn volume_name(volume: usize, setting: &Setting) -> String {
    format!("volume-{volume}-{}", setting.name)
}

async fn open_pool(
    bench: &CrashBench,
    local: &Local<SimDriver>,
    pool: usize,
    format: bool,
) -> IoResult<Cache<Leaf>> {
    let case = &bench.case;
    let config = Config {
        line_bytes: case.line_bytes,
        hit_latency_max: case.hit_latency_max,
        sequential_bytes: None,
        commit_period: case.commit_period,
        mark_idle_periods: case.mark_idle_periods,
        // A fifth, of which none has found a fault that is a test.
        trims_discarded: case.seed % 5 == 4,
        ..Config::default()
    };
    let policy = policy::registry::build(case.policy, 0, case.seed).expect("registered");
    let durability = Durability {
        label: format!("pool-{pool}"),
        host: "laboratory".into(),
        witness: Some(BoxDevice::new(leaf(local, bench.witnesses[pool]))),
        uuids: Box::new(bench.uuids()),
        overwrite: format,
        cold: false,
    };
    let plugged: Vec<usize> = (0..bench.pool.len())
        .filter(|disk| case.pool_of(*disk) == pool && bench.is_plugged(*disk))
        .collect();
    let devices = plugged.iter().map(|disk| device(bench, local, *disk));
    let env = local.env();
    let (cache, opened) = Cache::open(config, policy, env, durability, devices.collect()).await?;
    for report in opened.devices {
        bench.put(plugged[report.at], Some(report.id));
    }
    Ok(cache)
}

/// Ends the work that [`open`] began, in order, as far as a daemon waits for that.
pub(super) async fn close(bench: &CrashBench, local: &Local<SimDriver>, stage: CrashStage) {
    for (volume, gate) in stage.gates.iter().enumerate() {
        if !bench.back_end.is_closed(volume) {
            let begun = flushes::begin_flush(bench, volume);
            let flushed = gate.device().flush().await;
            flushes::end_flush(bench, volume, begun, flushed);
            gate.device().close().await;
        }
    }
    let timer = local.env().timer;
    for cache in &stage.caches {
        let closed = timer.timeout(CLOSE_MAX, cache.close());
        let closed = unstuck(bench, local, closed).await;
        if closed.is_none() {
            bench.violate("a pool does not end".into());
        }
    }
}

/// Runs `work`, releasing the operations that disks hold.
async fn unstuck<T>(
    bench: &CrashBench,
    local: &Local<SimDriver>,
    work: impl Future<Output = T>,
) -> T {
    let timer = local.env().timer;
    let mut work = pin!(work);
    loop {
        let mut pause = pin!(timer.sleep(TIMEOUT));
        let done = poll_fn(|cx| {
            if let Poll::Ready(value) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            pause.as_mut().poll(cx).map(|()| None)
        });
        if let Some(value) = done.await {
            return value;
        }
        bench.release_stuck();
    }
}
