//! Disks that shrink, fill up, return errors, refuse or go away.

use crate::common::{Loop, Mount, buf_of, directory, file, filled, host, perform, run};
use block::{DriverOp, Extent, Fua, IoError, IoErrorKind, Lba, Sectors, TargetId};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};
use uring::{DiskOptions, Uring, UringDriver};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn open(host: &Uring, path: impl AsRef<Path>) -> (UringDriver, TargetId) {
    open_with(host, path, &DiskOptions::default())
}

fn open_with(
    host: &Uring,
    path: impl AsRef<Path>,
    options: &DiskOptions,
) -> (UringDriver, TargetId) {
    let (disk, _) = host.open_disk(path, options).unwrap();
    (host.driver().unwrap(), disk)
}

fn read(driver: &mut UringDriver, disk: TargetId, at: Lba, bytes: usize) -> Result<u8, IoError> {
    let buf = filled(driver, bytes, 0xa5);
    let (result, payload) = perform(driver, disk, DriverOp::Read(at, buf));
    let first = buf_of(payload)[0];
    result.map(|_| first)
}

fn write(driver: &mut UringDriver, disk: TargetId, at: Lba, fua: Fua) -> Result<u64, IoError> {
    let data = filled(driver, BLOCK, 7).share();
    perform(driver, disk, DriverOp::Write(at, data, fua)).0
}

fn truncate(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn a_file_truncated_under_us() {
    let dir = directory();
    let path = file(&dir, MIB);
    let (mut driver, disk) = open(&host(), &path);
    // The new end is inside the second block of the transfer.
    truncate(&path, MIB / 2 + 100);
    let at = Lba(MIB / 2 / 512);
    let error = read(&mut driver, disk, at, BLOCK).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Gone);
    assert!(
        error.to_string().contains("shrank or was truncated"),
        "{error}"
    );
    let error = read(&mut driver, disk, Lba(at.0 - 8), 2 * BLOCK).unwrap_err();
    assert_eq!(
        (error.kind(), error.extent().unwrap().start),
        (IoErrorKind::Gone, at)
    );
    // The rest of the disk still reads.
    assert_eq!(read(&mut driver, disk, Lba::ZERO, BLOCK).unwrap(), 0);
}

#[test]
fn a_block_device_that_shrinks() {
    let dir = directory();
    let path = file(&dir, MIB);
    let Some(device) = Loop::attach(&path, &["--direct-io=on"]) else {
        return;
    };
    let (mut driver, disk) = open(&host(), device.path());
    let last = Lba(MIB / 512 - 8);
    write(&mut driver, disk, last, Fua::No).unwrap();
    truncate(&path, MIB / 2);
    run("losetup", &["--set-capacity", device.path()]).unwrap();
    for error in [
        read(&mut driver, disk, last, BLOCK).map(drop).unwrap_err(),
        write(&mut driver, disk, last, Fua::No).unwrap_err(),
    ] {
        assert_eq!(error.kind(), IoErrorKind::Gone, "{error}");
        assert!(error.to_string().contains("shrank"), "{error}");
    }
    write(&mut driver, disk, Lba::ZERO, Fua::Yes).unwrap();
}

#[test]
fn a_block_device_that_returns_errors() {
    let dir = directory();
    let path = file(&dir, MIB);
    let Some(device) = Loop::attach(&path, &["--direct-io=on"]) else {
        return;
    };
    let (mut driver, disk) = open(&host(), device.path());
    // The device keeps its size, and its medium goes.
    truncate(&path, 0);
    let error = read(&mut driver, disk, Lba(8), BLOCK).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Media);
    assert_eq!(error.extent(), Some(Extent::new(Lba(8), Sectors(8))));
    assert_eq!(error.device(), Some(device.path()));
    assert!(error.to_string().contains("read failed"), "{error}");
}

