//! 4 KiB hits of one cache, asked for on every shard at once, on files in memory.
//!
//! Each run is a process of its own. Its load is made on its shards, through the gates that
//! frontends use: on the home shard the volume's own gate, elsewhere one that stands for that gate.

mod model;

use super::engine::{self, VOLUME_BYTES};
use super::{BenchRow, Goal, alone, paired};
use block::{Boundary, Driver, Env, Gate, Host, Nanos, ShardId, ShardTurn, TargetId};
use cache::{Counter, Volume};
use futures_channel::oneshot;
use futures_util::future::join_all;
pub use model::{ShardCosts, chart};
use shard::{
    Config as ShardConfig, GateAsker, GateEnd, GateLane, GatePass, GateTable, Local, LocatingGate,
    Mesh, RemoteGate, Shard, ShardDisk, lane,
};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uring::{DiskOptions, Options, Uring, UringDriver};

/// Readers of each shard.
const DEPTH: u64 = 32;
const READ_BYTES: usize = 4096;
/// Pairs of runs.
const PAIRS: usize = 15;
/// The time that shards look for work, where they do.
const BUSY_POLL: Nanos = Nanos::from_micros(20);
/// Most ticks of a processor that others may take during a pair: of 10 ms each.
const STEAL_MAX: u64 = 4;

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
struct LoadedShards {
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
    fn new(run: ShardRun, volume_bytes: u64, (pool, origin): (TargetId, TargetId)) -> Arc<Self> {
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

    /// Boots a shard. The home shard's gate is what `gate` makes of that of the volume; `read`
    /// hears of each read of a shard.
    fn boot<D, G, F>(
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

    fn result(&self) -> ShardReads {
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

/// Carries out a run on files made in `dir`.
pub fn reads(run: ShardRun, dir: &Path) -> io::Result<ShardReads> {
    let mut host = Uring::new(Options::default()).map_err(io::Error::other)?;
    let open = |name: &str, bytes| {
        let path = dir.join(name);
        File::create(&path)?.set_len(bytes)?;
        let options = DiskOptions {
            buffered: true,
            ..DiskOptions::default()
        };
        let opened = host.open_disk(&path, &options);
        opened.map(|(disk, _)| disk).map_err(io::Error::other)
    };
    let disks = (
        open("pool", 2 * VOLUME_BYTES)?,
        open("origin", VOLUME_BYTES)?,
    );
    let (shards, mesh) = (
        LoadedShards::new(run, VOLUME_BYTES, disks),
        Mesh::new(run.shards),
    );
    let booted = shards.clone();
    Host::run(&mut host, run.shards, move |id, driver: UringDriver| {
        booted
            .clone()
            .boot((id, driver, mesh.clone()), |gate| gate, |_| ())
    });
    Ok(shards.result())
}

/// A process that reads, and the directory of its files.
struct ReadingProcess {
    child: Child,
    _dir: tempfile::TempDir,
}

impl ReadingProcess {
    fn start(program: &Path, run: ShardRun) -> io::Result<ReadingProcess> {
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let mut command = Command::new(program);
        command.arg(run.shards.to_string());
        command.arg((run.busy_poll.0 / 1000).to_string());
        command.arg(if run.home_reads { "all" } else { "further" });
        command.arg(run.span.as_secs_f64().to_string());
        let child = command.arg(dir.path()).stdout(Stdio::piped()).spawn()?;
        Ok(ReadingProcess { child, _dir: dir })
    }

    fn reads(self) -> io::Result<ShardReads> {
        let output = self.child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let none = || io::Error::other(format!("no number of reads: {text}"));
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).ok_or_else(none);
        Ok(ShardReads {
            per_s: next()?,
            home_ns: next()?,
        })
    }
}

/// Ticks that other guests of the machine took from this one.
fn stolen() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let steal = text.split_whitespace().nth(8);
    let steal = steal.and_then(|field| field.parse().ok());
    steal.ok_or_else(|| io::Error::other("/proc/stat has another form"))
}

/// Measures two shards beside one, and beside two processes of one shard each; `program` is
/// `shards`. Then models as many shards as this machine lacks, by the costs measured.
pub fn rows(program: &Path, span: Duration) -> io::Result<Vec<BenchRow>> {
    let start = |shards, busy_poll, home_reads| {
        let span = Nanos(span.as_nanos() as u64);
        let run = ShardRun {
            shards,
            busy_poll,
            home_reads,
            span,
        };
        ReadingProcess::start(program, run)
    };
    let run = |shards, busy_poll, home_reads| start(shards, busy_poll, home_reads)?.reads();
    let (mut beside_one, mut beside_two, mut looking) = (Vec::new(), Vec::new(), Vec::new());
    let (mut hits, mut counts, mut dropped) = (Vec::new(), Vec::new(), 0);
    while beside_one.len() < PAIRS && dropped < PAIRS {
        let before = stolen()?;
        let two = run(2, Nanos::ZERO, true)?.per_s;
        let one = run(1, Nanos::ZERO, true)?;
        let looks = run(2, BUSY_POLL, true)?.per_s;
        let (first, second) = (start(1, Nanos::ZERO, true)?, start(1, Nanos::ZERO, true)?);
        let both = first.reads()?.per_s + second.reads()?.per_s;
        let counted = run(2, Nanos::ZERO, false)?.home_ns;
        if stolen()? - before > STEAL_MAX {
            dropped += 1;
            continue;
        }
        beside_one.push((two, one.per_s));
        beside_two.push((two, both));
        looking.push((looks, two));
        hits.push(one.home_ns);
        counts.push(counted);
    }
    println!("{dropped} pairs were dropped: others took the processors");
    let name = "4 KiB hits of one cache on two shards, depth 32 on each";
    let row = |name: &str, peer, goal, pairs: &[(f64, f64)]| {
        paired(name, "reads a second", peer, goal, pairs)
    };
    let looks = format!("{name}, busy_poll of {BUSY_POLL}");
    let two = "two processes of one shard each, at the same time";
    let mut rows = vec![
        row(
            name,
            "one shard",
            Some(Goal::RatioAtLeast(1.7)),
            &beside_one,
        ),
        row(name, two, Some(Goal::RatioAtLeast(0.85)), &beside_two),
        row(&looks, "without busy_poll", None, &looking),
        alone("a 4 KiB hit on the home shard: its time", "ns", None, &hits),
        alone(
            "a 4 KiB hit on a further shard: the home shard's time",
            "ns",
            None,
            &counts,
        ),
    ];
    let costs = ShardCosts::measured(rows[3].ours, rows[4].ours);
    let one = model::reads(1, costs);
    for shards in [4, 8, 16] {
        rows.push(alone(
            format!("modelled hits on {shards} shards: of {shards} times one shard's"),
            "times",
            Some(Goal::AtLeast(0.85)),
            &[model::reads(shards, costs) / one / f64::from(shards)],
        ));
    }
    Ok(rows)
}
