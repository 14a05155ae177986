//! The shards of a run, on any driver: a cache on the home shard, and readers on all.

use super::super::engine;
use block::{Boundary, Driver, Env, Gate, Nanos, ShardId, ShardTurn, TargetId};
use cache::{Counter, Volume};
use futures_channel::oneshot;
use futures_util::future::join_all;
use shard::{
    Config as ShardConfig, GateAsker, GateEnd, GateLane, GatePass, GateTable, Local, LocatingGate,
    Mesh, RemoteGate, Shard, ShardDisk, lane,
};
use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Readers of each shard.
const DEPTH: u64 = 32;
const READ_BYTES: usize = 4096;

/// The ends of a way from a further shard to the home shard.
struct Way {
    lane: GateLane,
    offer: oneshot::Sender<GatePass>,
    is_done: oneshot::Receiver<()>,
}

struct FurtherEnd {
    end: GateEnd,
    offered: oneshot::Receiver<GatePass>,
    done: oneshot::Sender<()>,
}

/// A run of one process.
#[derive(Clone, Copy)]
pub struct ShardRun {
    /// Number of shards.
    pub shards: u32,
    /// Time that a shard looks for work before it sleeps.
    pub busy_poll: Nanos,
    /// True if the home shard reads too.
    pub home_reads: bool,
    /// Time of the reads.
    pub span: Nanos,
}

/// Result of a run.
#[derive(Clone, Copy)]
pub struct ShardReads {
    /// Reads of all shards a second.
    pub per_s: f64,
    /// Processor time of the home shard for each read of any shard, in nanoseconds.
    pub home_ns: f64,
}

/// The shards of a run.
pub(super) struct LoadedShards {
    run: ShardRun,
    volume_bytes: u64,
    pool: TargetId,
    origin: TargetId,
    ways: Mutex<Option<Vec<Way>>>,
    ends: Mutex<Vec<FurtherEnd>>,
    reads: AtomicU64,
    home_ns: AtomicU64,
}

impl LoadedShards {
    pub(super) fn new(
        run: ShardRun,
        volume_bytes: u64,
        (pool, origin): (TargetId, TargetId),
    ) -> Arc<Self> {
        let (mut ways, mut ends) = (Vec::new(), Vec::new());
        for _ in 1..run.shards {
            let ((end, lane), (offer, offered), (done, is_done)) =
                (lane(), oneshot::channel(), oneshot::channel());
            ways.push(Way {
                lane,
                offer,
                is_done,
            });
            ends.push(FurtherEnd { end, offered, done });
        }
        Arc::new(LoadedShards {
            run,
            volume_bytes,
            pool,
            origin,
            ways: Mutex::new(Some(ways)),
            ends: Mutex::new(ends),
            reads: AtomicU64::new(0),
            home_ns: AtomicU64::new(0),
        })
    }

    /// Boots a shard. The home shard's gate is made by `gate` of that of the volume; `read`
    /// hears of each read of a shard.
    pub(super) fn boot<D, G, F>(
        self: Arc<Self>,
        (id, driver, mesh): (ShardId, D, Mesh<D>),
        gate: impl FnOnce(Gate<Volume<ShardDisk<D>>>) -> G + 'static,
        read: F,
    ) -> Box<dyn ShardTurn>
    where
        D: Driver,
        G: Boundary + Clone,
        F: Fn(Nanos) + Clone + 'static,
    {
        let config = ShardConfig {
            busy_poll: self.run.busy_poll,
            ..ShardConfig::default()
        };
        if id == ShardId(0) {
            return Shard::boot(id, driver, mesh, config, move |local| async move {
                let disk = |target| local.disk(target).expect("opened above");
                let subject = ("auto", self.volume_bytes);
                let warm = engine::warm(&local, disk(self.pool), disk(self.origin), subject);
                let (cache, volume) = warm.await.expect("the disks are readable and writable");
                let before = cache.counters().get(Counter::ReadsMissed);
                self.home(&local, gate(Gate::new(volume, local.env())), read)
                    .await;
                let missed = cache.counters().get(Counter::ReadsMissed) - before;
                assert_eq!(missed, 0, "every read is a hit");
            });
        }
        let further = self.ends.lock().expect("no panic").pop();
        let further = further.expect("one a shard");
        Shard::boot(id, driver, mesh, config, move |local| async move {
            let pass = further.offered.await.expect("the home shard lasts");
            let gate = RemoteGate::new(GateAsker::begin(further.end, &local), pass);
            self.load(gate, local.env(), read).await;
            // The home shard waits for this.
            let _ = further.done.send(());
        })
    }

    async fn home<D: Driver, G: Boundary + Clone>(
        &self,
        local: &Local<D>,
        gate: G,
        read: impl Fn(Nanos) + Clone + 'static,
    ) {
        let (env, table) = (local.env(), Rc::new(GateTable::default()));
        let ways = self.ways.lock().expect("no panic").take();
        let before = thread_ns();
        let mut ended = Vec::new();
        for way in ways.expect("booted once") {
            env.spawn.spawn(table.clone().serve(way.lane, env.clone()));
            let pass = table.add(gate.clone());
            assert!(way.offer.send(pass).is_ok(), "the further shard lasts");
            ended.push(way.is_done);
        }
        if self.run.home_reads {
            self.load(LocatingGate::new(gate, local), env, read).await;
        }
        for end in join_all(ended).await {
            end.expect("the further shard has done its reads");
        }
        self.home_ns.store(thread_ns() - before, Relaxed);
    }

    /// Reads at random until the time has passed, by as many tasks as there are reads at once.
    async fn load<G: Boundary + Clone>(
        &self,
        gate: G,
        env: Env,
        read: impl Fn(Nanos) + Clone + 'static,
    ) {
        let end = env.timer.now() + self.run.span;
        let blocks = gate.bytes() / READ_BYTES as u64;
        let readers = (0..DEPTH).map(|seed| {
            let (gate, timer, read) = (gate.clone(), env.timer.clone(), read.clone());
            let (done, ended) = oneshot::channel::<u64>();
            env.spawn.spawn(async move {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut reads = 0;
                while timer.now() < end {
                    let offset = rng.u64(0..blocks) * READ_BYTES as u64;
                    drop(gate.read(offset, READ_BYTES).await.expect("a sound disk"));
                    read(timer.now());
                    reads += 1;
                }
                // The shard outlives its tasks.
                let _ = done.send(reads);
            });
            ended
        });
        for reads in join_all(readers).await {
            self.reads.fetch_add(reads.expect("the task ends"), Relaxed);
        }
    }

    pub(super) fn result(&self) -> ShardReads {
        let reads = self.reads.load(Relaxed) as f64;
        ShardReads {
            per_s: reads / self.run.span.as_secs_f64(),
            home_ns: self.home_ns.load(Relaxed) as f64 / reads,
        }
    }
}

/// Processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has the file");
    let first = text.split_whitespace().next();
    first.and_then(|ns| ns.parse().ok()).expect("a number")
}
