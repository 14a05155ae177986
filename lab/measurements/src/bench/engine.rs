//! The engine on a real disk, without NBD: 4 KiB hits beside fio's io_uring engine on the very file
//! of the pool, and under one policy beside another.

use super::fio::{self, FioLoad};
use super::hits::POLICIES;
use super::reads::{cpu_time, make_file, random_reads};
use super::{BenchRow, Goal, alone, paired};
use block::{BoxDevice, Device, Driver, IoResult, Lba, Nanos, Sectors};
use cache::{Cache, CacheMode, Config, Counter, NewPoolDevice, Volume, VolumeConfig};
use shard::{Local, ShardDisk, run_alone};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use uring::{DiskOptions, Options, Uring, UringDriver};

/// Bytes of the cached volume: small enough to be warm in a second or two.
pub(super) const VOLUME_BYTES: u64 = 256 << 20;
/// Bytes written to a pool before use: more than is ever cached there.
const POOL_BYTES: u64 = 288 << 20;
/// The rest of the pool has no room on the disk: a policy's work beside looking up depends on the
/// size.
const POOL_SPARSE_BYTES: u64 = 26 << 30;
const WARM_BYTES: usize = 256 << 10;

/// Result of one run.
#[derive(Clone, Copy)]
struct EngineRun {
    iops: f64,
    cpu_us_per_hit: f64,
}

/// Runs that follow each other: one under each of the policies, and fio's IOPS.
struct Round {
    ours: [EngineRun; POLICIES.len()],
    fio: f64,
}

/// A cache and its volume.
type Subject = (
    Cache<ShardDisk<UringDriver>>,
    Rc<Volume<ShardDisk<UringDriver>>>,
);

/// Plan of every run.
#[derive(Clone)]
struct HitsPlan {
    pools: [PathBuf; POLICIES.len()],
    depths: Vec<u64>,
    runs: usize,
    span: Duration,
}

/// Measures hits beside fio, and under one policy beside the other. `origin` is a file of at least
/// 256 MiB. The pools are made: `pool` with each policy's name at its end.
pub fn rows(origin: &Path, pool: &Path, runs: usize, span: Duration) -> io::Result<Vec<BenchRow>> {
    let pools = POLICIES.map(|policy| pool.with_extension(policy));
    for pool in &pools {
        if fs::metadata(pool).is_ok_and(|m| m.len() == POOL_SPARSE_BYTES) {
            continue;
        }
        make_file(pool, POOL_BYTES)?;
        OpenOptions::new()
            .write(true)
            .open(pool)?
            .set_len(POOL_SPARSE_BYTES)?;
    }
    let plan = HitsPlan {
        pools,
        depths: vec![1, 32],
        runs,
        span,
    };
    let measured = measure(origin, plan)?;
    let (shallow, deep) = (&measured[0], &measured[1]);
    let beyond: Vec<f64> = shallow
        .iter()
        .map(|round| 1e6 / round.ours[0].iops - 1e6 / round.fio)
        .collect();
    let beside_fio = |depth: u64, rounds: &[Round], goal| {
        let pairs: Vec<(f64, f64)> = rounds.iter().map(|r| (r.ours[0].iops, r.fio)).collect();
        paired(
            format!("hits of the engine on a file, depth {depth}: IOPS"),
            "IOPS",
            "fio io_uring, registered files and buffers, on the pool's file",
            goal,
            &pairs,
        )
    };
    let mut rows = vec![
        beside_fio(32, deep, Some(Goal::RatioAtLeast(0.95))),
        beside_fio(1, shallow, None),
        alone(
            "hits of the engine on a file, depth 1: time beyond fio's",
            "us",
            Some(Goal::AtMost(3.0)),
            &beyond,
        ),
    ];
    let [policy, peer] = POLICIES;
    for (depth, rounds) in [(32, deep), (1, shallow)] {
        let name = format!("hits of the engine on a file under {policy}, depth {depth}");
        let pairs = |of: fn(&EngineRun) -> f64| {
            let pair = |round: &Round| (of(&round.ours[0]), of(&round.ours[1]));
            rounds.iter().map(pair).collect::<Vec<_>>()
        };
        rows.push(paired(
            format!("{name}: IOPS"),
            "IOPS",
            peer,
            Some(Goal::RatioAtLeast(0.97)),
            &pairs(|ours| ours.iops),
        ));
        rows.push(paired(
            format!("{name}: CPU"),
            "us per hit",
            peer,
            Some(Goal::RatioAtMost(1.03)),
            &pairs(|ours| ours.cpu_us_per_hit),
        ));
    }
    Ok(rows)
}

