//! Images of former releases are opened by this one.
//!
//! `crates/hotset/tests/images` has the devices and the state that a killed daemon of each release
//! left: a warm volume on RAID 1, one on RAID 5 with requests in the journal, and a write-back volume
//! with dirty data. Before a release, `a_daemon_leaves_its_images` adds those of the next.

use crate::common::client::Client;
use crate::common::{Daemon, Place, run, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ALL: &str = r#"device = [
    { name = "m0", path = "$/m0" },
    { name = "m1", path = "$/m1" },
    { name = "m2", path = "$/m2" },
    { name = "n0", path = "$/n0" },
    { name = "n1", path = "$/n1" },
    { name = "disk", path = "$/disk" },
    { name = "ssd", path = "$/ssd" },
    { name = "log0", path = "$/log0", controller = "pcie0" },
    { name = "log1", path = "$/log1", controller = "pcie1" },
]
array = [
    { name = "raid", level = "raid5", members = ["m0", "m1", "m2"] },
    { name = "mirror", level = "raid1", members = ["n0", "n1"] },
]
pool = [{ name = "fast", devices = ["ssd"], sequential = "0B", hit_latency_max = "10s" }]
volume = [
    { name = "warm", origin = "mirror", pool = "fast" },
    { name = "through", origin = "raid", pool = "fast" },
    { name = "back", origin = "disk", pool = "fast", mode = "write-back", log = ["log0", "log1"] },
]
listen = [{ unix = "$/nbd" }]
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
"#;
const FILES: [&str; 9] = ["m0", "m1", "m2", "n0", "n1", "disk", "ssd", "log0", "log1"];
const VOLUMES: [&str; 3] = ["warm", "through", "back"];
/// Written of each volume.
const BYTES: usize = 2 << 20;
/// The sectors, from the first on, of which every third is written again before the daemon's end,
/// of all volumes but the first.
const AGAIN: usize = 1024;

fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images")
}

/// The content of a volume after so many writings.
fn content(volume: &str, written: u32) -> Vec<u8> {
    let is_again = |n: usize| volume != VOLUMES[0] && n < AGAIN && n.is_multiple_of(3);
    let sector = |n: usize| {
        let version = if is_again(n) { written } else { 1 };
        format!("{volume:>7}, sector {n:>5}, version {version}\n").repeat(16)
    };
    let all: String = (0..BYTES / 512)
        .map(|n| sector(n)[..512].to_owned())
        .collect();
    all.into_bytes()
}

fn dirty(daemon: &Daemon<'_>) -> u64 {
    let status = daemon.status();
    let volumes = status["volumes"].as_array().unwrap();
    let back = volumes.iter().find(|volume| volume["name"] == "back");
    back.unwrap()["write_back"]["dirty_bytes"].as_u64().unwrap()
}

#[test]
#[ignore = "records the images of a release"]
fn a_daemon_leaves_its_images() {
    let place = Place::new();
    for name in FILES {
        place.file(name, 24);
    }
    place.config(ALL);
    for array in ["raid", "mirror"] {
        let create = format!("array create {array} --yes --config");
        run(place.command(&create).arg(place.path("hotset.toml")));
    }
    let daemon = place.serve();
    for volume in VOLUMES {
        let mut client = Client::connect(&place.path("nbd"), volume);
        client.write(0, &content(volume, 1), false).unwrap();
        client.flush().unwrap();
        client.read(0, BYTES).unwrap();
    }
    until("a clean log", || dirty(&daemon) == 0);
    // By then the pool's marks of written places are gone.
    std::thread::sleep(Duration::from_secs(20));
    for volume in &VOLUMES[1..] {
        let mut client = Client::connect(&place.path("nbd"), volume);
        let bytes = content(volume, 2);
        for (n, sector) in bytes.chunks(512).take(AGAIN).enumerate().step_by(3) {
            client.write(n as u64 * 512, sector, false).unwrap();
        }
        client.flush().unwrap();
    }
    assert!(dirty(&daemon) > 0);
    daemon.process.kill();
    let archive = images().join(concat!(env!("CARGO_PKG_VERSION"), ".tar.gz"));
    fs::create_dir_all(images()).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--sparse", "--create", "--gzip", "--owner=0", "--group=0"]);
    tar.arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(place.dir.path());
    run(tar.args(FILES).arg("state"));
}

#[test]
fn images_of_former_releases_are_served_with_all_bytes_and_warm() {
    let mut releases = 0;
    for archive in fs::read_dir(images()).unwrap() {
        let place = Place::new();
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--gzip", "--file"])
            .arg(archive.unwrap().path());
        run(tar.arg("--directory").arg(place.dir.path()));
        let file = place.config(ALL);
        // The files have other names than where they were recorded, so that the log is not proved
        // to be the disk's.
        let recover = "pool recover back --write-back --config";
        run(place.command(recover).arg(file));
        let daemon = place.serve();
        for volume in VOLUMES {
            let mut client = Client::connect(&place.path("nbd"), volume);
            assert!(
                client.read(0, BYTES).unwrap() == content(volume, 2),
                "{volume}"
            );
        }
        assert!(daemon.count("lines_restored") > 0, "the pool is cold");
        assert!(
            daemon.count("blocks_hit") >= BYTES as u64 / 4096,
            "nothing hits"
        );
        until("a clean log", || dirty(&daemon) == 0);
        daemon.stop();
        assert!(fs::read(place.path("disk")).unwrap()[..BYTES] == content("back", 2));
        releases += 1;
    }
    assert!(releases > 0, "no images are in the tree");
}
