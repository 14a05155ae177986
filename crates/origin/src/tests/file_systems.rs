//! Sentinels of real file systems, made and changed by their own tools.

#![allow(
    clippy::disallowed_methods,
    reason = "it reads the images that mkfs made"
)]

use crate::{DeviceIdentity, DoubtReason, OriginRecord, OriginVerdict, What, again, judge, take};
use block::{
    Buf, Content, Device, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba, Pool,
    Sectors, SharedBuf,
};
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};

/// A file as a device, for reading.
struct Image(Geometry, File);

impl Image {
    fn open(path: &Path) -> Image {
        let file = File::open(path).unwrap();
        let sectors = Sectors(file.metadata().unwrap().len() / 512);
        Image(Geometry::new("image", sectors, Sectors(8)), file)
    }
}

fn refuse() -> IoResult {
    Err(IoError::new(
        IoErrorKind::Unsupported,
        "an image is for reading",
    ))
}

impl Device for Image {
    fn geometry(&self) -> &Geometry {
        &self.0
    }
    async fn read(&self, at: Lba, mut buf: Buf) -> (Buf, IoResult) {
        let result = self.0.transfer(at, buf.len()).map(drop);
        self.1.read_exact_at(&mut buf, at.byte()).unwrap();
        (buf, result)
    }
    async fn write(&self, _: Lba, _: SharedBuf, _: Fua) -> IoResult {
        refuse()
    }
    async fn zero(&self, _: Extent) -> IoResult {
        refuse()
    }
    async fn flush(&self) -> IoResult {
        refuse()
    }
    async fn discard(&self, _: Extent) -> IoResult {
        refuse()
    }
    async fn extents(&self, _: Extent, _: &mut Vec<(Extent, Content)>) -> IoResult {
        refuse()
    }
}

/// The value of a future that never waits.
fn now<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a read of a file waits"),
    }
}

fn record(image: &Path) -> OriginRecord {
    let pool = Pool::new(4 << 20);
    now(take(
        &Image::open(image),
        &pool,
        DeviceIdentity::new("image"),
        7,
    ))
    .unwrap()
}

fn verdict(image: &Path, record: &OriginRecord) -> OriginVerdict {
    let (image, pool) = (Image::open(image), Pool::new(4 << 20));
    let survey = now(again(&image, &pool, DeviceIdentity::new("image"), record));
    judge(record, &survey)
}

/// A directory that is removed at the end, with a sparse image in it.
fn image(mib: u64) -> (tempfile::TempDir, PathBuf) {
    // Beside the test itself, for `/tmp` may have no direct I/O, which some tools use.
    let here = std::env::current_exe().unwrap();
    let dir = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    (dir, path)
}

/// Runs a tool of a Debian package on the image.
fn tool(package: &str, program: &str, arguments: &[&str], image: &Path) {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.env("PATH", path).args(arguments).arg(image);
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => panic!("{program}: {error}: install the Debian package {package}"),
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {message}");
}

fn watches(record: &OriginRecord) -> Vec<What> {
    let sentinel = |what: &What| *what != What::Sample;
    record
        .watched
        .iter()
        .map(|w| w.what)
        .filter(sentinel)
        .collect()
}

/// Asserts that the image is the same until `change`, which a sentinel shows.
#[track_caller]
fn is_seen(image: &Path, change: impl FnOnce()) {
    let record = record(image);
    let stored = OriginRecord::decode(&record.encode()).unwrap();
    assert_eq!(stored, record);
    assert_eq!(verdict(image, &stored), OriginVerdict::Same);
    change();
    match verdict(image, &stored) {
        OriginVerdict::Changed(DoubtReason::Content(what, _)) if what != What::Sample => {}
        other => panic!("after a change by others: {other:?}"),
    }
}

#[test]
fn ext4() {
    for block in ["1024", "4096"] {
        let (_dir, path) = image(64);
        let make = ["-q", "-F", "-b", block];
        tool("e2fsprogs", "mkfs.ext4", &make, &path);
        let watched = watches(&record(&path));
        assert_eq!(
            watched,
            [What::Ext4Superblock, What::Ext4Journal],
            "{block}"
        );
        let journal = record(&path).watched;
        let journal = journal
            .iter()
            .find(|w| w.what == What::Ext4Journal)
            .unwrap();
        let mut magic = [0; 4];
        let at = journal.extent.start.byte();
        File::open(&path)
            .unwrap()
            .read_exact_at(&mut magic, at)
            .unwrap();
        assert_eq!(magic, 0xc03b_3998_u32.to_be_bytes(), "not a journal's");
        is_seen(&path, || tool("e2fsprogs", "tune2fs", &["-C", "5"], &path));
    }
}