/// The rounds of each depth of the plan.
fn measure(origin: &Path, plan: HitsPlan) -> io::Result<Vec<Vec<Round>>> {
    let mut host = Uring::new(Options::default()).map_err(io::Error::other)?;
    let open = |path: &Path| {
        let opened = host.open_disk(path, &DiskOptions::default());
        opened.map(|(target, _)| target).map_err(io::Error::other)
    };
    let origin = open(origin)?;
    let pools = plan.pools.iter().map(|pool| open(pool));
    let pools = pools.collect::<io::Result<Vec<_>>>()?;
    let rounds = run_alone(&mut host, move |local| async move {
        let disk = |target| local.disk(target).expect("opened above");
        let mut subjects = Vec::new();
        for (policy, pool) in POLICIES.into_iter().zip(pools) {
            let warm = warm(&local, disk(pool), disk(origin), (policy, VOLUME_BYTES)).await;
            let (cache, volume) = warm.expect("the files are readable and writable");
            subjects.push((cache, Rc::new(volume)));
        }
        compare(&local, &subjects, &plan).await
    });
    rounds.expect("nothing cuts its power")
}

/// A cache with its whole volume resident.
pub(super) async fn warm<D: Driver>(
    local: &Local<D>,
    pool: ShardDisk<D>,
    origin: ShardDisk<D>,
    (policy, volume_bytes): (&str, u64),
) -> IoResult<(Cache<ShardDisk<D>>, Volume<ShardDisk<D>>)> {
    let policy = policy::registry::build(policy, 0, 1).expect("registered");
    let config = Config {
        sequential_bytes: None,
        ..Config::default()
    };
    let cache = Cache::new(config, policy, local.env())?;
    cache.add_device(NewPoolDevice::whole(pool, "controller"))?;
    let config = VolumeConfig {
        name: "volume".into(),
        sectors: Some(Sectors(volume_bytes / 512)),
        mode: CacheMode::WriteThrough,
    };
    let volume = cache.add_volume(config, BoxDevice::new(origin))?;
    let step = WARM_BYTES as u64 / 512;
    for at in (0..volume_bytes / 512).step_by(step as usize) {
        let buf = local.env().pool.get(WARM_BYTES).await;
        volume.read(Lba(at), buf).await.1?;
        cache.settle().await;
    }
    Ok((cache, volume))
}

async fn compare(
    local: &Local<UringDriver>,
    subjects: &[Subject],
    plan: &HitsPlan,
) -> io::Result<Vec<Vec<Round>>> {
    let mut all = Vec::new();
    for &depth in &plan.depths {
        let mut rounds = Vec::new();
        for run in 0..plan.runs {
            let mut ours = Vec::new();
            for (cache, volume) in subjects {
                let before = (cache.counters().get(Counter::ReadsHit), cpu_time());
                let reads = random_reads(local, volume.clone(), depth, plan.span, run as u64).await;
                let hits = cache.counters().get(Counter::ReadsHit) - before.0;
                assert_eq!(hits, reads.count, "every read is a hit");
                let cpu = cpu_time() - before.1;
                ours.push(EngineRun {
                    iops: reads.per_second(),
                    cpu_us_per_hit: cpu.as_secs_f64() * 1e6 / hits as f64,
                });
            }
            // The shard has nothing in flight, so its thread may wait.
            let mut load = FioLoad::random_reads(depth, plan.span);
            load.options.push(format!("--size={POOL_BYTES}"));
            let fio = fio::run(&plan.pools[0], &load)?;
            rounds.push(Round {
                ours: ours.try_into().ok().expect("one for each policy"),
                fio: fio.iops,
            });
            // The clock is read once a turn, and this one took long.
            local.env().timer.sleep(Nanos(1)).await;
        }
        all.push(rounds);
    }
    Ok(all)
}
