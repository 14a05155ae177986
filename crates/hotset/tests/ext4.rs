//! A real file system on a volume, mounted the way that needs no kernel client:
//! nbdfuse, a loop device, ext4.

mod common;

use common::{Daemon, Place, Process, noise, run, tool, until};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why this machine cannot mount; `None` if it can.
fn obstacle() -> Option<&'static str> {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        return Some("this needs root, to make loop devices and mount");
    }
    let missing = |device| !Path::new(device).exists();
    if missing("/dev/fuse") {
        return Some("there is no /dev/fuse here");
    }
    if missing("/dev/loop-control") {
        return Some("there is no /dev/loop-control here");
    }
    None
}

/// A volume as a file, and a loop device on it; undone when dropped.
struct Attached {
    fuse: PathBuf,
    nbdfuse: Option<Process>,
    device: String,
}

impl Attached {
    fn new(daemon: &Daemon) -> Attached {
        let fuse = daemon.place.path("fuse");
        fs::create_dir_all(&fuse).unwrap();
        let mut nbdfuse = tool("nbdfuse", "libnbd-bin");
        nbdfuse
            .arg(fuse.join("disk"))
            .arg(daemon.uri("vol"))
            .stderr(Stdio::null());
        let mut attached = Attached {
            nbdfuse: Some(Process(nbdfuse.spawn().unwrap())),
            device: String::new(),
            fuse,
        };
        let file = attached.fuse.join("disk");
        until("nbdfuse", || file.exists());
        let device = run(tool("losetup", "mount")
            .args(["--find", "--show"])
            .arg(file));
        attached.device = device.trim().to_owned();
        attached
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // After the server's death some of these fail; none may leave the rest.
        let quietly = |command: &mut Command| {
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        if !self.device.is_empty() {
            quietly(tool("losetup", "mount").arg("--detach").arg(&self.device));
        }
        quietly(
            tool("fusermount3", "fuse3")
                .args(["-u", "-z"])
                .arg(&self.fuse),
        );
        self.nbdfuse.take();
    }
}

/// A mounted file system; unmounted when dropped.
struct Mounted {
    at: PathBuf,
}

impl Mounted {
    fn new(place: &Place, device: &str) -> Mounted {
        let at = place.path("mount");
        fs::create_dir_all(&at).unwrap();
        run(tool("mount", "mount").args(["-t", "ext4", device]).arg(&at));
        Mounted { at }
    }

    fn unmount(self) {
        run(tool("umount", "mount").arg(&self.at));
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = tool("umount", "mount").arg("--lazy").arg(&self.at).status();
    }
}

/// Files of all sizes, in directories, written, some of them over and deleted.
/// Returns what each that is left must hold.
fn write_files(at: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for i in 0..300_u64 {
        let path = at.join(format!("{}/{i}", i % 7));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = noise(i, (i * i * 37 % 400_000) as usize);
        fs::write(&path, &bytes).unwrap();
        files.insert(path, bytes);
    }
    for i in (0..300_u64).step_by(3) {
        let path = at.join(format!("{}/{i}", i % 7));
        if i % 2 == 0 {
            fs::remove_file(&path).unwrap();
            files.remove(&path);
        } else {
            let bytes = noise(i + 1000, (i * 911 % 200_000) as usize);
            fs::write(&path, &bytes).unwrap();
            files.insert(path, bytes);
        }
    }
    files
}

fn compare(files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        let found = fs::read(path).unwrap();
        assert!(found == *bytes, "{} holds other bytes", path.display());
    }
}

#[test]
fn files_survive_the_daemons_death() {
    if let Some(why) = obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::usual();
    let daemon = place.serve();
    let attached = Attached::new(&daemon);
    run(tool("mkfs.ext4", "e2fsprogs").args(["-q", "-F", &attached.device]));
    let mounted = Mounted::new(&place, &attached.device);
    let files = write_files(&mounted.at);
    run(Command::new("sync").arg("--file-system").arg(&mounted.at));
    compare(&files);
    assert!(daemon.count("blocks_updated") > 0, "the pool took no part");
    // Killed in the middle of more writes, which nobody was told are safe.
    let extra = mounted.at.join("extra");
    let writer = std::thread::spawn(move || {
        for i in 0..2000_u64 {
            if fs::write(extra.join(i.to_string()), noise(i, 50_000)).is_err()
                && fs::create_dir(&extra).is_err()
                && i > 0
            {
                return;
            }
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    daemon.process.kill();
    drop(mounted);
    drop(attached);
    writer.join().unwrap();

    let daemon = place.serve();
    let attached = Attached::new(&daemon);
    // The first replays the journal, as mounting would; then all must be well.
    let replay = tool("e2fsck", "e2fsprogs")
        .args(["-p", &attached.device])
        .output()
        .unwrap();
    assert!(
        matches!(replay.status.code(), Some(0 | 1)),
        "{}",
        common::all(&replay)
    );
    run(tool("e2fsck", "e2fsprogs").args(["-f", "-n", &attached.device]));
    let mounted = Mounted::new(&place, &attached.device);
    compare(&files);
    // Again, from the pool as far as it holds them.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    compare(&files);
    mounted.unmount();
    run(tool("e2fsck", "e2fsprogs").args(["-f", "-n", &attached.device]));
    drop(attached);
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    daemon.stop();
}
