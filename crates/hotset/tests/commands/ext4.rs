//! A real file system on a volume, mounted the way that needs no kernel client:
//! nbdfuse, a loop device, ext4.

use crate::common::{Daemon, Place, USUAL, attaches, hotset, noise, run, tool, until};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;
use testbed::attached::AttachedDevice;
use testbed::killed::until_ended;
use testbed::mounted::MountedFileSystem;

fn attach(daemon: &Daemon<'_>) -> AttachedDevice {
    // The kernel may still be ending the I/O of a daemon that was killed.
    until("the volume to be served", || {
        let status = daemon.status();
        eprintln!("waiting: {}", status["waiting"]);
        status["volumes"][0]["name"] == "vol"
    });
    AttachedDevice::new(&daemon.uri("vol"), &daemon.place.path("fuse"), &[]).unwrap()
}

/// Files of all sizes, in directories, written, some of them over and deleted. Returns the required
/// contents of the files that are left.
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

/// Writes until writing fails.
fn write_more(at: &Path) -> JoinHandle<()> {
    let extra = at.join("extra");
    std::thread::spawn(move || {
        for i in 0..2000_u64 {
            if fs::write(extra.join(i.to_string()), noise(i, 50_000)).is_err()
                && fs::create_dir(&extra).is_err()
                && i > 0
            {
                return;
            }
        }
    })
}

/// Replays the journal, as mounting would; then all must be well.
fn check(device: &Path) {
    let replay = tool("e2fsck", "e2fsprogs").arg("-p").arg(device).output();
    let replay = replay.unwrap();
    assert!(
        matches!(replay.status.code(), Some(0 | 1)),
        "{}",
        crate::common::all(&replay)
    );
    run(tool("e2fsck", "e2fsprogs").args(["-f", "-n"]).arg(device));
}

fn compare(files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        let found = fs::read(path).unwrap();
        assert!(found == *bytes, "{} holds other bytes", path.display());
    }
}

#[test]
fn files_survive_the_daemons_death() {
    if !attaches() {
        return;
    }
    let place = Place::usual();
    let daemon = place.serve();
    let attached = attach(&daemon);
    run(tool("mkfs.ext4", "e2fsprogs")
        .args(["-q", "-F"])
        .arg(attached.device()));
    let mounted = MountedFileSystem::new(attached.device(), &place.path("mount")).unwrap();
    let files = write_files(mounted.at());
    run(Command::new("sync").arg("--file-system").arg(mounted.at()));
    compare(&files);
    assert!(daemon.count("blocks_updated") > 0, "the pool took no part");
    // Killed in the middle of more writes, which were not acknowledged as durable.
    let writer = write_more(mounted.at());
    std::thread::sleep(std::time::Duration::from_millis(300));
    daemon.process.kill();
    drop(mounted);
    drop(attached);
    writer.join().unwrap();

    let daemon = place.serve();
    let attached = attach(&daemon);
    check(attached.device());
    let mounted = MountedFileSystem::new(attached.device(), &place.path("mount")).unwrap();
    compare(&files);
    // Again, from the pool as far as possible.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    compare(&files);
    mounted.unmount().unwrap();
    run(tool("e2fsck", "e2fsprogs")
        .args(["-f", "-n"])
        .arg(attached.device()));
    drop(attached);
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    daemon.stop();
}

/// The rounds of destruction: more in a soak.
fn rounds() -> u64 {
    let asked = std::env::var("HOTSET_ROUNDS");
    asked.map_or(1, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Everything fast is gone, with its daemon, in the midst of writes: the file system that is left
/// has all that was durable before the oldest write in the log.
#[test]
fn the_origin_of_a_write_back_volume_is_a_file_system_without_the_rest() {
    (0..rounds()).for_each(|round| destroy(round, "ordered", true));
}

/// The file system of a journaled volume has the same, once its journal is replayed, whether or not
/// the file beside the log is left.
#[test]
fn the_origin_of_a_journaled_volume_is_a_file_system_once_the_journal_is_replayed() {
    (0..2 * rounds()).for_each(|round| destroy(round, "journaled", round % 2 == 0));
}

fn destroy(round: u64, order: &str, and_state: bool) {
    if !attaches() {
        return;
    }
    let place = Place::usual();
    let logs = ["log0", "log1"];
    let device = |name: &&str| {
        place.file(name, 24);
        format!("[[device]]\nname = \"{name}\"\ncontroller = \"{name}\"\npath = \"$/{name}\"\n")
    };
    let devices: String = logs.iter().chain(&["hdd9"]).map(device).collect();
    let log = "log = [\"log0\", \"log1\"]\njournal = \"hdd9\"\nmax_lag = \"2s\"";
    let mode = format!("mode = \"write-back\"\nwrite_back = \"{order}\"\n{log}\n[[listen]]");
    let text = USUAL.replace("[[listen]]", &mode) + &devices;
    let config = place.config(&text);
    let daemon = place.serve();
    let attached = attach(&daemon);
    run(tool("mkfs.ext4", "e2fsprogs")
        .args(["-q", "-F"])
        .arg(attached.device()));
    let mounted = MountedFileSystem::new(attached.device(), &place.path("mount")).unwrap();
    let files = write_files(mounted.at());
    run(Command::new("sync").arg("--file-system").arg(mounted.at()));
    compare(&files);
    let dirty = || daemon.status()["volumes"][0]["write_back"]["dirty_bytes"].as_u64();
    until("the origin to have it", || dirty().unwrap() == 0);
    let writer = write_more(mounted.at());
    until("more to be dirty", || dirty().unwrap() > 0);
    // At another moment each time.
    let moment = u64::from(noise(round, 1)[0]) * 4;
    std::thread::sleep(std::time::Duration::from_millis(moment));
    for file in logs.iter().chain(&["pool"]) {
        fs::remove_file(place.path(file)).unwrap();
    }
    if and_state {
        fs::remove_dir_all(place.path("state")).unwrap();
    }
    daemon.process.kill();
    drop(mounted);
    drop(attached);
    writer.join().unwrap();

    until_ended(&place.path("control")).unwrap();
    let mut recover = hotset();
    recover.args(["pool", "recover", "--config"]).arg(&config);
    let recovered = run(recover.args(["vol", "--discard"]));
    println!("round {round}, {moment} ms, {order}: {recovered}");
    assert!(
        recovered.contains("origin is an earlier state"),
        "{recovered}"
    );
    check(&place.path("origin"));
    place.file("pool", 64);
    place.config(USUAL);
    let daemon = place.serve();
    let attached = attach(&daemon);
    let mounted = MountedFileSystem::new(attached.device(), &place.path("mount")).unwrap();
    compare(&files);
    mounted.unmount().unwrap();
    drop(attached);
    daemon.stop();
}
