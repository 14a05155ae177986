//! The sweep: a number of threads, each with one request at a time, on each of
//! the four workloads.
//!
//! Sequential threads share one stream, as in the evaluation's tool: each takes the next 256 KiB.
//! Random threads have blocks of their own, so that no two writes of one block are ever in flight
//! together.

use super::rig::{self, PercRig, PercSetup};
use super::scale::{PercScale, ThreadWorkload, to_message};
use block::{Boundary, Fua, Nanos, SharedBuf};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use serde::Serialize;
use sim::SimRng;
use std::cell::{Cell, RefCell};

/// Draws places.
const PLACES: u64 = 2;
/// Threads that fill a write-back cache before writes are measured.
const FILLERS: u64 = 64;

/// One point of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    /// Name of the workload.
    pub workload: &'static str,
    /// 1, or 2 that are mirrored.
    pub controllers: usize,
    /// Requests at one time.
    pub threads: u64,
    /// Requests measured.
    pub operations: u64,
    /// Requests a second.
    pub iops: f64,
    /// 10^6 bytes a second.
    pub mb_s: f64,
    /// The mean latency.
    pub latency_ms_mean: f64,
    /// The 99th percentile of the latency.
    pub latency_ms_p99: f64,
    /// 10^6 bytes a second of each side of a mirror, by its share of the reads.
    pub sides_mb_s: Option<[f64; 2]>,
    /// CPU of the daemon, of one processor, where there is one.
    pub cpu_daemon_percent: Option<f64>,
    /// CPU of all processors together, where there are real ones.
    pub cpu_host_percent: Option<f64>,
}

/// Measures one workload on one or two controllers, at every number of threads.
pub fn curve(
    seed: u64,
    scale: PercScale,
    controllers: usize,
    workload: ThreadWorkload,
) -> Result<Vec<SweepPoint>, String> {
    rig::run(PercSetup::of(&scale, seed, controllers), async move |rig| {
        if workload.write {
            // The writes that first fit into the cache do not show the speed of the drives.
            let fill = 2 * (scale.cache_mb * 1e6) as u64 / workload.bytes;
            SweepLoad::new(&rig, workload, FILLERS, 0, fill, seed)
                .run()
                .await?;
        }
        let operations = scale.operations(workload);
        let mut points = Vec::new();
        for threads in scale.threads() {
            let load = SweepLoad::new(&rig, workload, threads, 4 * threads, operations, seed);
            let before = side_reads(&rig, controllers).await?;
            let mut point = load.run().await?.point(controllers);
            if !workload.write {
                let after = side_reads(&rig, controllers).await?;
                point.sides_mb_s = before.zip(after).map(|(before, after)| {
                    let reads = [0, 1].map(|side| (after[side] - before[side]) as f64);
                    reads.map(|own| own / (reads[0] + reads[1]) * point.mb_s)
                });
            }
            points.push(point);
        }
        Ok(points)
    })
}

/// Reads of both sides so far; one controller has no other.
async fn side_reads(rig: &PercRig, controllers: usize) -> Result<Option<[u64; 2]>, String> {
    match controllers {
        1 => Ok(None),
        _ => {
            let legs = rig.legs().await?;
            Ok(Some([0, 1].map(|role| legs[role].reads)))
        }
    }
}

struct SweepLoad<'a> {
    rig: &'a PercRig,
    workload: ThreadWorkload,
    threads: u64,
    /// Requests before those that count.
    before: u64,
    operations: u64,
    /// Requests that have begun, and ended.
    begun: Cell<u64>,
    ended: Cell<u64>,
    rng: RefCell<SimRng>,
    /// Times at which counting began and ended.
    from: Cell<Nanos>,
    to: Cell<Nanos>,
    latencies: RefCell<Histogram<u64>>,
}

impl<'a> SweepLoad<'a> {
    fn new(
        rig: &'a PercRig,
        workload: ThreadWorkload,
        threads: u64,
        before: u64,
        operations: u64,
        seed: u64,
    ) -> SweepLoad<'a> {
        SweepLoad {
            rig,
            workload,
            threads,
            before,
            operations,
            begun: Cell::new(0),
            ended: Cell::new(0),
            rng: RefCell::new(SimRng::fork(seed, PLACES + threads)),
            from: Cell::new(rig.env.timer.now()),
            to: Cell::new(Nanos::ZERO),
            latencies: RefCell::new(Histogram::new(3).expect("three digits")),
        }
    }

    async fn run(self) -> Result<SweepLoad<'a>, String> {
        let mut data = self.rig.env.pool.get(self.workload.bytes as usize).await;
        data.fill(0);
        let data = data.share();
        let threads = (0..self.threads).map(|thread| self.thread(thread, data.clone()));
        try_join_all(threads).await?;
        Ok(self)
    }

    /// Place of a thread's next request, in bytes.
    fn next(&self, thread: u64) -> u64 {
        let places = self.rig.volume.bytes() / self.workload.bytes;
        let begun = self.begun.get();
        self.begun.set(begun + 1);
        let place = match self.workload.random {
            true => self.rng.borrow_mut().below(places / self.threads) * self.threads + thread,
            false => begun % places,
        };
        place * self.workload.bytes
    }

    async fn thread(&self, thread: u64, data: SharedBuf) -> Result<(), String> {
        let (timer, volume) = (&self.rig.env.timer, &self.rig.volume);
        let bytes = self.workload.bytes as usize;
        while self.ended.get() < self.before + self.operations {
            let (at, began) = (self.next(thread), timer.now());
            let result = match self.workload.write {
                true => volume.write(at, data.clone(), Fua::No).await,
                false => volume.read(at, bytes).await.map(drop),
            };
            result.map_err(to_message)?;
            self.count(timer.now(), timer.now() - began);
        }
        Ok(())
    }

    fn count(&self, now: Nanos, took: Nanos) {
        let ended = self.ended.get() + 1;
        self.ended.set(ended);
        if ended == self.before {
            self.from.set(now);
        } else if ended > self.before && ended <= self.before + self.operations {
            let recorded = self.latencies.borrow_mut().record(took.0);
            recorded.expect("the histogram grows");
            self.to.set(now);
        }
    }

    fn point(self, controllers: usize) -> SweepPoint {
        let latencies = self.latencies.into_inner();
        let iops = self.operations as f64 / (self.to.get() - self.from.get()).as_secs_f64();
        SweepPoint {
            workload: self.workload.name,
            controllers,
            threads: self.threads,
            operations: latencies.len(),
            iops,
            mb_s: iops * self.workload.bytes as f64 / 1e6,
            latency_ms_mean: latencies.mean() / 1e6,
            latency_ms_p99: latencies.value_at_quantile(0.99) as f64 / 1e6,
            sides_mb_s: None,
            cpu_daemon_percent: None,
            cpu_host_percent: None,
        }
    }
}
