//! The driver and host suites on real files, loop devices and sockets.

use crate::common::{Loop, Mount, directory, file, host};
use block::conformance::{self, DriverRig};
use block::{Address, Sectors};
use std::path::Path;
use uring::{DiskOptions, Uring};

const BYTES: u64 = 8 << 20;

fn run_on(host: &Uring, path: impl AsRef<Path>, options: &DiskOptions, listen: Address) {
    let (disk, _) = host.open_disk(path, options).unwrap();
    let listener = Some(host.listen(&listen).unwrap());
    let rig = DriverRig { disk, listener };
    conformance::run(conformance::driver(host.driver().unwrap(), rig, 1));
}

fn tcp() -> Address {
    Address::Tcp("127.0.0.1:0".into())
}

fn unix(dir: &tempfile::TempDir) -> Address {
    Address::Unix(dir.path().join("socket").to_str().unwrap().into())
}

#[test]
fn direct_file_and_unix_sockets() {
    let dir = directory();
    let path = file(&dir, BYTES);
    run_on(&host(), path, &DiskOptions::default(), unix(&dir));
}

#[test]
fn direct_file_in_large_blocks_and_tcp() {
    let dir = directory();
    let options = DiskOptions {
        block: Some(Sectors(8)),
        ..DiskOptions::default()
    };
    run_on(&host(), file(&dir, BYTES), &options, tcp());
}

#[test]
fn buffered_file() {
    let dir = directory();
    let options = DiskOptions {
        buffered: true,
        ..DiskOptions::default()
    };
    run_on(&host(), file(&dir, BYTES), &options, tcp());
}

#[test]
fn file_on_tmpfs() {
    let Some(mount) = Mount::new("tmpfs", "size=32m") else {
        return;
    };
    let path = mount.path().join("disk");
    let disk = std::fs::File::create(&path).unwrap();
    disk.set_len(BYTES).unwrap();
    run_on(&host(), path, &DiskOptions::default(), tcp());
}

#[test]
fn loop_devices_with_both_logical_blocks() {
    for size in ["512", "4096"] {
        let dir = directory();
        let backing = file(&dir, BYTES);
        let options = ["--direct-io=on", "--sector-size", size];
        let Some(device) = Loop::attach(&backing, &options) else {
            return;
        };
        let exclusive = DiskOptions {
            exclusive: true,
            ..DiskOptions::default()
        };
        run_on(&host(), device.path(), &exclusive, tcp());
    }
}

#[test]
fn shards_wake_each_other() {
    conformance::host(&mut host(), 3, 1);
}
