//! 4 KiB direct random reads through the executor and `uring`.

use super::fio::{self, FioLoad};
use super::{BenchRow, Goal, paired};
use block::{Device, Driver, Lba, Nanos};
use shard::{Local, run_alone};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use uring::{DiskOptions, Options, Uring};

/// Result of a run of reads.
#[derive(Clone, Copy, Debug)]
pub struct ReadsRun {
    /// Reads a second.
    pub iops: f64,
    /// CPU time of the process, user and system, for each read.
    pub cpu_us_per_read: f64,
}

const BLOCK_SECTORS: u64 = 8;

/// Reads `path` at random for `span` with `depth` in flight.
pub fn ours(path: &Path, depth: u64, span: Duration, seed: u64) -> io::Result<ReadsRun> {
    let mut host = Uring::new(Options::default()).map_err(io::Error::other)?;
    let (disk, _) = host
        .open_disk(path, &DiskOptions::default())
        .map_err(io::Error::other)?;
    let before = cpu_time();
    let done = run_alone(&mut host, move |local| async move {
        let disk = Rc::new(local.disk(disk).expect("opened above"));
        random_reads(&local, disk, depth, span, seed).await
    });
    let cpu = cpu_time() - before;
    let done = done.map_err(io::Error::other)?;
    Ok(ReadsRun {
        iops: done.per_second(),
        cpu_us_per_read: cpu.as_secs_f64() * 1e6 / done.count as f64,
    })
}

/// Number of reads done, and their time.
pub(super) struct ReadsDone {
    pub(super) count: u64,
    pub(super) took: Nanos,
}

impl ReadsDone {
    pub(super) fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64()
    }
}

/// Reads 4 KiB of `device` at random for `span` with `depth` in flight.
pub(super) async fn random_reads<R: Driver, D: Device>(
    local: &Local<R>,
    device: Rc<D>,
    depth: u64,
    span: Duration,
    seed: u64,
) -> ReadsDone {
    let blocks = device.geometry().sectors.0 / BLOCK_SECTORS;
    let start = local.env().timer.now();
    let end = start + Nanos(span.as_nanos() as u64);
    let mut tasks = Vec::new();
    for task in 0..depth {
        let (device, env) = (device.clone(), local.env());
        let (done, ended) = futures_channel::oneshot::channel();
        local.env().spawn.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed ^ task << 32);
            let mut buf = env.pool.get(4096).await;
            let mut reads = 0u64;
            // The clock costs as much as a submission: look now and then.
            while !reads.is_multiple_of(16) || env.timer.now() < end {
                let at = Lba(rng.u64(0..blocks) * BLOCK_SECTORS);
                let (back, result) = device.read(at, buf).await;
                result.expect("the file is readable");
                buf = back;
                reads += 1;
            }
            // The shard outlives its tasks.
            let _ = done.send(reads);
        });
        tasks.push(ended);
    }
    let mut count = 0;
    for ended in tasks {
        count += ended.await.expect("the task ends");
    }
    let took = local.env().timer.now() - start;
    ReadsDone { count, took }
}

/// User and system time of this process so far.
pub fn cpu_time() -> Duration {
    // SAFETY: `usage` is a valid out-parameter of the right type.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let span = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Makes `path` a file of `bytes` of noise, unless the file is there already.
pub fn make_file(path: &Path, bytes: u64) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| m.len() == bytes) {
        return Ok(());
    }
    let mut file = std::fs::File::create(path)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut chunk = vec![0; 1 << 20];
    for _ in 0..bytes / chunk.len() as u64 {
        rng.fill(&mut chunk);
        file.write_all(&chunk)?;
    }
    file.sync_all()
}

/// Rows of IOPS and CPU beside fio, at each depth.
pub fn rows(path: &Path, runs: usize, span: Duration) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for depth in [1, 32] {
        let mut iops = Vec::new();
        let mut cpu = Vec::new();
        for run in 0..runs {
            let a = ours(path, depth, span, run as u64)?;
            let b = fio::run(path, &FioLoad::random_reads(depth, span))?;
            iops.push((a.iops, b.iops));
            cpu.push((a.cpu_us_per_read, b.cpu_us_per_op));
        }
        let name = format!("4 KiB direct random reads, depth {depth}");
        let peer = "fio io_uring, registered files and buffers";
        let goal = Some(Goal::RatioAtLeast(0.97));
        rows.push(paired(format!("{name}: IOPS"), "IOPS", peer, goal, &iops));
        let goal = Some(Goal::RatioAtMost(0.7));
        rows.push(paired(
            format!("{name}: CPU"),
            "us per operation",
            peer,
            goal,
            &cpu,
        ));
    }
    Ok(rows)
}
