//! The effect of a pool of one size on a trace: the policy over the requests, and models of the
//! devices under the requests that reach them.
//!
//! As in the engine, the policy keeps lines and 4 KiB blocks are valid. A miss reads the origin and
//! fills the blocks read. A write goes to the origin and to the pool and ends with the later of
//! both. Left out: the rule for sequential streams, budgets of fills, and joined reads.
//!
//! Requests arrive at the times of the trace, or one after the other if the trace has none. At most
//! [`DEPTH`] are in flight: beyond that the next one waits, and the origin is called saturated. The
//! next request also waits while fills are far behind, so that memory is bounded however slow the
//! pool is.

use super::{Estimate, Hits, recommended};
use crate::array::{DriveStripe, ID_BITS};
use block::{Extent, IoResult, Lba, Nanos, Sectors};
use drives::catalogue::Drive;
use drives::{Completed, DriveOp};
use hdrhistogram::Histogram;
use policy::{Instruction, LineKey, LineParts, Policy, Unpinned, registry};
use std::collections::HashMap;
use trace::TraceRecord;

/// Requests in flight at the most.
pub const DEPTH: usize = 256;
/// Requests and fills in flight at the most, but for the fills of one request.
const FLIGHTS_MAX: usize = 4 * DEPTH;
const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = 8;
/// Octaves of size below that of all that was touched, and those of them with two sizes each.
const OCTAVES: u32 = 10;
const FINE_OCTAVES: u32 = 6;
/// Parts of the step in which the recommended size lies.
const BETWEEN: u64 = 6;
/// Interval of the policy's ticks.
const TICK: Nanos = Nanos(1_000_000_000);

/// The devices that are modelled.
#[derive(Clone, Debug)]
pub struct ModelledDevices {
    /// The origin's drives.
    pub origin: Drive,
    /// Number of drives, striped.
    pub origin_drives: u32,
    /// The pool's drive, taken to be large enough.
    pub pool: Drive,
}

/// A request or a fill in flight.
struct ModelledFlight {
    arrived: Nanos,
    pieces: u32,
    /// True if a client waits.
    client: bool,
    /// Blocks to write to the pool after the read.
    fills: Vec<Extent>,
}

/// Contents of a pool of one size.
struct ModelledContents {
    policy: Box<dyn Policy>,
    slots: u32,
    line_bytes: u64,
    /// A bit for each block of each slot.
    valid: Vec<u64>,
    next_tick: Nanos,
    /// Blocks read, and those of them that were there.
    blocks: u64,
    hits: u64,
}

/// Places of the blocks of a request.
#[derive(Default)]
struct BlockPlaces {
    /// First and last block that the origin is asked for.
    missing: Option<(u64, u64)>,
    /// Blocks of the pool: hits of a read, or the blocks that a write updates.
    direct: Vec<Extent>,
    /// Blocks that a read fills.
    fills: Vec<Extent>,
}

/// One size of pool under the trace.
struct SizeLane {
    contents: ModelledContents,
    origin: DriveStripe,
    pool: DriveStripe,
    flight: HashMap<u64, ModelledFlight>,
    clients: usize,
    next_id: u64,
    now: Nanos,
    began: Option<Nanos>,
    done: Vec<Completed>,
    latencies: Histogram<u64>,
    saturated: bool,
    pool_written: u64,
}

impl ModelledContents {
    fn new(policy: &str, pool_bytes: u64, line_bytes: u64) -> ModelledContents {
        let slots = u32::try_from(pool_bytes / line_bytes).unwrap_or(u32::MAX / 4);
        let policy = registry::build(policy, slots, 1).expect("the caller checked the name");
        let blocks = u64::from(slots) * (line_bytes / BLOCK_BYTES);
        ModelledContents {
            policy,
            slots,
            line_bytes,
            valid: vec![0; blocks.div_ceil(64) as usize],
            next_tick: Nanos::ZERO,
            blocks: 0,
            hits: 0,
        }
    }

