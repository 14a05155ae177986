//! The engine on a real disk, without NBD: 4 KiB hits beside fio's io_uring
//! engine on the very file that is the pool.

use super::fio::{self, Load};
use super::reads::random_reads;
use super::{Goal, Row, alone, paired};
use block::{BoxDevice, Device, Host, IoResult, Lba, Nanos, Sectors};
use cache::{Cache, Config, Counter, Mode, PoolDevice, Volume, VolumeConfig};
use shard::{Disk, Local, Mesh, Shard};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uring::{DiskOptions, Options, Uring, UringDriver};

/// What is cached: small enough to be warm in a second or two.
const VOLUME_BYTES: u64 = 256 << 20;
/// The pool holds all of it with room to spare.
const POOL_BYTES: u64 = 288 << 20;
const WARM_BYTES: usize = 256 << 10;

/// IOPS of ours and of fio's, run by run, at one depth.
type Pairs = Vec<(f64, f64)>;

/// What every run does.
#[derive(Clone)]
struct Plan {
    pool: PathBuf,
    depths: Vec<u64>,
    runs: usize,
    span: Duration,
}

/// Hits beside fio; `origin` is a file of at least 256 MiB, `pool` is made.
pub fn rows(origin: &Path, pool: &Path, runs: usize, span: Duration) -> io::Result<Vec<Row>> {
    super::reads::make_file(pool, POOL_BYTES)?;
    let plan = Plan {
        pool: pool.to_owned(),
        depths: vec![1, 32],
        runs,
        span,
    };
    let measured = measure(origin, plan)?;
    let peer = "fio io_uring, registered files and buffers, on the pool's file";
    let (shallow, deep) = (&measured[0], &measured[1]);
    let beyond: Vec<f64> = shallow
        .iter()
        .map(|(ours, fio)| 1e6 / ours - 1e6 / fio)
        .collect();
    Ok(vec![
        paired(
            "hits of the engine on a file, depth 32: IOPS",
            "IOPS",
            peer,
            Some(Goal::RatioAtLeast(0.95)),
            deep,
        ),
        paired(
            "hits of the engine on a file, depth 1: IOPS",
            "IOPS",
            peer,
            None,
            shallow,
        ),
        alone(
            "hits of the engine on a file, depth 1: time beyond fio's",
            "us",
            Some(Goal::AtMost(3.0)),
            &beyond,
        ),
    ])
}

/// The pairs of each depth of the plan.
fn measure(origin: &Path, plan: Plan) -> io::Result<Vec<Pairs>> {
    let mut host = Uring::new(Options::default()).map_err(io::Error::other)?;
    let open = |path: &Path| {
        let opened = host.open_disk(path, &DiskOptions::default());
        opened.map(|(target, _)| target).map_err(io::Error::other)
    };
    let (origin, pool) = (open(origin)?, open(&plan.pool)?);
    let measured = Arc::new(Mutex::new(Ok(Vec::new())));
    let (mesh, result) = (Mesh::new(1), measured.clone());
    host.run(1, move |id, driver| {
        let (plan, result) = (plan.clone(), result.clone());
        let config = shard::Config::default();
        Shard::boot(id, driver, mesh.clone(), config, move |local| async move {
            let disk = |target| local.disk(target).expect("opened above");
            let (cache, volume) = warm(&local, disk(pool), disk(origin))
                .await
                .expect("the files are readable and writable");
            let pairs = compare(&local, &cache, Rc::new(volume), &plan).await;
            *result.lock().expect("one thread") = pairs;
        })
    });
    let mut measured = measured.lock().expect("the shard has ended");
    std::mem::replace(&mut *measured, Ok(Vec::new()))
}

/// A cache whose whole volume is resident.
async fn warm(
    local: &Local<UringDriver>,
    pool: Disk<UringDriver>,
    origin: Disk<UringDriver>,
) -> IoResult<(Cache<Disk<UringDriver>>, Volume<Disk<UringDriver>>)> {
    let policy = policy::registry::build("lru", 0, 1).expect("registered");
    let config = Config {
        sequential_bytes: None,
        ..Config::default()
    };
    let cache = Cache::new(config, policy, local.env())?;
    cache.add_device(PoolDevice::whole(pool, "controller"))?;
    let config = VolumeConfig {
        name: "volume".into(),
        sectors: Some(Sectors(VOLUME_BYTES / 512)),
        mode: Mode::WriteThrough,
    };
    let volume = cache.add_volume(config, BoxDevice::new(origin))?;
    let step = WARM_BYTES as u64 / 512;
    for at in (0..VOLUME_BYTES / 512).step_by(step as usize) {
        let buf = local.env().pool.get(WARM_BYTES).await;
        volume.read(Lba(at), buf).await.1?;
        cache.settle().await;
    }
    Ok((cache, volume))
}

async fn compare(
    local: &Local<UringDriver>,
    cache: &Cache<Disk<UringDriver>>,
    volume: Rc<Volume<Disk<UringDriver>>>,
    plan: &Plan,
) -> io::Result<Vec<Pairs>> {
    let mut all = Vec::new();
    for &depth in &plan.depths {
        let mut pairs = Vec::new();
        for run in 0..plan.runs {
            let before = cache.counters().get(Counter::ReadsHit);
            let reads = random_reads(local, volume.clone(), depth, plan.span, run as u64).await;
            let hits = cache.counters().get(Counter::ReadsHit) - before;
            assert_eq!(hits, reads.count, "every read is a hit");
            // The shard has nothing in flight, so its thread may wait.
            let fio = fio::run(&plan.pool, &Load::random_reads(depth, plan.span))?;
            pairs.push((reads.per_second(), fio.iops));
            // The clock is read once a turn, and this one took long.
            local.env().timer.sleep(Nanos(1)).await;
        }
        all.push(pairs);
    }
    Ok(all)
}