#[test]
fn xfs() {
    let (_dir, path) = image(320);
    tool("xfsprogs", "mkfs.xfs", &["-q", "-f"], &path);
    let watched = watches(&record(&path));
    assert_eq!(watched, [What::XfsSuperblock, What::XfsLog]);
    is_seen(&path, || {
        tool("xfsprogs", "xfs_admin", &["-L", "other"], &path)
    });
    // The log alone changes: another round begins.
    let log = record(&path);
    let head = log.watched.iter().find(|w| w.what == What::XfsLog).unwrap();
    let head = head.extent.start;
    let file = File::options().write(true).open(&path).unwrap();
    is_seen(&path, || {
        file.write_all_at(&[0xfe, 0xed, 0xba, 0xbe, 0, 0, 0, 1], head.byte())
            .unwrap()
    });
    let moved = record(&path).watched;
    let moved = moved.iter().find(|w| w.what == What::XfsLog).unwrap();
    assert_eq!(
        moved.extent.start,
        head + Sectors(1),
        "the head has moved on"
    );
}

#[test]
fn btrfs() {
    let (_dir, path) = image(128);
    tool("btrfs-progs", "mkfs.btrfs", &["-q", "-f"], &path);
    assert_eq!(watches(&record(&path)), [What::BtrfsSuperblock; 2]);
    let label = |text| {
        let mut command = Command::new("btrfs");
        command.args(["filesystem", "label"]).arg(&path).arg(text);
        assert!(command.status().unwrap().success());
    };
    is_seen(&path, || label("other"));
}

#[test]
fn lvm() {
    let (_dir, path) = image(64);
    // The tools accept only block devices of the system: a loop device, as root.
    // SAFETY: no pointers are involved.
    let root = std::fs::metadata("/dev/loop-control").is_ok() && unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: this needs root and loop devices");
        return;
    }
    let attach = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(&path)
        .output()
        .unwrap();
    let device = PathBuf::from(String::from_utf8(attach.stdout).unwrap().trim());
    let quiet = [
        "--config",
        "devices{filter=[\"a|^/dev/loop|\",\"r|.*|\"]}",
        "-qq",
        "-y",
    ];
    let outcome = std::panic::catch_unwind(|| {
        tool("lvm2", "pvcreate", &quiet, &device);
        assert_eq!(watches(&record(&path)), [What::LvmLabel, What::LvmMetadata]);
        let group = format!("hotset-test-{}", std::process::id());
        let mut arguments = quiet.to_vec();
        arguments.push(&group);
        is_seen(&path, || {
            tool("lvm2", "vgcreate", &arguments, &device);
            assert!(Command::new("sync").status().unwrap().success());
        });
    });
    let detached = Command::new("losetup")
        .arg("--detach")
        .arg(&device)
        .status();
    assert!(detached.unwrap().success());
    outcome.unwrap();
}

/// Puts a small image at a byte of a large one.
fn put(small: &Path, large: &Path, at: u64) {
    let bytes = std::fs::read(small).unwrap();
    let large = File::options().write(true).open(large).unwrap();
    large.write_all_at(&bytes, at).unwrap();
}

/// Writes the head of a GPT with one partition, at the sector `start`.
fn table(image: &Path, start: u64) {
    let mut head = [0; 3 * 512];
    head[510..512].copy_from_slice(&[0x55, 0xaa]);
    head[446 + 4] = 0xee;
    head[512..520].copy_from_slice(b"EFI PART");
    head[512 + 72..][..8].copy_from_slice(&2u64.to_le_bytes());
    head[512 + 80..][..4].copy_from_slice(&128u32.to_le_bytes());
    head[512 + 84..][..4].copy_from_slice(&128u32.to_le_bytes());
    head[1024] = 1;
    head[1024 + 32..][..8].copy_from_slice(&start.to_le_bytes());
    let file = File::options().write(true).open(image).unwrap();
    file.write_all_at(&head, 0).unwrap();
}

#[test]
fn a_file_system_in_a_partition_is_watched_too() {
    let (_large, path) = image(128);
    let (_small, part) = image(64);
    tool("e2fsprogs", "mkfs.ext4", &["-q", "-F"], &part);
    for (start, has_table) in [(2048, true), (40_000, true), (2048, false)] {
        File::create(&path).unwrap().set_len(128 << 20).unwrap();
        if has_table {
            table(&path, start);
        }
        put(&part, &path, start * 512);
        let mut expected = vec![What::Ext4Superblock, What::Ext4Journal];
        if has_table {
            expected.splice(0..0, [What::Table; 2]);
        }
        assert_eq!(watches(&record(&path)), expected);
        is_seen(&path, || {
            tool(
                "e2fsprogs",
                "tune2fs",
                &["-L", &format!("v{start}{has_table}")],
                &part,
            );
            put(&part, &path, start * 512);
        });
    }
}

#[test]
fn data_without_a_format_rest_on_samples() {
    let (_dir, path) = image(16);
    let record = record(&path);
    assert_eq!(watches(&record), []);
    assert_eq!(verdict(&path, &record), OriginVerdict::Same);
    let sampled = record.watched[9].extent.start.byte();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"x", sampled + 4095).unwrap();
    let message = verdict(&path, &record);
    assert!(
        matches!(
            message,
            OriginVerdict::Changed(DoubtReason::Content(What::Sample, _))
        ),
        "{message:?}"
    );
    file.set_len(8 << 20).unwrap();
    let message = verdict(&path, &record);
    let OriginVerdict::Changed(reason) = message else {
        panic!("{message:?}")
    };
    assert_eq!(reason.to_string(), "it shrank from 32768 to 16384 sectors");
}