    /// Asks the policy about each line of a request.
    fn look_up(&mut self, record: &TraceRecord) -> BlockPlaces {
        if record.time >= self.next_tick {
            self.policy.tick(record.time);
            self.next_tick = record.time + TICK;
        }
        let read = record.op == trace::RecordOp::Read;
        let request = policy::PolicyRequest {
            op: if read {
                policy::PolicyOp::Read
            } else {
                policy::PolicyOp::Write
            },
            len_bytes: record.len_bytes,
            ..policy::PolicyRequest::default()
        };
        let blocks_per_line = self.line_bytes / BLOCK_BYTES;
        let (first, end) = {
            let blocks = record.blocks(BLOCK_BYTES);
            (*blocks.start(), blocks.end() + 1)
        };
        let mut found = BlockPlaces::default();
        if read {
            self.blocks += end - first;
        }
        if self.slots == 0 {
            found.missing = Some((first, end));
            return found;
        }
        for line in record.blocks(self.line_bytes) {
            let key = LineKey(u64::from(record.volume) << 40 ^ line);
            let (from, to) = (
                first.max(line * blocks_per_line),
                end.min((line + 1) * blocks_per_line),
            );
            let (start, count) = (from % blocks_per_line, to - from);
            let log = blocks_per_line.trailing_zeros();
            let request = policy::PolicyRequest {
                parts: LineParts::of(start as u32, count as u32, log),
                ..request
            };
            let place = self
                .place(key, &request)
                .map(|line| line + from % blocks_per_line);
            match place {
                Some(place) if read && self.are_valid(place, to - from) => {
                    self.hits += to - from;
                    found
                        .direct
                        .push(SizeLane::extent(place, place + to - from));
                }
                _ => {
                    let start = found.missing.map_or(from, |(start, _)| start);
                    found.missing = Some((start, to));
                    if let Some(place) = place {
                        self.set(place, to - from, true);
                        let extent = SizeLane::extent(place, place + to - from);
                        let way = if read {
                            &mut found.fills
                        } else {
                            &mut found.direct
                        };
                        way.push(extent);
                    }
                }
            }
        }
        found
    }

    /// Asks the policy about a line: the first block of the line's slot, if the line has one from
    /// now on.
    fn place(&mut self, key: LineKey, request: &policy::PolicyRequest) -> Option<u64> {
        let blocks = self.line_bytes / BLOCK_BYTES;
        match self.policy.access(key, request, &Unpinned) {
            Instruction::Hit(slot) => Some(u64::from(slot.0) * blocks),
            Instruction::Admit(slot) | Instruction::Replace { slot, .. } => {
                self.set(u64::from(slot.0) * blocks, blocks, false);
                Some(u64::from(slot.0) * blocks)
            }
            Instruction::Bypass(_) => None,
        }
    }

    fn are_valid(&self, first: u64, count: u64) -> bool {
        (first..first + count).all(|at| self.valid[at as usize / 64] >> (at % 64) & 1 == 1)
    }

    fn set(&mut self, first: u64, count: u64, valid: bool) {
        for at in first..first + count {
            let word = &mut self.valid[at as usize / 64];
            *word = *word & !(1 << (at % 64)) | u64::from(valid) << (at % 64);
        }
    }

    fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.blocks.max(1) as f64
    }
}

impl SizeLane {
    fn new(
        policy: &str,
        pool_bytes: u64,
        line_bytes: u64,
        devices: &ModelledDevices,
    ) -> IoResult<SizeLane> {
        Ok(SizeLane {
            contents: ModelledContents::new(policy, pool_bytes, line_bytes),
            origin: DriveStripe::new(&devices.origin, devices.origin_drives)?,
            pool: DriveStripe::new(&devices.pool, 1)?,
            flight: HashMap::new(),
            clients: 0,
            next_id: 0,
            now: Nanos::ZERO,
            began: None,
            done: Vec::new(),
            latencies: Histogram::new(3).expect("three digits are few enough"),
            saturated: false,
            pool_written: 0,
        })
    }

