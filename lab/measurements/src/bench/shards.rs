//! 4 KiB hits of one cache, asked for on every shard at once, on files in memory.
//!
//! Each run is a process of its own. Its load is made on its shards, through the gates that
//! frontends use: on the home shard the volume's own gate, elsewhere one that stands for that gate.

use super::engine::{self, VOLUME_BYTES};
use super::{BenchRow, Goal, paired};
use block::{Boundary, Env, Gate, Nanos, ShardId};
use cache::Counter;
use futures_channel::oneshot;
use futures_util::future::join_all;
use shard::{
    Config, GateAsker, GateEnd, GateLane, GatePass, GateTable, Local, LocatingGate, Mesh,
    RemoteGate, Shard, lane,
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

/// Reads on `shards` shards, which look for work as long as `busy_poll`, for `span`, of files made in
/// `dir`. Returns the reads a second.
pub fn reads(shards: u32, busy_poll: Nanos, span: Duration, dir: &Path) -> io::Result<f64> {
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
    let (origin, pool) = (
        open("origin", VOLUME_BYTES)?,
        open("pool", 2 * VOLUME_BYTES)?,
    );
    let (mut ways, mut ends) = (Vec::new(), Vec::new());
    for _ in 1..shards {
        let ((end, lane), (offer, offered), (done, is_done)) =
            (lane(), oneshot::channel(), oneshot::channel());
        ways.push(Way {
            lane,
            offer,
            is_done,
        });
        let further = FurtherEnd { end, offered, done };
        ends.push(further);
    }
    let (ways, ends) = (Mutex::new(Some(ways)), Mutex::new(ends));
    let total = Arc::<AtomicU64>::default();
    let (count, mesh) = (total.clone(), Mesh::new(shards));
    block::Host::run(&mut host, shards, move |id, driver| {
        let (mesh, count) = (mesh.clone(), count.clone());
        let config = Config {
            busy_poll,
            ..Config::default()
        };
        if id == ShardId(0) {
            let ways = ways.lock().expect("no panic").take().expect("booted once");
            return Shard::boot(id, driver, mesh, config, move |local| async move {
                let disk = |target| local.disk(target).expect("opened above");
                let warm = engine::warm(&local, disk(pool), disk(origin), "auto").await;
                let (cache, volume) = warm.expect("the files are readable and writable");
                let before = cache.counters().get(Counter::ReadsMissed);
                home(&local, Gate::new(volume, local.env()), ways, span, &count).await;
                let missed = cache.counters().get(Counter::ReadsMissed) - before;
                assert_eq!(missed, 0, "every read is a hit");
            });
        }
        let further = ends.lock().expect("no panic").pop().expect("one a shard");
        Shard::boot(id, driver, mesh, config, move |local| async move {
            let pass = further.offered.await.expect("the home shard lasts");
            let gate = RemoteGate::new(GateAsker::begin(further.end, &local), pass);
            load(gate, local.env(), span, &count).await;
            // The home shard waits for this.
            let _ = further.done.send(());
        })
    });
    Ok(total.load(Relaxed) as f64 / span.as_secs_f64())
}

async fn home<G: Boundary + Clone>(
    local: &Local<UringDriver>,
    gate: G,
    ways: Vec<Way>,
    span: Duration,
    count: &Arc<AtomicU64>,
) {
    let (env, table) = (local.env(), Rc::new(GateTable::default()));
    let mut ended = Vec::new();
    for way in ways {
        env.spawn.spawn(table.clone().serve(way.lane, env.clone()));
        let pass = table.add(gate.clone());
        assert!(way.offer.send(pass).is_ok(), "the further shard lasts");
        ended.push(way.is_done);
    }
    load(LocatingGate::new(gate, local), env, span, count).await;
    for end in join_all(ended).await {
        end.expect("the further shard has done its reads");
    }
}

/// Reads at random until `span` has passed, by as many tasks as there are reads at once.
async fn load<G: Boundary + Clone>(gate: G, env: Env, span: Duration, count: &Arc<AtomicU64>) {
    let end = env.timer.now() + Nanos(span.as_nanos() as u64);
    let blocks = gate.bytes() / READ_BYTES as u64;
    let readers = (0..DEPTH).map(|seed| {
        let (gate, timer, count) = (gate.clone(), env.timer.clone(), count.clone());
        let (done, ended) = oneshot::channel::<()>();
        env.spawn.spawn(async move {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut reads = 0;
            while timer.now() < end {
                let offset = rng.u64(0..blocks) * READ_BYTES as u64;
                let read = gate.read(offset, READ_BYTES).await;
                drop(read.expect("the files are readable"));
                reads += 1;
            }
            count.fetch_add(reads, Relaxed);
            // The shard outlives its tasks.
            let _ = done.send(());
        });
        ended
    });
    for ended in join_all(readers).await {
        ended.expect("the task ends");
    }
}

/// A process that reads, and the directory of its files.
struct ReadingProcess {
    child: Child,
    _dir: tempfile::TempDir,
}

impl ReadingProcess {
    fn start(
        program: &Path,
        (shards, busy_poll): (u32, Nanos),
        span: Duration,
    ) -> io::Result<ReadingProcess> {
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let mut command = Command::new(program);
        command.arg(shards.to_string());
        command.arg((busy_poll.0 / 1000).to_string());
        command.arg(span.as_secs_f64().to_string()).arg(dir.path());
        let child = command.stdout(Stdio::piped()).spawn()?;
        Ok(ReadingProcess { child, _dir: dir })
    }

    fn reads(self) -> io::Result<f64> {
        let output = self.child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let reads = text.trim().parse();
        reads.map_err(|_| io::Error::other(format!("no number of reads: {text}")))
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
/// `shards`.
pub fn rows(program: &Path, span: Duration) -> io::Result<Vec<BenchRow>> {
    let (mut beside_one, mut beside_two, mut looking) = (Vec::new(), Vec::new(), Vec::new());
    let (run, mut dropped) = (|shards| ReadingProcess::start(program, shards, span), 0);
    while beside_one.len() < PAIRS && dropped < PAIRS {
        let before = stolen()?;
        let two = run((2, Nanos::ZERO))?.reads()?;
        let one = run((1, Nanos::ZERO))?.reads()?;
        let looks = run((2, BUSY_POLL))?.reads()?;
        let (first, second) = (run((1, Nanos::ZERO))?, run((1, Nanos::ZERO))?);
        let both = first.reads()? + second.reads()?;
        if stolen()? - before > STEAL_MAX {
            dropped += 1;
            continue;
        }
        beside_one.push((two, one));
        beside_two.push((two, both));
        looking.push((looks, two));
    }
    println!("{dropped} pairs were dropped: others took the processors");
    let name = "4 KiB hits of one cache on two shards, depth 32 on each";
    let row = |name: &str, peer, goal, pairs: &[(f64, f64)]| {
        paired(name, "reads a second", peer, goal, pairs)
    };
    Ok(vec![
        row(
            name,
            "one shard",
            Some(Goal::RatioAtLeast(1.7)),
            &beside_one,
        ),
        row(
            name,
            "two processes of one shard each, at the same time",
            Some(Goal::RatioAtLeast(0.85)),
            &beside_two,
        ),
        row(
            &format!("{name}, busy_poll of {BUSY_POLL}"),
            "without busy_poll",
            None,
            &looking,
        ),
    ])
}
