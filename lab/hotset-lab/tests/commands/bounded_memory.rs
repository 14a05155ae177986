//! Long traces take no more memory than short ones over the same blocks.

use crate::common::{Place, hotset, lab};
use block::Nanos;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use testbed::alone::runs_alone;
use trace::{Format, RecordOp, TraceRecord, Writer};

/// Blocks of 4 KiB, all of which every trace touches.
const BLOCKS: u64 = 1 << 15;
const BETWEEN: Nanos = Nanos(20_000_000);

/// Commands on a trace; TRACE and OUT are replaced.
const COMMANDS: [&str; 5] = [
    "hotset trace info TRACE",
    "hotset-lab trace convert TRACE OUT.parquet --force",
    "hotset-lab trace convert OUT.parquet OUT.hottrace --force",
    "hotset-lab sim TRACE --policy lru --size 0.1 --threads 1",
    "hotset advise TRACE --policy lru",
];

/// `requests` requests, after one to each block at random places, a quarter writes.
fn write(path: &Path, requests: u64) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut writer = Writer::new(path, file, Format::Binary).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    for i in 0..requests {
        let block = match i < BLOCKS {
            true => i,
            false => rng.u64(0..BLOCKS),
        };
        let record = TraceRecord {
            time: Nanos(i * BETWEEN.0),
            op: if i % 4 == 0 {
                RecordOp::Write
            } else {
                RecordOp::Read
            },
            offset_bytes: block * 4096,
            len_bytes: 4096,
            ..TraceRecord::default()
        };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap();
}

/// The most memory that a command had resident, or its parent as the command started. So each test
/// here has a process of its own.
#[expect(
    clippy::zombie_processes,
    reason = "wait4 waits for it, and reports more"
)]
fn peak_mib(mut command: Command) -> f64 {
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut status = 0;
    // SAFETY: a plain structure of numbers, for which zeroes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: our own child, waited for once; both places are ours.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (child.id() as i32, 0), "{command:?}");
    usage.ru_maxrss as f64 / 1024.0
}

/// The peak of each command over a trace of so many requests.
fn peaks(requests: u64) -> Vec<f64> {
    let place = Place::new();
    let (trace, out) = (place.text("trace.hottrace"), place.text("out"));
    write(Path::new(&trace), requests);
    let peak = |words: &str| {
        let words = words.replace("TRACE", &trace).replace("OUT", &out);
        let (program, words) = words.split_once(' ').unwrap();
        let mut command = match program {
            "hotset" => hotset(),
            _ => lab(),
        };
        command.args(words.split(' '));
        let start = Instant::now();
        let peak = peak_mib(command);
        let seconds = start.elapsed().as_secs_f64();
        println!("{requests:>10} requests: {peak:>7.1} MiB, {seconds:>6.1} s: {program} {words}");
        peak
    };
    COMMANDS.map(peak).to_vec()
}

#[test]
fn memory_does_not_grow_with_requests() {
    let name = "bounded_memory::memory_does_not_grow_with_requests";
    if !runs_alone(name, |_| ()).unwrap() {
        return;
    }
    let (short, long) = (peaks(100_000), peaks(1_000_000));
    for ((command, short), long) in COMMANDS.iter().zip(short).zip(long) {
        // Simulations keep short traces in memory.
        let kept = if command.contains(" sim ") { 32.0 } else { 0.0 };
        assert!(
            long < short + 12.0 + kept,
            "{command}: {short} MiB, then {long}"
        );
    }
}

/// `cargo test --release -p hotset-lab --test commands bounded_memory:: -- --ignored --nocapture`
#[test]
#[ignore = "takes many minutes"]
fn memory_is_bounded_over_a_hundred_million_requests() {
    let name = "bounded_memory::memory_is_bounded_over_a_hundred_million_requests";
    if !runs_alone(name, |_| ()).unwrap() {
        return;
    }
    let (short, long) = (peaks(1_000_000), peaks(100_000_000));
    for ((command, short), long) in COMMANDS.iter().zip(short).zip(long) {
        let kept = if command.contains(" sim ") {
            288.0
        } else {
            0.0
        };
        assert!(
            long < short + 12.0 + kept,
            "{command}: {short} MiB, then {long}"
        );
    }
}