    fn request(&mut self, record: &TraceRecord, timed: bool) {
        if timed {
            self.run_until(record.time);
            self.now = self.now.max(record.time);
            while self.clients >= DEPTH {
                self.saturated = true;
                self.step();
            }
        } else {
            while self.clients > 0 {
                self.step();
            }
        }
        while self.flight.len() >= FLIGHTS_MAX {
            self.step();
        }
        self.began.get_or_insert(self.now);
        let found = self.contents.look_up(record);
        let op = match record.op {
            trace::RecordOp::Read => DriveOp::Read,
            trace::RecordOp::Write => DriveOp::Write,
        };
        let filled = match op {
            DriveOp::Read => &found.fills,
            _ => &found.direct,
        };
        self.pool_written += filled.iter().map(|extent| extent.len.bytes()).sum::<u64>();
        let origin = found
            .missing
            .map(|(start, end)| SizeLane::extent(start, end));
        self.send(op, origin, &found.direct, found.fills);
    }

    fn extent(first: u64, end: u64) -> Extent {
        Extent::new(
            Lba(first * BLOCK_SECTORS),
            Sectors((end - first) * BLOCK_SECTORS),
        )
    }

    fn send(&mut self, op: DriveOp, origin: Option<Extent>, pool: &[Extent], fills: Vec<Extent>) {
        let id = self.next_id;
        self.next_id += 1;
        let mut pieces = 0;
        if let Some(extent) = origin {
            pieces += self.origin.submit(self.now, id, pieces, op, extent);
        }
        for extent in pool {
            pieces += self.pool.submit(self.now, id, pieces, op, *extent);
        }
        let flight = ModelledFlight {
            arrived: self.now,
            pieces,
            client: true,
            fills,
        };
        self.flight.insert(id, flight);
        self.clients += 1;
    }

    fn next_event(&self) -> Option<Nanos> {
        let events = [self.origin.next_event(), self.pool.next_event()];
        events.into_iter().flatten().min()
    }

    fn run_until(&mut self, time: Nanos) {
        while self.next_event().is_some_and(|at| at <= time) {
            self.step();
        }
    }

    /// Lets time pass up to the next event.
    fn step(&mut self) {
        let now = self.next_event().expect("a request is in flight");
        self.now = self.now.max(now);
        let mut done = std::mem::take(&mut self.done);
        self.origin.advance(now, &mut done);
        self.pool.advance(now, &mut done);
        for completed in done.drain(..) {
            self.end(completed);
        }
        self.done = done;
    }

    fn end(&mut self, completed: Completed) {
        let id = completed.id & ((1 << ID_BITS) - 1);
        let flight = self.flight.get_mut(&id).expect("it is in flight");
        flight.pieces -= 1;
        if flight.pieces > 0 {
            return;
        }
        let ended = self.flight.remove(&id).expect("it is in flight");
        if !ended.client {
            return;
        }
        self.clients -= 1;
        self.latencies += completed.at.since(ended.arrived).0;
        for extent in ended.fills {
            let id = self.next_id;
            self.next_id += 1;
            let flight = ModelledFlight {
                arrived: self.now,
                pieces: self.pool.submit(self.now, id, 0, DriveOp::Write, extent),
                client: false,
                fills: Vec::new(),
            };
            self.flight.insert(id, flight);
        }
    }

    fn estimate(mut self, timed: bool) -> Estimate {
        while self.next_event().is_some() && !self.flight.is_empty() {
            self.step();
        }
        let span = self.now.since(self.began.unwrap_or(self.now)).as_secs_f64();
        let rate = |bytes: u64| match span > 0.0 && timed {
            true => bytes as f64 / span,
            false => 0.0,
        };
        let us = |ns: f64| ns / 1e3;
        Estimate {
            hit_ratio: self.contents.hit_ratio(),
            latency_us_mean: us(self.latencies.mean()),
            latency_us_p99: us(self.latencies.value_at_quantile(0.99) as f64),
            origin_bytes_per_second: rate(self.origin.bytes()),
            origin_busy: (timed && span > 0.0).then(|| self.origin.busy().as_secs_f64() / span),
            saturated: self.saturated,
            pool_written_bytes_per_second: rate(self.pool_written),
        }
    }
}