#[test]
fn a_device_detached_while_open() {
    let dir = directory();
    let path = file(&dir, MIB);
    let Some(device) = Loop::attach(&path, &[]) else {
        return;
    };
    let host = host();
    let (mut driver, disk) = open(&host, device.path());
    write(&mut driver, disk, Lba::ZERO, Fua::No).unwrap();
    // The kernel keeps the device until it is closed here.
    device.detach();
    assert_eq!(read(&mut driver, disk, Lba::ZERO, BLOCK).unwrap(), 7);
    host.close(disk);
    let error = read(&mut driver, disk, Lba::ZERO, BLOCK).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Gone);
    drop(driver);
    // The kernel takes a ring down in the background.
    let begin = Instant::now();
    let left = || run("losetup", &["--associated", path.to_str().unwrap()]);
    while left() != Ok(String::new()) {
        let waited = begin.elapsed();
        assert!(waited.as_secs() < 30, "closing releases the device");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_file_system() {
    let Some(mount) = Mount::new("tmpfs", "size=1m") else {
        return;
    };
    let path = mount.path().join("disk");
    File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    let (mut driver, disk) = open(&host(), &path);
    let ends = (0..512).map(|i| write(&mut driver, disk, Lba(i * 8), Fua::No));
    let error = ends.filter_map(Result::err).next().unwrap();
    assert_eq!(error.kind(), IoErrorKind::NoSpace);
    assert!(error.to_string().contains("write failed"), "{error}");
    // Space can be made again.
    let half = Extent::new(Lba::ZERO, Sectors(1024));
    perform(&mut driver, disk, DriverOp::Discard(half))
        .0
        .unwrap();
    write(&mut driver, disk, Lba(1024 + 4096), Fua::No).unwrap();
}

/// A block device on which writeback fails: its medium is a full file system.
fn failing_device() -> Option<(Mount, Loop)> {
    let mount = Mount::new("tmpfs", "size=1m")?;
    let path = mount.path().join("medium");
    File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    let device = Loop::attach(&path, &[])?;
    let filler = File::create(mount.path().join("filler")).unwrap();
    let page = [1; BLOCK];
    let mut at = 0;
    while filler.write_all_at(&page, at).is_ok() {
        at += BLOCK as u64;
    }
    Some((mount, device))
}

/// After a flush has failed the kernel forgets the lost writes, and the next
/// flush would pass: no operation may succeed until the device is opened again.
#[test]
fn a_flush_that_failed_keeps_failing() {
    let Some((mount, device)) = failing_device() else {
        return;
    };
    let host = host();
    let buffered = DiskOptions {
        buffered: true,
        ..DiskOptions::default()
    };
    let (mut driver, disk) = open_with(&host, device.path(), &buffered);
    write(&mut driver, disk, Lba::ZERO, Fua::No).unwrap();
    let error = perform(&mut driver, disk, DriverOp::Flush).0.unwrap_err();
    assert!(error.kind().data_may_have_changed());
    assert!(error.to_string().contains("may be lost"), "{error}");
    std::fs::remove_file(mount.path().join("filler")).unwrap();
    for error in [
        perform(&mut driver, disk, DriverOp::Flush).0.unwrap_err(),
        write(&mut driver, disk, Lba::ZERO, Fua::No).unwrap_err(),
        read(&mut driver, disk, Lba::ZERO, BLOCK)
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), IoErrorKind::Gone, "{error}");
        assert!(
            error.to_string().contains("restart what uses it"),
            "{error}"
        );
    }
    host.close(disk);
    let (again, _) = host.open_disk(device.path(), &buffered).unwrap();
    write(&mut driver, again, Lba::ZERO, Fua::No).unwrap();
    perform(&mut driver, again, DriverOp::Flush).0.unwrap();
}

/// A block device that answers every write with an I/O error: its medium is
/// empty and sealed against growth.
fn unwritable_device() -> Option<Loop> {
    // SAFETY: the name is a C string; the descriptor is owned by `medium` alone.
    let medium = unsafe {
        let fd = libc::memfd_create(c"medium".as_ptr(), libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        File::from(OwnedFd::from_raw_fd(fd))
    };
    medium.set_len(MIB).unwrap();
    let fd = medium.as_raw_fd();
    let path = format!("/proc/{}/fd/{fd}", std::process::id());
    let device = Loop::attach(Path::new(&path), &[])?;
    medium.set_len(0).unwrap();
    // SAFETY: no pointers are involved.
    let sealed = unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
    assert_eq!(sealed, 0, "{}", std::io::Error::last_os_error());
    Some(device)
}

#[test]
fn a_durable_write_that_failed_takes_the_device_out_of_service() {
    let Some(device) = unwritable_device() else {
        return;
    };
    let (mut driver, disk) = open(&host(), device.path());
    let error = write(&mut driver, disk, Lba::ZERO, Fua::No).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Media, "{error}");
    perform(&mut driver, disk, DriverOp::Flush).0.unwrap();
    let error = write(&mut driver, disk, Lba::ZERO, Fua::Yes).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Media, "{error}");
    assert!(error.to_string().contains("may be lost"), "{error}");
    let error = perform(&mut driver, disk, DriverOp::Flush).0.unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Gone, "{error}");
}

