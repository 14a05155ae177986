//! A failed opening reports the cause and the remedy; a successful one has the right shape.

use crate::common::{Loop, Mount, directory, file, host};
use block::{Address, IoErrorKind, Sectors};
use std::fs::File;
use std::path::Path;
use uring::DiskOptions;

const MIB: u64 = 1 << 20;

/// Opening fails with this kind, naming the path, the cause and the remedy.
#[track_caller]
fn refused(path: impl AsRef<Path>, options: &DiskOptions, kind: IoErrorKind, words: &[&str]) {
    let path = path.as_ref();
    let error = host().open_disk(path, options).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.starts_with(path.to_str().unwrap()), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

fn options(change: impl FnOnce(&mut DiskOptions)) -> DiskOptions {
    let mut options = DiskOptions::default();
    change(&mut options);
    options
}

#[test]
fn a_missing_file() {
    let path = directory().path().join("nothing");
    let words = ["does not exist", "mount its file system"];
    refused(path, &DiskOptions::default(), IoErrorKind::Gone, &words);
}

#[test]
fn a_directory_or_character_device() {
    let dir = directory();
    let words = ["is a directory", "name a file or a block device"];
    refused(
        dir.path(),
        &DiskOptions::default(),
        IoErrorKind::Invalid,
        &words,
    );
    let words = ["neither a file nor a block device"];
    refused(
        "/dev/full",
        &DiskOptions::default(),
        IoErrorKind::Invalid,
        &words,
    );
}

#[test]
fn a_file_too_short() {
    let dir = directory();
    for bytes in [0, 511] {
        let path = file(&dir, bytes);
        let words = ["too short", "truncate -s SIZE"];
        refused(path, &DiskOptions::default(), IoErrorKind::Invalid, &words);
    }
}

#[test]
fn a_file_of_broken_blocks() {
    let dir = directory();
    let path = file(&dir, MIB + 512);
    let large = options(|o| o.block = Some(Sectors(8)));
    let words = [
        "1049088 bytes",
        "no multiple of its block of 4096",
        "truncate -s %4096",
    ];
    refused(&path, &large, IoErrorKind::Invalid, &words);
    host().open_disk(path, &DiskOptions::default()).unwrap();
}

#[test]
fn an_impossible_block() {
    let dir = directory();
    let path = file(&dir, MIB);
    let odd = options(|o| o.block = Some(Sectors(3)));
    refused(&path, &odd, IoErrorKind::Invalid, &["512 or 4096 bytes"]);
}

#[test]
fn no_permission() {
    let dir = directory();
    let path = file(&dir, MIB);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(&path, mode).unwrap();
    // The file system identity is a thread's own, and without root's none of
    // root's privileges on files.
    let deny = std::thread::spawn(move || {
        // SAFETY: no pointers are involved.
        unsafe {
            libc::setfsgid(65534);
            libc::setfsuid(65534);
        }
        let words = ["access is denied", "give this user"];
        refused(path, &DiskOptions::default(), IoErrorKind::Denied, &words);
    });
    deny.join().unwrap();
}

#[test]
fn no_direct_io() {
    let Some(mount) = Mount::new("ramfs", "mode=755") else {
        return;
    };
    let path = mount.path().join("disk");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let words = ["no direct I/O", "ext4", "ask for buffered I/O"];
    refused(
        &path,
        &DiskOptions::default(),
        IoErrorKind::Unsupported,
        &words,
    );
    let buffered = options(|o| o.buffered = true);
    host().open_disk(path, &buffered).unwrap();
}

#[test]
fn a_read_only_file_system() {
    let Some(mount) = Mount::new("tmpfs", "size=4m") else {
        return;
    };
    let path = mount.path().join("disk");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let at = mount.path().to_str().unwrap();
    crate::common::run("mount", &["-o", "remount,ro", at]).unwrap();
    let words = ["read-only file system", "remount it for writing"];
    refused(
        &path,
        &DiskOptions::default(),
        IoErrorKind::ReadOnly,
        &words,
    );
    let read_only = options(|o| o.read_only = true);
    host().open_disk(path, &read_only).unwrap();
}

#[test]
fn a_file_in_use() {
    let dir = directory();
    let path = file(&dir, MIB);
    let exclusive = options(|o| o.exclusive = true);
    let owner = host();
    let (disk, _) = owner.open_disk(&path, &exclusive).unwrap();
    refused(
        &path,
        &exclusive,
        IoErrorKind::Busy,
        &["in use", "stop that first"],
    );
    // The lock concerns only openings that ask for it.
    host().open_disk(&path, &DiskOptions::default()).unwrap();
    owner.close(disk);
    owner.open_disk(&path, &exclusive).unwrap();
}

#[test]
fn a_block_device_in_use() {
    let dir = directory();
    let Some(device) = Loop::attach(&file(&dir, MIB), &[]) else {
        return;
    };
    let exclusive = options(|o| o.exclusive = true);
    let owner = host();
    let (disk, _) = owner.open_disk(device.path(), &exclusive).unwrap();
    let words = ["in use", "mounted"];
    refused(device.path(), &exclusive, IoErrorKind::Busy, &words);
    owner.close(disk);
    owner.open_disk(device.path(), &exclusive).unwrap();
}

/// A loop device that is added by number, so that none is free by accident.
#[test]
fn a_device_with_nothing_behind_it() {
    const NUMBER: libc::c_long = 977;
    let Ok(control) = File::open("/dev/loop-control") else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    let fd = std::os::fd::AsRawFd::as_raw_fd(&control);
    // `LOOP_CTL_ADD` and `LOOP_CTL_REMOVE` of Linux `include/uapi/linux/loop.h`.
    // SAFETY: no pointers are involved.
    if unsafe { libc::ioctl(fd, 0x4C80, NUMBER) } < 0 {
        eprintln!("skipped: no loop device can be added here");
        return;
    }
    let words = ["no device behind it", "attach one"];
    let path = format!("/dev/loop{NUMBER}");
    refused(path, &DiskOptions::default(), IoErrorKind::Gone, &words);
    // SAFETY: as above.
    unsafe { libc::ioctl(fd, 0x4C81, NUMBER) };
}

#[test]
fn a_device_with_large_blocks_and_a_wish_for_small_ones() {
    let dir = directory();
    let large = ["--sector-size", "4096"];
    let Some(device) = Loop::attach(&file(&dir, MIB), &large) else {
        return;
    };
    let small = options(|o| o.block = Some(Sectors(1)));
    let words = ["cannot do 512-byte blocks", "ask for 4096"];
    refused(device.path(), &small, IoErrorKind::Invalid, &words);
}

#[test]
fn the_shape_of_what_opens() {
    let dir = directory();
    let path = file(&dir, MIB);
    let named = options(|o| o.name = Some("hot".into()));
    let (_, geometry) = host().open_disk(&path, &named).unwrap();
    assert_eq!(&*geometry.name, "hot");
    assert_eq!(geometry.sectors, Sectors::from_mib(1));
    assert!(geometry.volatile);

    for (size, block) in [("512", 1), ("4096", 8)] {
        let Some(device) = Loop::attach(&path, &["--sector-size", size]) else {
            return;
        };
        let open = |options: &DiskOptions| host().open_disk(device.path(), options).unwrap().1;
        let geometry = open(&DiskOptions::default());
        assert_eq!(geometry.block, Sectors(block));
        assert_eq!(geometry.sectors, Sectors::from_mib(1));
        assert_eq!(&*geometry.name, device.path());
        let large = options(|o| o.block = Some(Sectors(8)));
        assert_eq!(open(&large).block, Sectors(8));
    }
}

#[test]
fn listeners_in_the_way_and_bad_addresses() {
    let dir = directory();
    let path = dir.path().join("socket");
    let unix = Address::Unix(path.to_str().unwrap().into());
    let host = host();
    let (first, _) = host.listen(&unix).unwrap();
    let error = host.listen(&unix).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Busy);
    assert!(error.to_string().contains("choose another path"), "{error}");
    host.close(first);
    assert!(!path.exists(), "a closed listener removes its file");

    // A socket left by a killed process is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    host.listen(&unix).unwrap();

    let long = Address::Unix("/x".repeat(60).into());
    let error = host.listen(&long).unwrap_err();
    assert!(error.to_string().contains("at most 107 bytes"), "{error}");

    let (_, bound) = host.listen(&Address::Tcp("127.0.0.1:0".into())).unwrap();
    let error = host.listen(&bound).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Busy, "{error}");
}