/// Sizes of pools up to one that holds `footprint` bytes, the smallest first: two for each octave,
/// then one.
fn octaves(footprint: u64, line_bytes: u64) -> Vec<u64> {
    let whole = |bytes: f64| (bytes as u64).div_ceil(line_bytes).max(1) * line_bytes;
    let half_octaves = (0..2 * FINE_OCTAVES).map(f64::from).map(|step| step / 2.0);
    let octaves = (FINE_OCTAVES..OCTAVES).map(f64::from);
    let steps = half_octaves.chain(octaves);
    let mut sizes: Vec<u64> = steps
        .map(|step| whole(footprint as f64 / step.exp2()))
        .collect();
    sizes.reverse();
    sizes.dedup();
    sizes
}

/// Hits of pools of sizes up to `footprint` bytes, the smallest first, in lines of `line_bytes`.
/// `trace` begins the records from the first.
pub fn hits<E, R: Iterator<Item = Result<TraceRecord, E>>>(
    trace: impl Fn() -> Result<R, E>,
    policy: &str,
    footprint: u64,
    line_bytes: u64,
) -> Result<Vec<Hits>, E> {
    let replay = |sizes: Vec<u64>| -> Result<Vec<Hits>, E> {
        let pool = |bytes: u64| (bytes, ModelledContents::new(policy, bytes, line_bytes));
        let mut pools: Vec<(u64, ModelledContents)> = sizes.into_iter().map(pool).collect();
        for record in trace()? {
            let record = record?;
            for (_, contents) in &mut pools {
                contents.look_up(&record);
            }
        }
        let hits = pools.into_iter().map(|(pool_bytes, contents)| Hits {
            pool_bytes,
            hit_ratio: contents.hit_ratio(),
            error: 0.0,
        });
        Ok(hits.collect())
    };
    let mut curve = replay(octaves(footprint, line_bytes))?;
    // The size to recommend lies between the size found and the one below.
    let found = recommended(&curve).map_or(0, |found| found.pool_bytes);
    let below = curve.iter().rfind(|size| size.pool_bytes < found);
    let below = below.map_or(0, |size| size.pool_bytes);
    let step = (found - below) / BETWEEN;
    let between = (1..BETWEEN).map(|n| (below + n * step) / line_bytes * line_bytes);
    let mut between: Vec<u64> = between
        .filter(|size| below < *size && *size < found)
        .collect();
    between.dedup();
    curve.extend(replay(between)?);
    curve.sort_by_key(|size| size.pool_bytes);
    Ok(curve)
}