#[test]
fn a_read_only_disk_refuses_changes() {
    let dir = directory();
    let path = file(&dir, MIB);
    let read_only = DiskOptions {
        read_only: true,
        ..DiskOptions::default()
    };
    let (mut driver, disk) = open_with(&host(), &path, &read_only);
    let extent = Extent::new(Lba::ZERO, Sectors(8));
    let data = filled(&driver, BLOCK, 7).share();
    for op in [
        DriverOp::Write(Lba::ZERO, data, Fua::No),
        DriverOp::Zero(extent),
        DriverOp::Discard(extent),
    ] {
        let error = perform(&mut driver, disk, op).0.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::ReadOnly, "{error}");
    }
    assert_eq!(read(&mut driver, disk, Lba::ZERO, BLOCK).unwrap(), 0);
    perform(&mut driver, disk, DriverOp::Flush).0.unwrap();
}

/// Zeroes read back, and the bytes on both sides stay, on `path`.
#[track_caller]
fn zeroes(path: &Path, options: &DiskOptions) {
    let (mut driver, disk) = open_with(&host(), path, options);
    let data = filled(&driver, 512 << 10, 9).share();
    let op = DriverOp::Write(Lba::ZERO, data, Fua::No);
    perform(&mut driver, disk, op).0.unwrap();
    // Twice, for the second goes straight to the way that worked.
    for (start, len) in [(8, 512), (528, 8)] {
        let extent = Extent::new(Lba(start), Sectors(len));
        perform(&mut driver, disk, DriverOp::Zero(extent))
            .0
            .unwrap();
    }
    perform(&mut driver, disk, DriverOp::Flush).0.unwrap();
    let buf = filled(&driver, 512 << 10, 1);
    let (result, payload) = perform(&mut driver, disk, DriverOp::Read(Lba::ZERO, buf));
    result.unwrap();
    for (sector, bytes) in (0u64..).zip(buf_of(payload).chunks(512)) {
        let zero = (8..520).contains(&sector) || (528..536).contains(&sector);
        let value = if zero { 0 } else { 9 };
        assert!(bytes.iter().all(|&byte| byte == value), "sector {sector}");
    }
}

#[test]
fn zeroing_a_hole_takes_no_space() {
    let dir = directory();
    let path = dir.path().join("thin");
    File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    let (mut driver, disk) = open_with(&host(), &path, &DiskOptions::default());
    let extent = Extent::new(Lba::ZERO, Sectors::from_mib(64));
    perform(&mut driver, disk, DriverOp::Zero(extent))
        .0
        .unwrap();
    let sectors = std::fs::metadata(&path).unwrap().blocks();
    assert!(sectors < 1024, "{sectors} sectors");
}

#[test]
fn zeroing_by_range_by_hole_and_by_writing() {
    let dir = directory();
    let path = file(&dir, MIB);
    zeroes(&path, &DiskOptions::default());
    if let Some(device) = Loop::attach(&path, &[]) {
        zeroes(Path::new(device.path()), &DiskOptions::default());
    }
    for (kind, options) in [("tmpfs", "size=4m"), ("ramfs", "mode=755")] {
        let Some(mount) = Mount::new(kind, options) else {
            continue;
        };
        let path = mount.path().join("disk");
        File::create(&path).unwrap().set_len(MIB).unwrap();
        let buffered = DiskOptions {
            buffered: true,
            ..DiskOptions::default()
        };
        zeroes(&path, &buffered);
        // Where space cannot be given back, discarding changes nothing.
        let (mut driver, disk) = open_with(&host(), &path, &buffered);
        let extent = Extent::new(Lba::ZERO, Sectors(8));
        perform(&mut driver, disk, DriverOp::Discard(extent))
            .0
            .unwrap();
    }
}
