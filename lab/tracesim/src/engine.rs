//! A trace through the engine itself: `cache` on drive models in the simulated
//! world.
//!
//! Behaviour that the plain cells leave out is not modelled a second time; the engine
//! itself has it: lines that are valid block by block, write modes, sequential
//! bypass, the bounds on promotion, an empty pool that warms up. The data are
//! zeroes, and the drives keep none.
//!
//! Each volume of the trace is on drives of its own, as many end to end as the volume
//! needs; so is the pool.

use super::cores::spread;
use super::linear::Linear;
use super::source::{BLOCK_BYTES, PoolSize};
use advise::replay::{Options, Replay, ReplayFigures, ReplayPace};
use block::{BoxDevice, Gate, Geometry, IoResult, Nanos, SECTOR_BYTES, Sectors, TargetId};
use cache::{Cache, CacheMode, Config, Counter, CounterSnapshot, NewPoolDevice, VolumeConfig};
use drives::SsdWear;
use drives::catalogue::Drive;
use hdrhistogram::Histogram;
use serde::Serialize;
use shard::Local;
use sim::{DiskSpec, Keep, ServiceTime, SimDriver, SimHost, SimWorld};
use simnode::run_alone;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use trace::{Format, Info, Strictness};

/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 256 << 20;
/// Seeds the world and the policy: every run is the same.
const SEED: u64 = 1;

/// A trace to send.
#[derive(Clone, Debug)]
pub struct TraceInput {
    /// The file.
    pub path: PathBuf,
    /// The file's format; recognised if `None`.
    pub format: Option<Format>,
    /// Treatment of bad input.
    pub strictness: Strictness,
    /// The trace's name in rows.
    pub name: String,
    /// The trace in numbers.
    pub info: Arc<Info>,
}

/// The cells to run on one trace.
#[derive(Clone, Debug)]
pub struct EnginePlan {
    /// Names of the registry.
    pub policies: Vec<String>,
    /// Sizes of the pool.
    pub sizes: Vec<PoolSize>,
    /// Modes in which volumes use the pool.
    pub modes: Vec<CacheMode>,
    /// The rest of the engine's configuration.
    pub config: Config,
    /// The drives of the volumes.
    pub origin: Drive,
    /// The drives of the pool.
    pub pool: Drive,
    /// Pace of the requests.
    pub pace: ReplayPace,
    /// Share of the requests, from the first, that only warms the pool.
    pub skip: f64,
    /// Cells at once.
    pub threads: usize,
}

