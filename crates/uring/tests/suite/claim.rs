//! A disk that was used and released can be claimed again at once. The test has a process of its
//! own: a process that another thread starts has all files open for a moment.

use crate::common::{directory, file, filled, host, perform};
use block::{Driver, DriverOp, Lba};
use testbed::alone::runs_alone;
use uring::DiskOptions;

#[test]
fn a_disk_that_was_used_can_be_claimed_again_at_once() {
    let name = "claim::a_disk_that_was_used_can_be_claimed_again_at_once";
    if !runs_alone(name, |_| ()).unwrap() {
        return;
    }
    let dir = directory();
    let path = file(&dir, 1 << 20);
    let exclusive = DiskOptions {
        exclusive: true,
        ..DiskOptions::default()
    };
    for _ in 0..50 {
        let host = host();
        let (disk, _) = host.open_disk(&path, &exclusive).unwrap();
        let mut driver = host.driver().unwrap();
        let buf = filled(&driver, 4096, 0);
        perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, buf))
            .0
            .unwrap();
        driver.close(disk);
        drop((driver, host));
    }
}
