//! Hits of more shards than this machine has processors for.
//!
//! The shards, gates and lanes are the product's, in a simulated world with a processor for each
//! shard. A turn, a hit, and at the home shard a look-up and the count of a hit take the processor's
//! time; the disks are fast.
//!
//! Not here: the contention of processors for memory, caches and the kernel's locks.

use super::load::{LoadedShards, ShardRun};
use crate::report::shard_chart;
use advise::page::standalone;
use block::{
    Boundary, Content, Extent, FlushErrors, Fua, Generations, Geometry, Host, IoResult, KeptHits,
    LocatedEnd, LocatedRead, LocatedUnit, Nanos, Sectors, ShardId, SharedBuf,
};
use shard::Mesh;
use sim::{DiskSpec, ServiceSpan, ServiceTime, SimDriver, SimHost, SimWorld, WorldControl};
use std::error::Error;
use std::sync::Arc;

/// A turn: two entries into the kernel, and the wake of a sleeping thread.
const TURN: Nanos = Nanos::from_micros(2);
/// Time of a disk, which has no queue.
const DISK: Nanos = Nanos::from_micros(10);
/// Time of the reads.
const SPAN: Nanos = Nanos::from_millis(20);
const VOLUME_BYTES: u64 = 8 << 20;

/// Times of the work of shards.
#[derive(Clone, Copy)]
pub struct ShardCosts {
    /// A hit, on the shard that reads.
    hit: Nanos,
    /// A hit of a further shard, on the home shard.
    count: Nanos,
}

impl ShardCosts {
    /// Costs as measured, in nanoseconds. The cost of a hit has its part of a turn.
    pub fn measured(hit_ns: f64, count_ns: f64) -> ShardCosts {
        ShardCosts {
            hit: Nanos(hit_ns as u64),
            count: Nanos(count_ns as u64),
        }
    }
}

/// A gate with look-ups and counts that take the home shard's time.
#[derive(Clone)]
struct CostlyGate<G> {
    gate: G,
    control: WorldControl,
    costs: ShardCosts,
}

impl<G: Boundary> Boundary for CostlyGate<G> {
    fn geometry(&self) -> &Geometry {
        self.gate.geometry()
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.gate.flush_errors()
    }

    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        self.gate.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        self.gate.write(offset, data, fua).await
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.gate.zero(offset, len).await
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.gate.discard(offset, len).await
    }

    async fn flush(&self) -> IoResult {
        self.gate.flush().await
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.gate.extents(offset, len, out).await
    }

    async fn announce(&self, offset: u64, len: u64) {
        self.gate.announce(offset, len).await;
    }

    fn locate(&self, offset: u64, len: usize) -> Option<LocatedRead> {
        self.gate.locate(offset, len)
    }

    fn locate_unit(&self, offset: u64) -> Option<LocatedUnit> {
        self.control.occupy(ShardId(0), self.costs.hit);
        self.gate.locate_unit(offset)
    }

    fn generations(&self) -> Option<Arc<Generations>> {
        self.gate.generations()
    }

    fn located(&self, end: &LocatedEnd) {
        self.gate.located(end);
    }

    fn kept(&self, hits: &KeptHits) {
        let cost = Nanos(self.costs.count.0 * hits.requests.count());
        self.control.occupy(ShardId(0), cost);
        self.gate.kept(hits);
    }
}

/// Reads a second of `shards` modelled shards.
pub(super) fn reads(shards: u32, costs: ShardCosts) -> f64 {
    run(shards, costs, |_, _, _| ())
}

/// Reads a second of `shards` modelled shards; `read` hears of each read's shard and end.
fn run(
    shards: u32,
    costs: ShardCosts,
    read: impl Fn(ShardId, &WorldControl, Nanos) + Clone + Send + Sync + 'static,
) -> f64 {
    let mut world = SimWorld::new(1);
    let mut disk = |name, bytes: u64| {
        let geometry = Geometry::new(name, Sectors(bytes / 512), Sectors(1));
        let time = ServiceSpan {
            min: DISK,
            max: DISK,
        };
        let spec = DiskSpec {
            service: ServiceTime::uniform(time),
            ..DiskSpec::new(geometry)
        };
        world.add_disk(spec).expect("a sound geometry")
    };
    let disks = (disk("pool", 2 * VOLUME_BYTES), disk("origin", VOLUME_BYTES));
    let control = world.control();
    let run = ShardRun {
        shards,
        busy_poll: Nanos::ZERO,
        home_reads: true,
        span: SPAN,
    };
    let (loaded, mesh) = (
        LoadedShards::new(run, VOLUME_BYTES, disks),
        Mesh::new(shards),
    );
    let booted = loaded.clone();
    let mut host = SimHost::new(world).turn_cost(TURN);
    Host::run(&mut host, shards, move |id, driver: SimDriver| {
        let (of_gate, of_reads) = (control.clone(), control.clone());
        let gate = move |gate| CostlyGate {
            gate,
            control: of_gate,
            costs,
        };
        let read = read.clone();
        let cost = move |now| {
            of_reads.occupy(id, costs.hit);
            read(id, &of_reads, now);
        };
        booted.clone().boot((id, driver, mesh.clone()), gate, cost)
    })
    .expect("shards without a ring");
    loaded.result().per_s
}

/// A drawing of the hits of 1 to 16 modelled shards, beside as many times the hits of one.
pub fn chart(costs: ShardCosts) -> Result<String, Box<dyn Error>> {
    let points = [1, 2, 4, 6, 8, 10, 12, 14, 16].map(|shards| (shards, reads(shards, costs)));
    let one = points[0].1;
    let of = |value: &dyn Fn(&(u32, f64)) -> f64| {
        let points = points.iter();
        points
            .map(|point| (f64::from(point.0), value(point) / 1e6))
            .collect()
    };
    let linear = of(&|point| one * f64::from(point.0));
    let drawn = shard_chart(of(&|point| point.1), linear)?;
    Ok(standalone(&drawn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const SHARDS: u32 = 3;
    const STALL: Nanos = Nanos::from_millis(100);

    /// The longest time between two reads of each shard, when `stalled` stalls.
    fn gaps(stalled: ShardId) -> Vec<Nanos> {
        let costs = ShardCosts::measured(1000.0, 20.0);
        let state = Arc::new(Mutex::new((
            0,
            vec![(Nanos::ZERO, Nanos::ZERO); SHARDS as usize],
        )));
        let seen = state.clone();
        run(SHARDS, costs, move |shard, control, now| {
            let (reads, shards) = &mut *seen.lock().unwrap();
            *reads += 1;
            if *reads == 10_000 {
                control.occupy(stalled, STALL);
            }
            let (last, gap) = &mut shards[shard.0 as usize];
            if *reads > 5_000 {
                *gap = (*gap).max(now.since(*last));
            }
            *last = now;
        });
        let state = state.lock().unwrap();
        state.1.iter().map(|(_, gap)| *gap).collect()
    }

    #[test]
    fn a_shard_that_stalls_holds_up_its_own_hits_alone() {
        for stalled in 0..SHARDS {
            for (shard, gap) in gaps(ShardId(stalled)).into_iter().enumerate() {
                let bounds = match shard as u32 == stalled {
                    true => STALL..STALL + Nanos::from_millis(1),
                    false => Nanos::ZERO..Nanos::from_millis(1),
                };
                assert!(
                    bounds.contains(&gap),
                    "shard {shard}, {stalled} stalled: {gap}"
                );
            }
        }
    }
}
