//! 4 KiB hits of one cache, asked for on every shard at once, on files in memory.
//!
//! Each run is a process of its own. Its load is made on its shards, through the gates that
//! frontends use: on the home shard the volume's own gate, elsewhere one that stands for that gate.

mod load;
mod model;

use super::engine::VOLUME_BYTES;
use super::{BenchRow, Goal, alone, paired};
use block::{Host, Nanos};
use load::LoadedShards;
pub use load::{ShardReads, ShardRun};
pub use model::{ShardCosts, chart};
use shard::Mesh;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uring::{DiskOptions, Options, Uring, UringDriver};

/// Pairs of runs.
const PAIRS: usize = 15;
/// The time that shards look for work, where they do.
const BUSY_POLL: Nanos = Nanos::from_micros(20);
/// Most ticks of a processor that others may take during a pair: of 10 ms each.
const STEAL_MAX: u64 = 4;

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
    })
    .map_err(io::Error::other)?;
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
