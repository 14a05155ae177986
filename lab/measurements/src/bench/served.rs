//! 4 KiB random reads over NBD by one fio on a unix socket: hotset's hits beside
//! servers that cache nothing, its pass-through, and nbdkit's cache.
//!
//! Every run of hotset's hits proves by its counters that all reads were hits.

use super::fio::{self, FioLoad, FioMeasured};
use super::server::{self, DaemonSetup, Hotset};
use super::{BenchRow, Goal, paired, reads};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::server::ServerProcess;

/// Passes over the hot set until no block is missed.
const WARMING_PASSES_MAX: u32 = 20;

/// Size and places of the measurements.
#[derive(Clone, Debug)]
pub struct ServedPlan {
    /// The program `hotset`.
    pub hotset: PathBuf,
    /// A file with direct I/O, of noise.
    pub data: PathBuf,
    /// A directory on the same file system.
    pub disk_dir: PathBuf,
    /// A directory on a tmpfs.
    pub memory_dir: PathBuf,
    /// Bytes that are read; the pool is twice as large.
    pub hot_bytes: u64,
    /// Pairs of runs.
    pub runs: usize,
    /// Time of a run.
    pub span: Duration,
}

/// Result of a run, for the client and for the server.
#[derive(Clone, Copy)]
struct ServedRun {
    iops: f64,
    cpu_us_per_op: f64,
}

/// A file of written zeroes: a pool takes nothing else.
fn blank(file: &Path, bytes: u64) -> io::Result<()> {
    let mut file = fs::File::create(file)?;
    io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
    file.sync_all()
}

/// One fio on `server`.
fn measure(
    server: &ServerProcess,
    plan: &ServedPlan,
    depth: u64,
) -> io::Result<(ServedRun, FioMeasured)> {
    let load = FioLoad::nbd_random_reads(&server.uri, plan.hot_bytes, depth, plan.span);
    let before = server.cpu()?;
    let measured = fio::run_load(&load)?;
    let cpu = server.cpu()? - before;
    let run = ServedRun {
        iops: measured.iops,
        cpu_us_per_op: cpu.as_secs_f64() * 1e6 / measured.ops as f64,
    };
    Ok((run, measured))
}

/// The same on a warm hotset; an error if a single block was not a hit.
fn measure_hits(hotset: &Hotset, plan: &ServedPlan, depth: u64) -> io::Result<ServedRun> {
    let before = (
        hotset.counter("blocks_hit")?,
        hotset.counter("blocks_missed")?,
    );
    let (run, measured) = measure(&hotset.server, plan, depth)?;
    let hits = hotset.counter("blocks_hit")? - before.0;
    let misses = hotset.counter("blocks_missed")? - before.1;
    if misses > 0 || hits < measured.ops {
        return Err(io::Error::other(format!(
            "of {} reads, {hits} blocks were hits and {misses} were not",
            measured.ops
        )));
    }
    Ok(run)
}

/// Reads the hot set in order until every block is a hit.
fn warm(hotset: &Hotset, plan: &ServedPlan) -> io::Result<()> {
    for _ in 0..WARMING_PASSES_MAX {
        let before = hotset.counter("blocks_missed")?;
        fio::run_load(&FioLoad::nbd_sweep(
            &hotset.server.uri,
            plan.hot_bytes,
            "read",
        ))?;
        if hotset.counter("blocks_missed")? == before {
            return Ok(());
        }
        // Promotions go on behind the answers.
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(io::Error::other(format!(
        "the hot set still misses after {WARMING_PASSES_MAX} passes"
    )))
}

/// Name and goal of a pair of rows.
struct ServedCase<'a> {
    name: &'a str,
    depths: &'a [u64],
    iops: Option<Goal>,
    cpu: Option<Goal>,
}

/// Runs ours and each of `peers` in turn; two rows a depth and peer.
fn compare(
    plan: &ServedPlan,
    case: &ServedCase,
    peers: &[&ServerProcess],
    mut ours: impl FnMut(u64) -> io::Result<ServedRun>,
) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for &depth in case.depths {
        let mut iops = vec![Vec::new(); peers.len()];
        let mut cpu = iops.clone();
        for _ in 0..plan.runs {
            let ours = ours(depth)?;
            for (i, peer) in peers.iter().enumerate() {
                let (theirs, _) = measure(peer, plan, depth)?;
                iops[i].push((ours.iops, theirs.iops));
                cpu[i].push((ours.cpu_us_per_op, theirs.cpu_us_per_op));
            }
        }
        for (i, peer) in peers.iter().enumerate() {
            let name = format!("{}, depth {depth}", case.name);
            let row = |what: &str, unit, goal, pairs: &[_]| {
                paired(format!("{name}: {what}"), unit, &peer.name, goal, pairs)
            };
            rows.push(row("IOPS", "IOPS", case.iops, &iops[i]));
            rows.push(row("CPU of the server", "us per op", case.cpu, &cpu[i]));
        }
    }
    Ok(rows)
}

