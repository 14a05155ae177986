//! Speed of the models: simulated seconds a wall second for 16 hard disks,
//! each with 32 random 4 KiB reads in flight.
//!
//! `cargo run --release -p drives --example model_speed`

use block::{IoResult, Nanos, Sectors};
use drives::catalogue::hdd::SAS15K;
use drives::measure::random;
use drives::{DriveModel, DriveOp, DriveRequest, Hdd};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

const DRIVES: usize = 16;
const DEPTH: u64 = 32;
const SIMULATED: Nanos = Nanos::from_secs(200);
const RUNS: usize = 5;

#[allow(clippy::disallowed_methods, reason = "it measures wall-clock speed")]
fn main() -> IoResult {
    let mut speeds = Vec::new();
    for run in 0..RUNS {
        let begun = Instant::now();
        let reads = simulate()?;
        let wall = begun.elapsed().as_secs_f64();
        let speed = SIMULATED.as_secs_f64() / wall;
        println!(
            "run {run}: {reads} reads, {speed:.0} simulated seconds a wall second, \
             {:.0} ns a read",
            wall * 1e9 / reads as f64
        );
        speeds.push(speed);
    }
    speeds.sort_by(f64::total_cmp);
    println!(
        "median {:.0} simulated seconds a wall second ({:.0} to {:.0}): \
         {DRIVES} {} at depth {DEPTH}",
        speeds[RUNS / 2],
        speeds[0],
        speeds[RUNS - 1],
        SAS15K.name,
    );
    Ok(())
}

/// Runs the drives side by side and returns the number of completed reads.
fn simulate() -> IoResult<u64> {
    let mut drives = Vec::new();
    let mut events = BinaryHeap::new();
    for index in 0..DRIVES {
        let mut drive = Hdd::new(&SAS15K, index as f64 / DRIVES as f64)?;
        let mut reads = random(DriveOp::Read, Sectors(8), SAS15K.capacity(), index as u64);
        for id in 0..DEPTH {
            drive.arrive(Nanos::ZERO, reads(id));
        }
        events.extend(drive.next_event().map(|at| Reverse((at, index))));
        drives.push((drive, reads));
    }
    let mut done = Vec::new();
    let mut completed = 0;
    while let Some(Reverse((now, index))) = events.pop() {
        if now > SIMULATED {
            break;
        }
        let (drive, reads) = &mut drives[index];
        drive.advance(now, &mut done);
        for id in done.drain(..).map(|completed| completed.id) {
            completed += 1;
            let next: DriveRequest = reads(id);
            drive.arrive(now, next);
        }
        events.extend(drive.next_event().map(|at| Reverse((at, index))));
    }
    Ok(completed)
}
