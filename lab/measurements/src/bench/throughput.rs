//! Throughput of an array: bytes a second that the members move, beside fio's on the same files
//! with as much in flight.
//!
//! Sequential requests are whole stripes, so that RAID 5 need not read; bytes of copies and of
//! parity count, for the members move them. All of an array is written before: a file system does
//! not read blocks that it knows to be zeroes.

use super::fio::{self, FioLoad};
use super::{BenchRow, Goal, arrays, paired, reads};
use block::{BoxDevice, Device, Env, Fua, Lba, Nanos, TargetId};
use raid::{Array, Level};
use shard::{Local, run_alone};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use uring::{DiskOptions, Uring, UringDriver};

const MEMBER_BYTES: u64 = 256 << 20;
const CHUNK_BYTES: u64 = arrays::CHUNK.bytes();
const BLOCK_BYTES: u64 = 4096;
/// Random reads in flight.
const READS: u64 = 32;
/// Whole stripes in flight: as many as hide that RAID 5 journals each of them first.
const STRIPES: u64 = 16;
/// Bytes written at once before.
const FILL_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq)]
enum ThroughputWork {
    RandomReads,
    StripeReads,
    StripeWrites,
}

/// A row: an array, and its work.
#[derive(Clone, Copy)]
struct Trial {
    name: &'static str,
    level: Level,
    members: u64,
    work: ThroughputWork,
}

const TRIALS: [Trial; 7] = [
    Trial::new(
        "RAID 0 of 2, random reads of 4 KiB",
        Level::Raid0,
        2,
        ThroughputWork::RandomReads,
    ),
    Trial::new(
        "RAID 1 of 2, random reads of 4 KiB",
        Level::Raid1,
        2,
        ThroughputWork::RandomReads,
    ),
    Trial::new(
        "RAID 5 of 4, random reads of 4 KiB",
        Level::Raid5,
        4,
        ThroughputWork::RandomReads,
    ),
    Trial::new(
        "RAID 0 of 2, reads of whole stripes",
        Level::Raid0,
        2,
        ThroughputWork::StripeReads,
    ),
    Trial::new(
        "RAID 0 of 2, writes of whole stripes",
        Level::Raid0,
        2,
        ThroughputWork::StripeWrites,
    ),
    Trial::new(
        "RAID 1 of 2, mirrored writes",
        Level::Raid1,
        2,
        ThroughputWork::StripeWrites,
    ),
    Trial::new(
        "RAID 5 of 4, writes of whole stripes",
        Level::Raid5,
        4,
        ThroughputWork::StripeWrites,
    ),
];

impl Trial {
    const fn new(name: &'static str, level: Level, members: u64, work: ThroughputWork) -> Trial {
        Trial {
            name,
            level,
            members,
            work,
        }
    }

    /// Bytes of a request to the array.
    fn request(&self) -> u64 {
        let data = match self.level {
            Level::Raid1 => 1,
            Level::Raid5 => self.members - 1,
            _ => self.members,
        };
        match self.work {
            ThroughputWork::RandomReads => BLOCK_BYTES,
            ThroughputWork::StripeReads | ThroughputWork::StripeWrites => data * CHUNK_BYTES,
        }
    }

    /// Bytes that the members move for a request.
    fn moved(&self) -> u64 {
        match self.work {
            ThroughputWork::StripeWrites => self.members * CHUNK_BYTES,
            ThroughputWork::RandomReads | ThroughputWork::StripeReads => self.request(),
        }
    }

    fn depth(&self) -> u64 {
        match self.work {
            ThroughputWork::RandomReads => READS,
            ThroughputWork::StripeReads | ThroughputWork::StripeWrites => STRIPES,
        }
    }

    /// Runs fio on the members meanwhile; returns its bytes a second.
    fn fio(&self, files: &[PathBuf], span: Duration) -> io::Result<f64> {
        let (rw, block, depth) = match self.work {
            ThroughputWork::RandomReads => ("randread", BLOCK_BYTES, READS),
            ThroughputWork::StripeReads => ("read", CHUNK_BYTES, STRIPES * self.members),
            ThroughputWork::StripeWrites => ("write", CHUNK_BYTES, STRIPES * self.members),
        };
        let mut load = FioLoad::direct_requests((rw, block), depth, span);
        let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
        load.options.push(format!("--filename={}", names.join(":")));
        Ok(fio::run_load(&load)?.iops * block as f64)
    }
}

