//! Memory of a pool of 16 GiB, by the length of its lines, and the effect of the length on random
//! reads of 4 KiB.
//!
//! The engine is the real one; its disks complete at once and hold zeroes, so that a pool of any
//! size is filled in a minute. Measured are the bytes that the allocator has given out and the
//! resident bytes of the process, not the computed sizes of tables.

use super::nop::drive;
use super::{BenchRow, Goal, alone};
use block::{BoxDevice, Device, Lba, SECTOR_BYTES, Sectors, TargetId};
use cache::{Cache, CacheMode, Config, Counter, NewPoolDevice, VolumeConfig};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

const BLOCK_BYTES: u64 = 4096;
const BLOCK_SECTORS: u64 = 8;
/// Four times the pool.
const VOLUME_BLOCKS: u64 = 1 << 24;
/// Zipf exponent of the popularity of blocks: near the exponents of block traces.
const SKEW: f64 = 0.9;
/// Length of the requests that fill the pool.
const FILL_BYTES: usize = 64 << 10;
/// A pool that comes and goes before anything is counted.
const WARMING: Sectors = Sectors::from_mib(1);

/// Measurements of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryMeasured {
    /// Size of the pool.
    pub pool_bytes: u64,
    /// Bytes that could be hits in the full pool.
    pub full_bytes: u64,
    /// Bytes that the allocator had given out for the full pool.
    pub allocated_bytes: i64,
    /// Resident bytes for the full pool.
    pub resident_bytes: i64,
    /// Hit ratio of the random reads, in a pool warmed by such reads.
    pub hit_ratio: f64,
    /// Room of the lines that were in use then.
    pub lines_bytes: u64,
    /// Blocks in them that could be hits.
    pub valid_bytes: u64,
}

/// Plan of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct MemoryPlan {
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Size of the pool.
    pub pool: Sectors,
    /// Random reads before any is counted.
    pub warming: u64,
    /// Random reads that are counted.
    pub counted: u64,
}

/// The default policy: that of a pool whose configuration names none.
pub fn default_policy() -> &'static str {
    let text = "[[pool]]\nname = \"pool\"\ndevices = []\n";
    control::config::parse(text, &mut Vec::new()).pools[0]
        .policy
        .value
        .0
}

fn volume() -> VolumeConfig {
    VolumeConfig {
        name: "volume".into(),
        sectors: Some(Sectors(VOLUME_BLOCKS * BLOCK_SECTORS)),
        mode: CacheMode::WriteThrough,
    }
}

/// Runs `plan` with the default policy; `allocated` returns the bytes that the allocator has given
/// out.
pub fn measure(plan: MemoryPlan, allocated: fn() -> i64) -> MemoryMeasured {
    let result = Arc::new(Mutex::new(None));
    let outcome = result.clone();
    drive(move |local| async move {
        let policy = policy::registry::build(default_policy(), 0, 1).expect("registered");
        let config = Config {
            line_bytes: plan.line_bytes,
            sequential_bytes: None,
            ..Config::default()
        };
        let cache = Cache::new(config, policy, local.env()).expect("sound");
        let disk = |target| local.disk(TargetId(target)).expect("nop is a disk");
        let volume = cache.add_volume(volume(), BoxDevice::new(disk(1)));
        let volume = volume.expect("sound");
        let env = local.env();
        let put = |sectors| {
            let mut device = NewPoolDevice::whole(disk(0), "controller");
            device.extent.len = sectors;
            cache.add_device(device).expect("room for lines")
        };
        let fill = async |sectors: Sectors| {
            let mut buf = env.pool.get(FILL_BYTES).await;
            for at in (0..sectors.0).step_by(FILL_BYTES / SECTOR_BYTES as usize) {
                let (back, read) = volume.read(Lba(at), buf).await;
                read.expect("nop never fails");
                buf = back;
                cache.settle().await;
            }
        };
        // The memory of requests and promotions is there before the pool's is counted.
        let small = put(WARMING);
        fill(WARMING).await;
        cache.remove_device(small).await.expect("it is in the pool");
        let before = (allocated(), resident_bytes());
        let device = put(plan.pool);
        fill(plan.pool).await;
        let full_bytes = cache.valid_blocks() * BLOCK_BYTES;
        let (allocated, resident) = (allocated() - before.0, resident_bytes() - before.1);
        // Cold again.
        let removed = cache.remove_device(device).await;
        removed.expect("it is in the pool");
        put(plan.pool);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut read = async |count: u64| {
            let before = cache.counters().get(Counter::ReadsHit);
            let mut buf = env.pool.get(BLOCK_BYTES as usize).await;
            for _ in 0..count {
                let block = scattered(zipf(rng.f64()));
                let (back, read) = volume.read(Lba(block * BLOCK_SECTORS), buf).await;
                read.expect("nop never fails");
                buf = back;
                cache.settle().await;
            }
            cache.counters().get(Counter::ReadsHit) - before
        };
        read(plan.warming).await;
        let hits = read(plan.counted).await;
        *outcome.lock().expect("no panic under this lock") = Some(MemoryMeasured {
            pool_bytes: plan.pool.bytes(),
            full_bytes,
            allocated_bytes: allocated,
            resident_bytes: resident,
            hit_ratio: hits as f64 / plan.counted as f64,
            lines_bytes: u64::from(cache.lines().0) * u64::from(plan.line_bytes),
            valid_bytes: cache.valid_blocks() * BLOCK_BYTES,
        });
    });
    let measured = result.lock().expect("no panic under this lock").take();
    measured.expect("the run ended")
}

