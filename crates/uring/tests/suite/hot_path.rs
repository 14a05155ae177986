//! The cost of a small transfer: no allocation, and system calls in batches.

use crate::common::{directory, file, filled, host, wait};
use block::{Completion, Driver, DriverOp, Fua, Lba, Nanos, Payload, TargetId, Token};
use testbed::counting::{Counting, allocations};
use uring::{DiskOptions, UringDriver};

const BLOCK: usize = 4096;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A disk with data, and its driver.
fn disk_with_data() -> (tempfile::TempDir, UringDriver, TargetId) {
    let dir = directory();
    let path = file(&dir, 1 << 20);
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let host = host();
    let (disk, _) = host.open_disk(&path, &DiskOptions::default()).unwrap();
    (dir, host.driver().unwrap(), disk)
}

fn read(driver: &mut UringDriver, disk: TargetId, token: u64) {
    let buf = driver.pool().try_get(BLOCK).unwrap();
    let at = Lba(token % 256 * 8);
    driver.submit(Token(token), disk, DriverOp::Read(at, buf));
}

/// Reads and durable and plain writes at depth 32.
fn traffic(driver: &mut UringDriver, disk: TargetId, done: &mut Vec<Completion>, count: u64) {
    for token in 0..32 {
        read(driver, disk, token);
    }
    let (mut next, mut ended) = (32, 0);
    while ended < count {
        driver.park(Nanos::MAX, done);
        for completion in done.drain(..) {
            completion.result.unwrap();
            ended += 1;
            if next == count {
                continue;
            }
            match completion.payload {
                Payload::Buf(buf) => {
                    let fua = if next % 8 == 0 { Fua::Yes } else { Fua::No };
                    let at = Lba(next % 256 * 8);
                    driver.submit(Token(next), disk, DriverOp::Write(at, buf.share(), fua));
                }
                _ => read(driver, disk, next),
            }
            next += 1;
        }
    }
}

#[test]
fn small_transfers_allocate_nothing() {
    let (_dir, mut driver, disk) = disk_with_data();
    let mut done = Vec::with_capacity(64);
    traffic(&mut driver, disk, &mut done, 200);
    let before = allocations();
    traffic(&mut driver, disk, &mut done, 1000);
    assert_eq!(allocations() - before, 0);
    // The counter counts.
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(allocations() - before, 1);
}

#[test]
fn a_batch_is_one_system_call_for_every_four() {
    let (_dir, mut driver, disk) = disk_with_data();
    // The first use of a disk registers the disk.
    read(&mut driver, disk, 0);
    wait(&mut driver, 1);

    let before = driver.enters();
    for token in 0..63 {
        read(&mut driver, disk, token);
        assert_eq!(driver.enters(), before + (token + 1) / 4);
    }
    let mut done = Vec::new();
    driver.park(Nanos::MAX, &mut done);
    assert_eq!(driver.enters(), before + 16);
    assert!(!done.is_empty());
    let rest = 63 - done.len();
    wait(&mut driver, rest);
}

#[test]
fn nothing_to_submit_and_something_due_is_no_system_call() {
    let (_dir, mut driver, disk) = disk_with_data();
    let before = driver.enters();
    let beyond = filled(&driver, BLOCK, 0);
    driver.submit(Token(1), disk, DriverOp::Read(Lba(1 << 40), beyond));
    let mut done = Vec::new();
    driver.park(Nanos::MAX, &mut done);
    assert_eq!(done.len(), 1);
    driver.park(Nanos::ZERO, &mut done);
    assert_eq!(driver.enters(), before);
}