/// Estimates of a trace for pools of `sizes` in bytes, in lines of `line_bytes`. `policy` is a name
/// of the registry. `timed` if the records have real times.
pub fn replay<E: From<block::IoError>>(
    records: impl Iterator<Item = Result<TraceRecord, E>>,
    policy: &str,
    sizes: &[u64],
    line_bytes: u64,
    timed: bool,
    devices: &ModelledDevices,
) -> Result<Vec<Estimate>, E> {
    let lane = |bytes: &u64| SizeLane::new(policy, *bytes, line_bytes, devices);
    let mut lanes = sizes.iter().map(lane).collect::<IoResult<Vec<_>>>()?;
    for record in records {
        let record = record?;
        for lane in &mut lanes {
            lane.request(&record, timed);
        }
    }
    let estimates = lanes.into_iter().map(|lane| lane.estimate(timed));
    Ok(estimates.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::IoError;

    fn devices() -> ModelledDevices {
        ModelledDevices {
            origin: Drive::named("ST3500320AS").unwrap(),
            origin_drives: 1,
            pool: Drive::named("Nytro 400").unwrap(),
        }
    }

    fn run(records: Vec<TraceRecord>, sizes: &[u64], timed: bool) -> Vec<Estimate> {
        let records = records.into_iter().map(Ok::<_, IoError>);
        replay(records, "lru", sizes, 65536, timed, &devices()).unwrap()
    }

    fn scattered(count: u64, lines: u64, every: Nanos, op: trace::RecordOp) -> Vec<TraceRecord> {
        let record = |i: u64| TraceRecord {
            time: Nanos(every.0 * i),
            op,
            offset_bytes: i % lines * 7919 % 100_000 * 65536,
            len_bytes: 8192,
            ..TraceRecord::default()
        };
        (0..count).map(record).collect()
    }

    #[test]
    fn a_pool_that_holds_the_loop_serves_it_at_its_own_speed() {
        let records = scattered(4000, 40, Nanos::from_millis(50), trace::RecordOp::Read);
        let [without, small, large] = run(records, &[0, 10 << 16, 40 << 16], true)[..] else {
            panic!("an estimate for each size");
        };
        assert_eq!(
            (without.hit_ratio, small.hit_ratio, large.hit_ratio),
            (0.0, 0.0, 0.99)
        );
        assert!(without.latency_us_mean > 5_000.0, "{without:?}");
        assert!(large.latency_us_p99 < 1_000.0, "{large:?}");
        assert!(without.origin_busy.unwrap() > 0.1 && large.origin_busy.unwrap() < 0.01);
        assert!((without.origin_bytes_per_second / (8192.0 * 20.0) - 1.0).abs() < 0.01);
        assert!((small.pool_written_bytes_per_second / (8192.0 * 20.0) - 1.0).abs() < 0.01);
        assert!(!without.saturated);
    }

    #[test]
    fn a_block_is_a_hit_only_once_it_was_read() {
        let mut records = scattered(40, 40, Nanos::from_secs(1), trace::RecordOp::Read);
        let shifted = records.iter().map(|r| TraceRecord {
            time: r.time + Nanos::from_secs(60),
            offset_bytes: r.offset_bytes + 4096,
            ..*r
        });
        records.extend(shifted.collect::<Vec<_>>());
        assert_eq!(run(records, &[40 << 16], true)[0].hit_ratio, 0.0);
    }

    #[test]
    fn writes_go_to_both_and_a_burst_saturates_the_origin() {
        let records = scattered(3000, 1000, Nanos::from_micros(10), trace::RecordOp::Write);
        let estimate = run(records.clone(), &[1000 << 16], true)[0];
        assert!(
            estimate.saturated && estimate.origin_busy.unwrap() > 0.9,
            "{estimate:?}"
        );
        assert!(estimate.pool_written_bytes_per_second > 0.0);
        let untimed = run(records, &[1000 << 16], false)[0];
        assert!(!untimed.saturated && untimed.origin_busy.is_none());
        assert_eq!(untimed.origin_bytes_per_second, 0.0);
    }

    #[test]
    fn fills_of_a_pool_slower_than_the_origin_do_not_pile_up() {
        let slow = ModelledDevices {
            origin: Drive::named("Nytro 400").unwrap(),
            origin_drives: 1,
            pool: Drive::named("ST3500320AS").unwrap(),
        };
        for timed in [true, false] {
            let mut lane = SizeLane::new("lru", 1 << 30, 65536, &slow).unwrap();
            for record in scattered(5000, 5000, Nanos::from_micros(100), trace::RecordOp::Read) {
                lane.request(&record, timed);
                assert!(lane.flight.len() <= FLIGHTS_MAX, "timed: {timed}");
            }
        }
    }

    #[test]
    fn addresses_past_the_drives_start_over() {
        let mut record = scattered(1, 1, Nanos::ZERO, trace::RecordOp::Read)[0];
        record.offset_bytes = (1 << 50) + 123;
        let mut lane = SizeLane::new("lru", 0, 65536, &devices()).unwrap();
        lane.request(&record, true);
        assert!(lane.estimate(true).latency_us_mean > 0.0);
    }
}