/// A rank from 0, drawn by Zipf's law for the uniform `u` from 0 to 1: the
/// inverse of the law's continuous distribution.
fn zipf(u: f64) -> u64 {
    let power = 1.0 - SKEW;
    let top = (VOLUME_BLOCKS as f64).powf(power);
    let rank = (u * (top - 1.0) + 1.0).powf(1.0 / power);
    (rank as u64 - 1).min(VOLUME_BLOCKS - 1)
}

/// Place of the block of a rank: neighbouring ranks have distant places.
fn scattered(rank: u64) -> u64 {
    // Odd, so that no two ranks meet modulo a power of two; mixed, so that
    // equal distances of ranks become unequal ones of places.
    let mixed = (rank ^ rank >> 11).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = mixed % VOLUME_BLOCKS;
    (mixed ^ mixed >> 13).wrapping_mul(0xbf58_476d_1ce4_e5b9) % VOLUME_BLOCKS
}

/// Resident bytes of this process.
fn resident_bytes() -> i64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<i64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Rows for the default length of a line and for 4 KiB; `program` is the
/// example `memory`. Both run at once: nothing here is timed.
pub fn rows(program: &Path, quick: bool) -> io::Result<Vec<BenchRow>> {
    let lines = [Config::default().line_bytes, BLOCK_BYTES as u32];
    let start = |line: &u32| {
        let mut command = Command::new(program);
        command.arg(line.to_string());
        command.args(quick.then_some("--quick"));
        command.stdout(Stdio::piped()).spawn()
    };
    let runs: io::Result<Vec<Child>> = lines.iter().map(start).collect();
    let mut rows = Vec::new();
    for (line, run) in lines.iter().zip(runs?) {
        let output = run.wait_with_output()?;
        if !output.status.success() {
            let what = format!("{} {line}: {}", program.display(), output.status);
            return Err(io::Error::other(what));
        }
        let measured: MemoryMeasured = serde_json::from_slice(&output.stdout)?;
        rows.extend(rows_of(*line, &measured));
    }
    Ok(rows)
}

fn rows_of(line_bytes: u32, measured: &MemoryMeasured) -> Vec<BenchRow> {
    let name = format!(
        "full pool of {} MiB, {}, lines of {} KiB",
        measured.pool_bytes >> 20,
        default_policy(),
        line_bytes >> 10
    );
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let blocks = (measured.full_bytes / BLOCK_BYTES) as f64;
    let goal = (line_bytes == Config::default().line_bytes).then_some(Goal::AtMost(8.0));
    let row =
        |what: &str, unit, goal, value| alone(format!("{name}: {what}"), unit, goal, &[value]);
    vec![
        row(
            "resident memory of each 4 KiB cached",
            "bytes",
            goal,
            measured.resident_bytes as f64 / blocks,
        ),
        row(
            "allocated memory of each 4 KiB cached",
            "bytes",
            goal,
            measured.allocated_bytes as f64 / blocks,
        ),
        row(
            "hits of random 4 KiB reads (Zipf 0.9 over 64 GiB)",
            "%",
            None,
            measured.hit_ratio * 100.0,
        ),
        row(
            "SSD space used by these reads",
            "GiB",
            None,
            gib(measured.lines_bytes),
        ),
        row(
            "of it, blocks that can be hits",
            "GiB",
            None,
            gib(measured.valid_bytes),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_rank_has_a_place_of_its_own_and_the_first_are_popular() {
        let places: HashSet<u64> = (0..1 << 16).map(scattered).collect();
        assert_eq!(places.len(), 1 << 16);
        assert_eq!(zipf(0.0), 0);
        assert!(zipf(1.0) >= VOLUME_BLOCKS - 2, "{}", zipf(1.0));
        // P(rank < k) = (k^0.1 - 1) / (N^0.1 - 1): a fifth of the reads go to
        // the first 64 of 16 Mi blocks or so.
        assert!((20..200).contains(&zipf(0.12)), "{}", zipf(0.12));
    }

    #[test]
    fn a_small_pool_is_filled_and_counted() {
        let plan = MemoryPlan {
            line_bytes: 65536,
            pool: Sectors::from_mib(64),
            warming: 2000,
            counted: 1000,
        };
        let measured = measure(plan, || 0);
        assert_eq!(measured.full_bytes, 64 << 20);
        assert!(measured.hit_ratio > 0.0 && measured.hit_ratio < 1.0);
        assert!(measured.valid_bytes <= measured.lines_bytes);
        assert!(measured.lines_bytes <= 64 << 20);
    }
}