async fn fill(env: &Env, array: &Array) {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut data = env.pool.get(FILL_BYTES as usize).await;
    rng.fill(&mut data);
    let data = data.share();
    let end = array.geometry().sectors.bytes();
    for at in (0..end).step_by(FILL_BYTES as usize) {
        let part = data.slice(0..FILL_BYTES.min(end - at) as usize);
        let written = array.write(Lba(at / 512), part, Fua::No).await;
        written.expect("the files are whole");
    }
    array.flush().await.expect("the files are whole");
}

/// Keeps the array busy for `span`; bytes that its members moved a second.
async fn run(local: &Local<UringDriver>, array: Rc<Array>, trial: Trial, span: Duration) -> f64 {
    let places = array.geometry().sectors.bytes() / trial.request();
    let begin = local.env().timer.now();
    let end = begin + Nanos(span.as_nanos() as u64);
    let next = Rc::new(Cell::new(0));
    let mut tasks = Vec::new();
    for task in 0..trial.depth() {
        let (array, env, next) = (array.clone(), local.env(), next.clone());
        let (done, ended) = futures_channel::oneshot::channel();
        local.env().spawn.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(task);
            let mut buf = env.pool.get(trial.request() as usize).await;
            let data = env.pool.get(trial.request() as usize).await.share();
            let mut requests = 0;
            while env.timer.now() < end {
                let turn = next.replace(next.get() + 1) % places;
                let place = match trial.work {
                    ThroughputWork::RandomReads => rng.u64(0..places),
                    ThroughputWork::StripeReads | ThroughputWork::StripeWrites => turn,
                };
                let at = Lba(place * trial.request() / 512);
                let result;
                if trial.work == ThroughputWork::StripeWrites {
                    result = array.write(at, data.clone(), Fua::No).await;
                } else {
                    (buf, result) = array.read(at, buf).await;
                }
                result.expect("the files are whole");
                requests += 1;
            }
            // The shard outlives its tasks.
            let _ = done.send(requests);
        });
        tasks.push(ended);
    }
    let mut requests = 0;
    for ended in tasks {
        requests += ended.await.expect("the task ends");
    }
    let took = local.env().timer.now() - begin;
    (requests * trial.moved()) as f64 / took.as_secs_f64()
}

/// Pairs of ours and fio's, in bytes a second.
fn measure(trial: Trial, files: &[PathBuf], runs: usize, span: Duration) -> io::Result<Pairs> {
    let mut host = Uring::new(uring::Options::default()).map_err(io::Error::other)?;
    let mut members = Vec::new();
    for file in files {
        let opened = host.open_disk(file, &DiskOptions::default());
        members.push(opened.map_err(io::Error::other)?.0);
    }
    let files = files.to_vec();
    let measured = run_alone(&mut host, move |local| async move {
        let disk = |target: &TargetId| local.disk(*target).expect("opened before");
        let members = members.iter().map(|target| BoxDevice::new(disk(target)));
        let array = arrays::over(&local.env(), trial.level, members.collect()).await;
        fill(&local.env(), &array).await;
        let array = Rc::new(array);
        let mut pairs = Vec::new();
        for _ in 0..runs {
            let ours = run(&local, array.clone(), trial, span).await;
            // Nothing is in flight, so the shard's thread may wait. Data that fio writes over the
            // array is not read again.
            pairs.push((ours / 1e6, trial.fio(&files, span)? / 1e6));
            // The clock is read once a turn, and this one took long.
            local.env().timer.sleep(Nanos(1)).await;
        }
        Ok(pairs)
    });
    measured.expect("nothing cuts its power")
}

type Pairs = Vec<(f64, f64)>;

/// A row for each trial, on files in `dir` that are made there.
pub fn rows(dir: &Path, runs: usize, span: Duration) -> io::Result<Vec<BenchRow>> {
    std::fs::create_dir_all(dir)?;
    let mut rows = Vec::new();
    for trial in TRIALS {
        let files: Vec<PathBuf> = (0..trial.members)
            .map(|n| dir.join(format!("member{n}")))
            .collect();
        for file in &files {
            reads::make_file(file, MEMBER_BYTES)?;
        }
        let pairs = measure(trial, &files, runs, span)?;
        rows.push(paired(
            format!("{}: what the members move", trial.name),
            "MB/s",
            "fio io_uring on the members",
            Some(Goal::RatioAtLeast(0.9)),
            &pairs,
        ));
    }
    Ok(rows)
}