/// One result. Latencies are from when a request was due to its end.
#[derive(Clone, Debug, Serialize)]
pub struct EngineRow {
    /// The trace's name.
    pub trace: String,
    /// The policy's name.
    pub policy: String,
    /// The pool as a share of the trace's unique 4 KiB blocks.
    pub size_fraction: f64,
    /// The pool in 4 KiB blocks.
    pub cache_blocks: u64,
    /// 4 KiB blocks that reads looked up.
    pub accesses: u64,
    /// Blocks, of those, that were not valid in the pool.
    pub misses: u64,
    /// `misses / accesses`.
    pub miss_ratio: f64,
    /// Bytes written to the pool: promotions and updates by writes.
    pub admitted_bytes: u64,
    /// Time the run took.
    pub seconds: f64,
    /// The length of a line.
    pub line_bytes: u64,
    /// Share of reads found in the pool as a whole.
    pub request_hit_ratio: f64,
    /// The mode in which the volumes used the pool.
    pub mode: &'static str,
    /// Requests that were counted.
    pub requests: u64,
    /// Reads sent to the origin.
    pub origin_reads: u64,
    /// Lines of sequential streams, not admitted for that reason.
    pub sequential_lines: u64,
    /// Pool devices that the engine gave up as too slow.
    pub devices_ejected: u64,
    /// Latency of reads.
    pub read_us: LatencyMicros,
    /// Latency of writes.
    pub write_us: LatencyMicros,
    /// Time of the requests in the simulated world.
    pub simulated_seconds: f64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyMicros {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Latency that 99% of the requests stayed within.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl LatencyMicros {
    fn of(ns: &Histogram<u64>) -> LatencyMicros {
        let us = |ns: u64| ns as f64 / 1e3;
        LatencyMicros {
            mean: ns.mean() / 1e3,
            p50: us(ns.value_at_quantile(0.5)),
            p99: us(ns.value_at_quantile(0.99)),
            max: us(ns.max()),
        }
    }
}

impl EnginePlan {
    /// Runs every cell; rows come by size, then by mode, then by policy. `done` is called after
    /// each, from any thread. `Err` is the reason in a line.
    pub fn run(
        &self,
        input: &TraceInput,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<EngineRow>, String> {
        let mut cells = Vec::new();
        for size in &self.sizes {
            for mode in &self.modes {
                cells.extend(self.policies.iter().map(|policy| (*size, *mode, policy)));
            }
        }
        spread(cells.len(), self.threads, done, |at| {
            let (size, mode, policy) = cells[at];
            self.run_cell(input, size, mode, policy)
        })
    }

    fn run_cell(
        &self,
        input: &TraceInput,
        size: PoolSize,
        mode: CacheMode,
        policy: &str,
    ) -> Result<EngineRow, String> {
        let began = Instant::now();
        let line_bytes = u64::from(self.config.line_bytes);
        let lines = (size.blocks(&input.info) * BLOCK_BYTES as f64) as u64 / line_bytes;
        let lines = lines.max(1);
        let mut world = SimWorld::new(SEED);
        let pool =
            add_disk(&mut world, "pool", &self.pool, lines * line_bytes).map_err(to_message)?;
        let mut origins = BTreeMap::new();
        for (volume, end) in input.info.volume_ends() {
            let name = format!("volume-{volume}");
            let bytes = end.next_multiple_of(BLOCK_BYTES);
            let disk = add_disk(&mut world, &name, &self.origin, bytes).map_err(to_message)?;
            origins.insert(volume, disk);
        }
        let run = CellRun {
            policy: policy.to_owned(),
            plan: self.clone(),
            input: input.clone(),
            mode,
        };
        let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
        let work = async move |local| live(&run, local, pool, &origins).await;
        let (outcome, ended) = run_alone(&mut sim, work);
        let Some(ended) = ended else {
            let name = &input.name;
            return Err(format!("{name}: the simulation did not end: {outcome:?}"));
        };
        let EndedRequest { figures, from, to } = ended?;
        let count = |counter| to.get(counter) - from.get(counter);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let misses = count(Counter::BlocksMissed);
        let accesses = count(Counter::BlocksHit) + misses;
        let reads =
            count(Counter::ReadsHit) + count(Counter::ReadsMissed) + count(Counter::ReadsPassed);
        let filled = count(Counter::BlocksPromoted) + count(Counter::BlocksUpdated);
        let cache_blocks = lines * line_bytes / BLOCK_BYTES;
        Ok(EngineRow {
            trace: input.name.clone(),
            policy: policy.to_owned(),
            size_fraction: size.share(cache_blocks, &input.info),
            cache_blocks,
            accesses,
            misses,
            miss_ratio: share(misses, accesses),
            admitted_bytes: filled * BLOCK_BYTES,
            seconds: began.elapsed().as_secs_f64(),
            line_bytes,
            request_hit_ratio: share(count(Counter::ReadsHit), reads),
            mode: mode.name(),
            requests: figures.read_ns.len() + figures.write_ns.len(),
            origin_reads: count(Counter::OriginReads) + count(Counter::ReadsPassed),
            sequential_lines: count(Counter::RejectedSequential),
            devices_ejected: to.get(Counter::DevicesEjected),
            read_us: LatencyMicros::of(&figures.read_ns),
            write_us: LatencyMicros::of(&figures.write_ns),
            simulated_seconds: figures.span.as_secs_f64(),
        })
    }
}

fn to_message(error: block::IoError) -> String {
    error.to_string()
}

/// A disk of `bytes` on as many drives as that takes.
fn add_disk(world: &mut SimWorld, name: &str, drive: &Drive, bytes: u64) -> IoResult<TargetId> {
    let block = BLOCK_BYTES / SECTOR_BYTES;
    let each = Sectors(drive.capacity().0 / block * block);
    let sectors = Sectors(bytes.div_ceil(SECTOR_BYTES).next_multiple_of(block));
    let drives = sectors.0.div_ceil(each.0).max(1);
    let models: IoResult<Vec<_>> = (0..drives)
        .map(|i| drive.model(i as f64 / drives as f64, SsdWear::Steady))
        .collect();
    let model = world.add_model(Linear::new(models?, each));
    let mut spec = DiskSpec::new(Geometry::new(name, sectors, Sectors(1)));
    spec.service = ServiceTime::Model { model, unit: 0 };
    spec.keep = Keep::Nothing;
    world.add_disk(spec)
}

/// One cell, as seen by its shard.
struct CellRun {
    policy: String,
    plan: EnginePlan,
    input: TraceInput,
    mode: CacheMode,
}

struct EndedRequest {
    figures: ReplayFigures,
    /// The counters when counting began.
    from: CounterSnapshot,
    to: CounterSnapshot,
}

/// The daemon's life: a pool, the volumes, and the trace sent to them.
async fn live(
    run: &CellRun,
    local: Local<SimDriver>,
    pool: TargetId,
    origins: &BTreeMap<u32, TargetId>,
) -> Result<EndedRequest, String> {
    let env = local.env();
    let policy = baselines::registry::build(&run.policy, 0, SEED).ok_or("no such policy")?;
    let cache = Cache::new(run.plan.config.clone(), policy, env.clone()).map_err(to_message)?;
    let device = local.disk(pool).map_err(to_message)?;
    let device = NewPoolDevice::whole(device, "simulated");
    cache.add_device(device).map_err(to_message)?;
    let mut volumes = BTreeMap::new();
    for (volume, origin) in origins {
        let config = VolumeConfig {
            name: format!("volume-{volume}").into(),
            sectors: None,
            mode: run.mode,
        };
        let origin = BoxDevice::new(local.disk(*origin).map_err(to_message)?);
        let cached = cache.add_volume(config, origin).map_err(to_message)?;
        volumes.insert(*volume, Gate::new(cached, env.clone()));
    }
    let input = &run.input;
    let reader = trace_formats::open(&input.path, input.format, input.strictness);
    let reader = reader.map_err(|error| error.to_string())?;
    let options = Options {
        pace: run.plan.pace,
        skip: (run.plan.skip * input.info.requests as f64) as u64,
        writes: true,
        span_max: Nanos::MAX,
    };
    let from = Rc::new(RefCell::new(None));
    let counting = {
        let (cache, from) = (cache.clone(), from.clone());
        move || *from.borrow_mut() = Some(cache.counters())
    };
    let target = move |volume: u32| volumes[&volume].clone();
    let zeroes = |data: &mut [u8]| data.fill(0);
    let replay = Replay::new(env, reader, options, target, zeroes, counting).await;
    let figures = replay.run().await?;
    match figures.failure {
        Some(what) => Err(what),
        None => Ok(EndedRequest {
            figures,
            from: from.take().ok_or("the trace has changed meanwhile")?,
            to: cache.counters(),
        }),
    }
}
