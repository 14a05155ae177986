//! Time of the real daemon to open a full pool, to close it, and to drop it. Pool and origin are
//! sparse files.
//!
//! A pool is made full by its map alone. A daemon forms the pool and ends in order. Then a
//! checkpoint is written in which each slot holds a line of zeroes, as the origin does there. The
//! counters of the next daemon show that all of the checkpoint was trusted. That daemon rewrites
//! the map as daemons do, before anything is measured.

use super::server::{DaemonSetup, Hotset, direct};
use super::{BenchRow, Goal, alone};
use layout::{
    BLOCK_BYTES, LINE_BITS, MapEntry, MapPage, PoolSuperblock, SUPERBLOCK_BLOCKS, entries_per_page,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit of a daemon to have its lines back.
const TIMEOUT: Duration = Duration::from_secs(120);
const GIB: u64 = 1 << 30;
const SECONDS: Option<Goal> = Some(Goal::AtMost(2.0));

/// Times of one start of a daemon, in seconds.
#[derive(Clone, Copy)]
struct StartTimes {
    serving: f64,
    serving_cpu: f64,
    warm: f64,
    warm_cpu: f64,
}

/// Opens, closes, kills and drops pools of `sizes` GiB, with files in `dir`.
pub fn rows(hotset: &Path, dir: &Path, sizes: &[u64]) -> io::Result<Vec<BenchRow>> {
    fs::create_dir_all(dir)?;
    let mut rows = Vec::new();
    for gib in sizes {
        rows.extend(restart(hotset, dir, *gib)?);
    }
    Ok(rows)
}

fn restart(hotset: &Path, dir: &Path, gib: u64) -> io::Result<Vec<BenchRow>> {
    let (origin, pool) = (dir.join("restart-origin"), dir.join("restart-pool"));
    for file in [&origin, &pool] {
        File::create(file)?.set_len(gib * GIB)?;
    }
    let setup = DaemonSetup {
        dir,
        origin: direct(&origin),
        pool: direct(&pool),
    };
    Hotset::start(hotset, &setup)?.server.stop()?;
    let lines = fill(&pool)?;
    let (daemon, _) = open(hotset, &setup, lines)?;
    daemon.server.stop()?;

    let (daemon, clean) = open(hotset, &setup, lines)?;
    let close = timed(|| daemon.server.stop())?;
    let (daemon, _) = open(hotset, &setup, lines)?;
    daemon.server.kill()?;
    let (daemon, killed) = open(hotset, &setup, lines)?;
    let (cpu, begin) = (daemon.server.cpu()?, Instant::now());
    daemon.command(&["pool", "remove-device", "--temporary", "pool", "ssd"])?;
    let detach = begin.elapsed().as_secs_f64();
    let detach_cpu = (daemon.server.cpu()? - cpu).as_secs_f64();
    daemon.server.stop()?;
    fs::remove_file(&origin)?;
    fs::remove_file(&pool)?;

    let row = |what: &str, goal, seconds| {
        let name = format!("full pool of {gib} GiB, {what}");
        alone(name, "s", goal, &[seconds])
    };
    Ok(vec![
        row("closed in order: until it serves", SECONDS, clean.serving),
        row(
            "closed in order: CPU until it serves",
            SECONDS,
            clean.serving_cpu,
        ),
        row(
            "closed in order: until all lines are back",
            None,
            clean.warm,
        ),
        row(
            "closed in order: CPU until all lines are back",
            None,
            clean.warm_cpu,
        ),
        row("killed: until it serves", SECONDS, killed.serving),
        row("killed: until all lines are back", None, killed.warm),
        row("closing it", SECONDS, close),
        row("detaching its device", SECONDS, detach),
        row("detaching its device: CPU", SECONDS, detach_cpu),
    ])
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Starts a daemon on the files of an earlier one, and waits for its lines.
fn open(hotset: &Path, setup: &DaemonSetup, lines: u64) -> io::Result<(Hotset, StartTimes)> {
    let begin = Instant::now();
    let daemon = Hotset::resume(hotset, setup)?;
    let serving = begin.elapsed().as_secs_f64();
    let serving_cpu = daemon.server.cpu()?.as_secs_f64();
    loop {
        let restored = daemon.counter("lines_restored")?;
        if restored == lines {
            break;
        }
        let suspect = daemon.counter("lines_suspect")?;
        if suspect > 0 || begin.elapsed() > TIMEOUT {
            let what = format!("of {lines} lines {restored} came back, {suspect} were suspect");
            return Err(io::Error::other(what));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let opened = StartTimes {
        serving,
        serving_cpu,
        warm: begin.elapsed().as_secs_f64(),
        warm_cpu: daemon.server.cpu()?.as_secs_f64(),
    };
    Ok((daemon, opened))
}

/// Writes a checkpoint into the pool in which every slot holds a line, all valid; returns their
/// number.
fn fill(pool: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(pool)?;
    let mut bytes = vec![0; SUPERBLOCK_BLOCKS as usize * BLOCK_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    let wrong = |what: String| io::Error::other(format!("the pool's superblock: {what}"));
    let mut superblock =
        PoolSuperblock::decode(&bytes, &[]).map_err(|error| wrong(error.to_string()))?;
    let plan = superblock
        .plan()
        .ok_or_else(|| wrong("of no member".into()))?;
    let volumes = superblock.volumes.volumes();
    let volume = volumes.first().ok_or_else(|| wrong("no volume".into()))?;
    let key = u64::from(volume.id) << LINE_BITS;
    let mut valid = layout::Mask::default();
    for block in 0..plan.line_blocks as usize {
        valid[block / 64] |= 1 << (block % 64);
    }
    let crcs = vec![crc32c::crc32c(&[0; BLOCK_BYTES]); plan.line_blocks as usize];
    let line_blocks = u64::from(plan.line_blocks);
    let lines = u64::from(plan.slots).min(volume.sectors / (line_blocks * 8));
    let each = u64::from(entries_per_page(plan.line_blocks));
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..plan.pages() {
        let slots = number * each..((number + 1) * each).min(plan.slots.into());
        let entry = |slot| match slot < lines {
            true => MapEntry {
                key: key | slot,
                valid,
                crcs: crcs.clone(),
                ..MapEntry::default()
            },
            false => MapEntry {
                crcs: vec![0; plan.line_blocks as usize],
                ..MapEntry::default()
            },
        };
        let page = MapPage {
            number,
            generation: 1,
            entries: slots.map(entry).collect(),
        };
        page.encode(superblock.device, plan.line_blocks, &mut block);
        let at = (plan.maps[0].start + number) * BLOCK_BYTES as u64;
        file.write_all_at(&block, at)?;
    }
    superblock.map = Some(0);
    superblock.generation = 1;
    let len = superblock.encode(&mut bytes);
    for area in plan.superblocks {
        file.write_all_at(&bytes[..len], area.start * BLOCK_BYTES as u64)?;
    }
    file.sync_all()?;
    Ok(lines)
}