/// The pool and the origin are files with direct I/O; the peer serves the same
/// files.
fn direct(plan: &ServedPlan) -> io::Result<Vec<BenchRow>> {
    let pool = plan.disk_dir.join("pool");
    blank(&pool, 2 * plan.hot_bytes)?;
    let setup = DaemonSetup {
        dir: &plan.disk_dir,
        origin: server::direct(&plan.data),
        pool: server::direct(&pool),
    };
    let hotset = Hotset::start(&plan.hotset, &setup)?;
    let options = ["--cache=none", "--aio=io_uring"];
    let on_pool = server::qemu_nbd(&pool, &plan.disk_dir, &options)?;
    warm(&hotset, plan)?;
    let case = ServedCase {
        name: "hits over NBD, pool on a direct file",
        depths: &[1, 8, 32],
        iops: Some(Goal::RatioAtLeast(1.0)),
        cpu: Some(Goal::RatioBelow(1.0)),
    };
    let ours = |depth| measure_hits(&hotset, plan, depth);
    let mut rows = compare(plan, &case, &[&on_pool], ours)?;
    let on_origin = server::qemu_nbd(&plan.data, &plan.disk_dir, &options)?;
    hotset.set_mode("pass-through")?;
    let case = ServedCase {
        name: "pass-through over NBD, beside the same origin served directly",
        depths: &[1, 32],
        iops: None,
        cpu: None,
    };
    let ours = |depth| measure(&hotset.server, plan, depth).map(|(run, _)| run);
    rows.extend(compare(plan, &case, &[&on_origin], ours)?);
    fs::remove_file(&pool)?;
    Ok(rows)
}

/// Everything on one tmpfs, so that only the protocol and the program cost.
fn in_memory(plan: &ServedPlan) -> io::Result<Vec<BenchRow>> {
    let dir = &plan.memory_dir;
    let (origin, pool) = (dir.join("origin"), dir.join("pool"));
    reads::make_file(&origin, plan.hot_bytes)?;
    blank(&pool, 2 * plan.hot_bytes)?;
    let setup = DaemonSetup {
        dir,
        origin: server::buffered(&origin),
        pool: server::buffered(&pool),
    };
    let hotset = Hotset::start(&plan.hotset, &setup)?;
    warm(&hotset, plan)?;
    let qemu = server::qemu_nbd(&pool, dir, &["--cache=writeback", "--aio=io_uring"])?;
    let file = ServerProcess::nbdkit(
        "nbdkit file",
        dir,
        &["--readonly", "file", &pool.display().to_string()],
    )?;
    let size = plan.hot_bytes.to_string();
    let memory = ServerProcess::nbdkit("nbdkit memory", dir, &["memory", &size])?;
    // Blocks never written would be read without touching memory.
    fio::run_load(&FioLoad::nbd_sweep(&memory.uri, plan.hot_bytes, "write"))?;
    let case = ServedCase {
        name: "hits over NBD, everything on one tmpfs",
        depths: &[1, 8, 32],
        iops: Some(Goal::RatioAtLeast(1.2)),
        cpu: None,
    };
    let ours = |depth| measure_hits(&hotset, plan, depth);
    compare(plan, &case, &[&qemu, &file, &memory], ours)
}

/// Compares two warm caches, on an origin that takes 2 ms a read, through NBD.
fn beside_a_cache(plan: &ServedPlan) -> io::Result<Vec<BenchRow>> {
    let dir = &plan.memory_dir;
    let (origin, pool) = (dir.join("origin"), dir.join("pool"));
    let origin = origin.display().to_string();
    let arguments = [
        "--readonly",
        "--filter=delay",
        "file",
        &origin,
        "rdelay=2ms",
    ];
    let slow = ServerProcess::nbdkit("slow origin", dir, &arguments)?;
    blank(&pool, 2 * plan.hot_bytes)?;
    let setup = DaemonSetup {
        dir,
        origin: server::nbd(&slow),
        pool: server::buffered(&pool),
    };
    let hotset = Hotset::start(&plan.hotset, &setup)?;
    warm(&hotset, plan)?;
    let uri = format!("uri={}", slow.uri);
    let arguments = ["--filter=cache", "nbd", &uri, "cache-on-read=true"];
    let cached = ServerProcess::nbdkit("nbdkit --filter=cache", dir, &arguments)?;
    fio::run_load(&FioLoad::nbd_sweep(&cached.uri, plan.hot_bytes, "read"))?;
    let origin_read_before = slow.bytes_read()?;
    let case = ServedCase {
        name: "warm, before an origin of 2 ms",
        depths: &[1, 8, 32],
        iops: None,
        cpu: None,
    };
    let ours = |depth| measure_hits(&hotset, plan, depth);
    let rows = compare(plan, &case, &[&cached], ours)?;
    let read = slow.bytes_read()? - origin_read_before;
    // A few bytes are read at each connection; a miss reads a block at least.
    if read >= 4096 {
        let what = format!("{read} bytes were read from the origin of two warm caches");
        return Err(io::Error::other(what));
    }
    Ok(rows)
}

/// Every row of this file.
pub fn rows(plan: &ServedPlan) -> io::Result<Vec<BenchRow>> {
    for dir in [&plan.disk_dir, &plan.memory_dir] {
        fs::create_dir_all(dir)?;
    }
    let made = direct(plan)
        .and_then(|rows| Ok([rows, in_memory(plan)?].concat()))
        .and_then(|rows| Ok([rows, beside_a_cache(plan)?].concat()));
    fs::remove_dir_all(&plan.memory_dir)?;
    made
}
