//! Scenarios and their parts.

use block::{Nanos, Sectors, TargetId};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, ServiceSpan, SimRng, When};

/// The most sectors of an operation.
const LEN_MAX: u64 = 512;
/// Memory of a client's operation while a disk hangs, as the NBD server counts: the pages that the
/// operation touches, rounded up to a power of two.
const HANG_CHARGE: u64 = 64 << 10;
/// Room on a pool disk beside lines, for metadata.
const METADATA: Sectors = Sectors(96 * 8);
/// The size of the witness of a pool with metadata.
pub(crate) const WITNESS: Sectors = Sectors(64 * 8);

/// Everything that a run is made of.
#[derive(Clone, Debug)]
pub struct CacheScenario {
    /// Seeds the world and every choice.
    pub seed: u64,
    /// Sizes of the volumes' origins.
    pub volumes: Vec<Sectors>,
    /// The origins' logical block.
    pub block: Sectors,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// The replacement policy.
    pub policy: &'static str,
    /// Sizes of pool disks; all exist from the start, not all are in the pool.
    pub pool: Vec<Sectors>,
    /// Number of pool disks that are in the pool at first.
    pub in_pool: usize,
    /// Clients at work at once.
    pub clients: u64,
    /// Operations of all clients together.
    pub operations: u64,
    /// The engine's limit for hits.
    pub hit_latency_max: Nanos,
    /// Promoted bytes a second, if bounded.
    pub fill_bytes_per_s: Option<u64>,
    /// The engine's cutoff for sequential streams.
    pub sequential_bytes: Option<u64>,
    /// Clients give up on some operations.
    pub abandon: bool,
    /// The origins fail some operations.
    pub origin_faults: bool,
    /// Service times of the origins.
    pub origin_time: ServiceSpan,
    /// Service times of the pool.
    pub pool_time: ServiceSpan,
    /// The shard's buffers.
    pub buffer_bytes: usize,
    /// The most sectors of an operation.
    pub len_max: u64,
    /// A pool disk hangs for ever, and clients use all their share of memory.
    pub hang: bool,
    /// The pool remembers its lines over a restart, by metadata.
    pub durable: bool,
    /// Every second client is on another shard than the cache.
    pub crossed: bool,
}

impl CacheScenario {
    /// The scenario of `seed`.
    pub fn new(seed: u64) -> CacheScenario {
        let mut rng = SimRng::fork(seed, 1);
        let rng = &mut rng;
        let block = Sectors(if rng.chance(0.7) { 1 } else { 8 });
        let volumes: Vec<_> = (0..rng.between(1, 2))
            .map(|_| {
                let sectors = rng.between(256, 4096);
                Sectors(if rng.chance(0.5) {
                    sectors / 128 * 128
                } else {
                    sectors / 8 * 8 + block.0 % 8 * 3
                })
            })
            .collect();
        let line_bytes = 4096 << (2 * rng.below(4));
        let line = u64::from(line_bytes) / 512;
        let disks = rng.between(1, 4);
        // From a tenth to all of the volumes fits. A disk of one line has room beside the line, for
        // a write that goes astray.
        let all: u64 = volumes.iter().map(|v: &Sectors| v.0).sum();
        let each = all * rng.between(10, 110) / 100 / disks;
        let pool = (0..disks)
            .map(|_| Sectors((each / line).max(1) * line + 8 * rng.between(1, 3)))
            .collect();
        CacheScenario {
            seed,
            volumes,
            block,
            line_bytes,
            policy: policy::registry::POLICIES
                [rng.below(policy::registry::POLICIES.len() as u64) as usize],
            pool,
            in_pool: rng.between(1, disks) as usize,
            clients: rng.between(1, 8),
            operations: rng.between(100, 900),
            hit_latency_max: Nanos::from_millis(rng.between(1, 5)),
            fill_bytes_per_s: rng.chance(0.1).then(|| rng.between(1 << 20, 16 << 20)),
            sequential_bytes: rng.chance(0.5).then(|| rng.between(16 << 10, 1 << 20)),
            abandon: rng.chance(0.3),
            origin_faults: rng.chance(0.3),
            origin_time: ServiceSpan {
                min: Nanos::from_micros(20),
                max: Nanos::from_micros(rng.between(100, 2000)),
            },
            pool_time: ServiceSpan {
                min: Nanos::from_micros(5),
                max: Nanos::from_micros(rng.between(20, 500)),
            },
            buffer_bytes: if rng.chance(0.3) { 4 << 20 } else { 16 << 20 },
            len_max: LEN_MAX,
            hang: false,
            durable: false,
            crossed: false,
        }
        .made_harder(seed)
    }

    /// Gives half of the pools metadata, and half of the caches clients on another shard. Now and
    /// then one disk hangs for ever under clients that fill their half of the memory.
    fn made_harder(mut self, seed: u64) -> CacheScenario {
        let mut rng = SimRng::fork(seed, 4);
        self.durable = rng.chance(0.5);
        if self.durable {
            self.pool.iter_mut().for_each(|disk| disk.0 += METADATA.0);
        }
        self.hang = rng.chance(0.15);
        if self.hang {
            self.buffer_bytes = 4 << 20;
            self.clients = (self.buffer_bytes / 2) as u64 / HANG_CHARGE;
            self.len_max = HANG_CHARGE / 2 / block::SECTOR_BYTES;
            self.operations *= 3;
            self.sequential_bytes = None;
        }
        self.crossed = rng.chance(0.5);
        self
    }

    /// The faults of the disks themselves.
    pub fn plan(&self, origins: &[TargetId], pool: &[TargetId]) -> FaultPlan {
        let mut rng = SimRng::fork(self.seed, 2);
        let rng = &mut rng;
        let late = Nanos(self.hit_latency_max.0 * rng.between(1, 3));
        let media = FaultEffect::Fail(block::IoErrorKind::Media);
        let kinds = [
            (OpFilter::Reads, media, 0.05),
            (OpFilter::Writes, media, 0.05),
            (OpFilter::Reads, FaultEffect::FlipBit, 0.05),
            (OpFilter::Writes, FaultEffect::FlipBit, 0.05),
            (OpFilter::Writes, FaultEffect::Drop, 0.03),
            (OpFilter::Writes, FaultEffect::Misdirect, 0.03),
            (OpFilter::All, FaultEffect::Delay(late), 0.05),
            (OpFilter::All, FaultEffect::Stick(None), 0.005),
        ];
        let mut plan = FaultPlan::default();
        for disk in pool {
            for (ops, effect, most) in kinds {
                if rng.chance(0.25) {
                    let when = When::Chance(most * rng.between(1, 100) as f64 / 100.0);
                    plan.rules.push(FaultRule::new(*disk, ops, when, effect));
                }
            }
        }
        if self.origin_faults {
            for disk in origins {
                for ops in [OpFilter::Reads, OpFilter::Writes] {
                    let when = When::Chance(0.02);
                    plan.rules.push(FaultRule::new(*disk, ops, when, media));
                }
            }
        }
        plan
    }
}
