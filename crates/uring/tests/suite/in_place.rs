//! Transfers of a file in memory: done as they are submitted, without the ring, and never at the
//! cost of completions of the ring.

use crate::common::{Mount, buf_of, filled, host, perform, wait};
use block::{Address, Driver, DriverOp, Fua, Lba, Nanos, TargetId, Token};
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use uring::{DiskOptions, Uring, UringDriver};

const BLOCK: usize = 4096;
const BYTES: u64 = 1 << 20;

/// A disk in memory, where a tmpfs can be mounted.
fn memory(host: &Uring) -> Option<(Mount, UringDriver, TargetId)> {
    let mount = Mount::new("tmpfs", "size=4m")?;
    let path = mount.path().join("disk");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    let options = DiskOptions {
        buffered: true,
        ..DiskOptions::default()
    };
    let (disk, _) = host.open_disk(&path, &options).unwrap();
    Some((mount, host.driver().unwrap(), disk))
}

#[test]
fn small_transfers_enter_no_ring() {
    let Some((_mount, mut driver, disk)) = memory(&host()) else {
        return;
    };
    let first = driver.enters();
    let data = filled(&driver, BLOCK, 7).share();
    let write = DriverOp::Write(Lba(8), data, Fua::Yes);
    perform(&mut driver, disk, write).0.unwrap();
    let buf = filled(&driver, BLOCK, 0);
    let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba(8), buf));
    result.unwrap();
    assert!(buf_of(payload).iter().all(|&byte| byte == 7));
    assert_eq!(driver.enters(), first);
    let long = filled(&driver, 1 << 20, 0);
    perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, long))
        .0
        .unwrap();
    assert!(driver.enters() > first, "a long one is handed over");
}

#[test]
fn a_stream_is_heard_amid_transfers_in_place() {
    let Some((_mount, mut driver, disk)) = memory(&host()) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let (result, _) = perform(
        &mut driver,
        TargetId::NONE,
        DriverOp::Connect(Address::Tcp(at.into())),
    );
    let stream = TargetId(result.unwrap() as u32);
    let mut peer = listener.accept().unwrap().0;
    let into = filled(&driver, BLOCK, 0);
    driver.submit(Token(1), stream, DriverOp::Recv(into));
    let mut done = Vec::new();
    driver.park(Nanos::ZERO, &mut done);
    peer.write_all(b"heard").unwrap();
    // A completion is due at each turn, and no entry is ever submitted to the ring.
    let limit = driver.now() + Nanos::from_secs(30);
    let heard = |done: &[block::Completion]| done.iter().any(|c| c.token == Token(1));
    while !heard(&done) {
        assert!(driver.now() < limit, "the stream is starved");
        done.clear();
        let buf = filled(&driver, BLOCK, 0);
        driver.submit(Token(2), disk, DriverOp::Read(Lba::ZERO, buf));
        driver.park(Nanos::MAX, &mut done);
    }
}

#[test]
fn a_file_cut_short_is_reported_as_ever() {
    let Some((mount, mut driver, disk)) = memory(&host()) else {
        return;
    };
    let file = File::options().write(true).open(mount.path().join("disk"));
    file.unwrap().set_len(BYTES / 2).unwrap();
    let buf = filled(&driver, BLOCK, 0);
    driver.submit(Token(0), disk, DriverOp::Read(Lba(BYTES / 512 - 8), buf));
    let error = wait(&mut driver, 1).pop().unwrap().result.unwrap_err();
    assert_eq!(error.kind(), block::IoErrorKind::Gone);
}
