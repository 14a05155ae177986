//! A disk that was used and released can be claimed again at once. Alone in its
//! program: while another thread starts a process, that has all files open too.

use crate::common::{directory, file, filled, host, perform};
use block::{Driver, DriverOp, Lba};
use uring::DiskOptions;

#[test]
fn a_disk_that_was_used_can_be_claimed_again_at_once() {
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
