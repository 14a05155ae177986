//! The driver in ways that its callers cannot ask for.

use crate::driver::UringDriver;
use crate::host::{Options, Uring};
use crate::open::DiskOptions;
use crate::ring::Mode;
use block::conformance::{self, Rig};
use block::{Address, Driver, Lba, Nanos, Op, Token};
use std::fs::File;

/// A host with a disk of `bytes`, which lives in a directory of its own.
fn host_and_disk(bytes: u64, registered: bool) -> (tempfile::TempDir, Uring, block::TargetId) {
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
    let (disk, _) = host.open_disk(path, &DiskOptions::default()).unwrap();
    (dir, host, disk)
}

#[test]
fn every_mode_of_ring_conforms() {
    for mode in Mode::ALL {
        let (_dir, host, disk) = host_and_disk(4 << 20, mode != Mode::Interrupting);
        let tcp = Address::Tcp("127.0.0.1:0".into());
        let listener = Some(host.listen(&tcp).unwrap());
        let driver = UringDriver::new(host.shared.clone(), &[mode]).unwrap();
        conformance::run(conformance::driver(driver, Rig { disk, listener }, 3));
    }
}

#[test]
fn memory_of_operations_that_do_not_end_is_never_used_again() {
    let (_dir, host, disk) = host_and_disk(64 << 20, true);
    let mut driver = host.driver().unwrap();
    let pool = driver.pool().clone();
    for token in 0..8 {
        let buf = pool.try_get(4 << 20).unwrap();
        driver.submit(Token(token), disk, Op::Read(Lba::ZERO, buf));
    }
    driver.end(Nanos::ZERO);
    drop(driver);
    assert_eq!(pool.total_bytes() - pool.free_bytes(), 8 * (4 << 20));
}
