//! 4 KiB random reads straight on the driver, without an executor:
//!
//!     cargo run --release -p uring --example random_reads -- FILE DEPTH SECONDS
//!
//! Prints operations a second and the processor time of one operation.

use block::{Completion, Driver, DriverOp, Lba, Nanos, Payload, Token};
use std::error::Error;
use std::time::Duration;
use uring::{DiskOptions, Options, Uring};

const BYTES: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "random_reads FILE DEPTH SECONDS";
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(usage)?;
    let depth: u64 = arguments.next().ok_or(usage)?.parse()?;
    let seconds: u64 = arguments.next().ok_or(usage)?.parse()?;

    let host = Uring::new(Options::default())?;
    let (disk, geometry) = host.open_disk(path, &DiskOptions::default())?;
    let mut driver = host.driver()?;
    let blocks = geometry.sectors.bytes() / BYTES as u64;
    let mut random = fastrand::Rng::new();
    let mut place = || Lba(random.u64(0..blocks) * 8);

    let (begin, cpu_begin) = (driver.now(), cpu_time());
    let end = begin + Nanos::from_secs(seconds);
    for token in 0..depth {
        let buf = driver
            .pool()
            .try_get(BYTES)
            .ok_or("the pool is too small")?;
        driver.submit(Token(token), disk, DriverOp::Read(place(), buf));
    }
    let mut done: Vec<Completion> = Vec::new();
    let (mut ended, mut parks) = (0, 0);
    while driver.now() < end {
        driver.park(Nanos::MAX, &mut done);
        parks += 1;
        for completion in done.drain(..) {
            completion.result?;
            if let Payload::Buf(buf) = completion.payload {
                driver.submit(completion.token, disk, DriverOp::Read(place(), buf));
            }
            ended += 1;
        }
    }
    let span = driver.now() - begin;
    let cpu = cpu_time() - cpu_begin;
    println!(
        "depth {depth}: {:.0} reads/s, {:.2} us of processor time each, {:.1} ended a park, registered memory: {}",
        ended as f64 / span.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / ended as f64,
        ended as f64 / parks as f64,
        driver.memory_is_registered(),
    );
    Ok(())
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    // SAFETY: all zeroes is a valid `rusage`, and `usage` is writable.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let span = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}
