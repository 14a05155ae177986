//! Cost of the executor itself: operations on a driver that completes at once.

use super::{BenchRow, Goal, alone};
use block::{
    Completion, Device, Driver, DriverOp, Geometry, Lba, Nanos, Pool, Sectors, ShardId, ShardTurn,
    TargetId, Token, TurnProgress, Unpark,
};
use shard::{Config, Mesh, Shard};
use std::io;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completes every operation at the next park.
pub(super) struct Nop {
    pool: Pool,
    due: Vec<Completion>,
    now: Nanos,
}

/// Time that passes with each park, so that periods end.
const TURN: Nanos = Nanos::from_micros(100);

impl Nop {
    pub(super) fn new() -> Nop {
        Nop {
            pool: Pool::new(16 << 20),
            due: Vec::new(),
            now: Nanos::ZERO,
        }
    }
}

struct Never;

impl Unpark for Never {
    fn unpark(&self) {}
}

impl Driver for Nop {
    fn now(&self) -> Nanos {
        self.now
    }
    fn pool(&self) -> &Pool {
        &self.pool
    }
    fn submit(&mut self, token: Token, _: TargetId, op: DriverOp) {
        self.due.push(Completion {
            token,
            result: Ok(0),
            payload: op.into_payload(),
        });
    }
    fn park(&mut self, _: Nanos, done: &mut Vec<Completion>) {
        self.now += TURN;
        done.append(&mut self.due);
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(Never)
    }
    fn geometry(&self, _: TargetId) -> Option<Geometry> {
        Some(Geometry::new("nop", Sectors(1 << 30), Sectors(1)))
    }
    fn peer_closed(&self, _: TargetId) -> bool {
        false
    }
    fn close(&mut self, _: TargetId) {}
}

/// Performs `ops` reads of 4 KiB by `depth` tasks; returns the wall time.
pub fn reads(ops: u64, depth: u64) -> Duration {
    let main = move |local: shard::Local<Nop>| async move {
        let disk = Rc::new(local.disk(TargetId(0)).expect("nop is a disk"));
        let mut tasks = Vec::new();
        for task in 0..depth {
            let (disk, pool) = (disk.clone(), local.env().pool);
            let (done, ended) = futures_channel::oneshot::channel();
            local.env().spawn.spawn(async move {
                let mut buf = pool.get(4096).await;
                for i in 0..ops / depth {
                    let at = Lba((task * 7919 + i * 8) % (1 << 29));
                    let (back, result) = disk.read(at, buf).await;
                    result.expect("nop never fails");
                    buf = back;
                }
                // The shard outlives its tasks.
                let _ = done.send(());
            });
            tasks.push(ended);
        }
        for ended in tasks {
            ended.await.expect("the task ends");
        }
    };
    let start = Instant::now();
    drive(main);
    start.elapsed()
}

/// Runs `main` on a shard of this driver to its end.
pub(super) fn drive<F>(main: impl FnOnce(shard::Local<Nop>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let config = Config::default();
    let mut shard = Shard::boot(ShardId(0), Nop::new(), Mesh::new(1), config, main);
    while shard.run_once() != TurnProgress::Done {
        shard.park(Nanos::MAX);
    }
}

/// Runs `home` and `further` on two shards of this driver, by turns, until `home` has ended.
pub(super) fn drive_two<F, G>(
    home: impl FnOnce(shard::Local<Nop>) -> F,
    further: impl FnOnce(shard::Local<Nop>) -> G,
) where
    F: Future<Output = ()> + 'static,
    G: Future<Output = ()> + 'static,
{
    let (config, mesh) = (Config::default(), Mesh::new(2));
    let mut home = Shard::boot(ShardId(0), Nop::new(), mesh.clone(), config, home);
    let mut further = Shard::boot(ShardId(1), Nop::new(), mesh, config, further);
    while home_turn(&mut *home) != TurnProgress::Done {
        further.run_once();
        further.park(Nanos::ZERO);
    }
}

/// A turn of the home shard; its instructions can be counted apart.
#[inline(never)]
fn home_turn(home: &mut dyn ShardTurn) -> TurnProgress {
    let progress = home.run_once();
    if progress != TurnProgress::Done {
        home.park(Nanos::ZERO);
    }
    progress
}

/// Nanoseconds an operation, and instructions where valgrind is installed;
/// `example` is the program `nop`, for the latter.
pub fn rows(runs: usize, example: &Path) -> io::Result<Vec<BenchRow>> {
    const OPS: u64 = 2_000_000;
    let mut rows = Vec::new();
    for depth in [1, 32] {
        let nanos = |_| reads(OPS, depth).as_nanos() as f64 / OPS as f64;
        let runs: Vec<f64> = (0..runs).map(nanos).collect();
        let name = format!("executor alone, depth {depth}: time of an operation");
        rows.push(alone(name, "ns", Some(Goal::AtMost(100.0)), &runs));
        let per_op = instructions(example, &[&depth.to_string()])?;
        let name = format!("executor alone, depth {depth}: instructions of an operation");
        rows.push(alone(name, "instructions", None, &[per_op]));
    }
    Ok(rows)
}

/// Instructions an operation, counted by callgrind: the difference between a
/// short and a long run, so that start-up does not count. `example` takes the
/// number of operations first.
pub(super) fn instructions(example: &Path, arguments: &[&str]) -> io::Result<f64> {
    instructions_where(&[], example, arguments)
}

/// As [`instructions`], of those alone that the `options` of callgrind select.
pub(super) fn instructions_where(
    options: &[&str],
    example: &Path,
    arguments: &[&str],
) -> io::Result<f64> {
    const SHORT: u64 = 20_000;
    const LONG: u64 = 120_000;
    let count = |ops: u64| {
        let ops = ops.to_string();
        let arguments: Vec<&str> = [ops.as_str()].iter().chain(arguments).copied().collect();
        collected(options, example, &arguments)
    };
    Ok((count(LONG)? - count(SHORT)?) / (LONG - SHORT) as f64)
}

/// Instructions that callgrind counts in all, or where its `options` say, while
/// `example` runs with `arguments`.
pub(super) fn collected(options: &[&str], example: &Path, arguments: &[&str]) -> io::Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(options)
        .arg(example)
        .args(arguments)
        .output()
        .map_err(|e| io::Error::other(format!("valgrind (Debian package valgrind): {e}")))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let what = format!("{} {arguments:?} failed: {text}", example.display());
        return Err(io::Error::other(what));
    }
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    line.and_then(|(_, number)| number.trim().parse::<f64>().ok())
        .ok_or_else(|| io::Error::other(format!("valgrind counted nothing: {text}")))
}
