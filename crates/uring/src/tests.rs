//! The driver in states that its callers cannot bring about.

use crate::driver::UringDriver;
use crate::host::Uring;
use crate::open::DiskOptions;
use crate::ring::CompletionMode;
use crate::shared::Options;
use block::conformance::{self, DriverRig};
use block::{Address, Driver, DriverOp, Fua, Lba, Nanos, Token};
use std::fs::File;

/// A host with a disk of `bytes`, which lives in a directory of its own.
fn host_and_disk(bytes: u64, registered: bool) -> (tempfile::TempDir, Uring, block::TargetId) {
    host_and_disk_with(bytes, registered, &DiskOptions::default())
}

fn host_and_disk_with(
    bytes: u64,
    registered: bool,
    how: &DiskOptions,
) -> (tempfile::TempDir, Uring, block::TargetId) {
    // Beside the test itself, for `/tmp` may have no direct I/O.
    let here = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let path = dir.path().join("disk");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    let options = Options {
        pool_bytes: 64 << 20,
        registered,
        ..Options::default()
    };
    let host = Uring::new(options).unwrap();
    let (disk, _) = host.open_disk(path, how).unwrap();
    (dir, host, disk)
}

#[test]
fn every_mode_of_ring_conforms() {
    for mode in CompletionMode::ALL {
        let (_dir, host, disk) = host_and_disk(4 << 20, mode != CompletionMode::Interrupting);
        let tcp = Address::Tcp("127.0.0.1:0".into());
        let listener = Some(host.listen(&tcp).unwrap());
        let driver = UringDriver::new(host.shared.clone(), 64 << 20, &[mode]).unwrap();
        conformance::run(conformance::driver(driver, DriverRig { disk, listener }, 3));
    }
}

#[test]
fn memory_of_operations_that_do_not_end_is_never_used_again() {
    let (_dir, host, disk) = host_and_disk(64 << 20, true);
    let mut driver = host.driver().unwrap();
    let pool = driver.pool().clone();
    for token in 0..8 {
        let buf = pool.try_get(4 << 20).unwrap();
        driver.submit(Token(token), disk, DriverOp::Read(Lba::ZERO, buf));
    }
    driver.end(Nanos::ZERO);
    drop(driver);
    assert_eq!(pool.total_bytes() - pool.free_bytes(), 8 * (4 << 20));
}

/// The kernel fails one of several flushes if writes were lost.
#[test]
fn no_flush_succeeds_that_was_in_flight_with_one_that_failed() {
    let buffered = DiskOptions {
        buffered: true,
        ..DiskOptions::default()
    };
    for failed in 0..3 {
        let (_dir, host, disk) = host_and_disk_with(4 << 20, false, &buffered);
        let mut driver = host.driver().unwrap();
        let mut data = driver.pool().try_get(4096).unwrap();
        data.fill(1);
        driver.submit(Token(0), disk, DriverOp::Flush);
        driver.submit(
            Token(1),
            disk,
            DriverOp::Write(Lba::ZERO, data.share(), Fua::Yes),
        );
        driver.submit(Token(2), disk, DriverOp::Flush);
        // In place of the kernel, which is not asked.
        let mut done = Vec::new();
        for key in (0..3).rev().filter(|key| *key != failed) {
            driver.complete(key, if key == 1 { 4096 } else { 0 }, &mut done);
            assert!(done.is_empty(), "{key} did not wait for {failed}");
        }
        driver.complete(failed, -libc::EIO, &mut done);
        assert_eq!(done.len(), 3);
        for completion in done {
            let error = completion.result.unwrap_err();
            assert!(error.to_string().contains("may be lost"), "{error}");
        }
    }
}

#[test]
fn a_flush_waits_for_none_that_began_after_it() {
    let (_dir, host, disk) = host_and_disk(4 << 20, false);
    let mut driver = host.driver().unwrap();
    driver.submit(Token(0), disk, DriverOp::Flush);
    driver.submit(Token(1), disk, DriverOp::Flush);
    let mut done = Vec::new();
    driver.complete(1, 0, &mut done);
    assert!(done.is_empty());
    driver.submit(Token(2), disk, DriverOp::Flush);
    driver.complete(0, 0, &mut done);
    // Two was in flight with zero, and with one not.
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].token, Token(1));
    driver.complete(2, 0, &mut done);
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|completion| completion.result.is_ok()));
}
