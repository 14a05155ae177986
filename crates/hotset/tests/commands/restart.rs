//! A daemon that ends, in order or not, and the lines that its successor still has.

use crate::common::client::Client;
use crate::common::{
    Daemon, Place, Process, USUAL, all, copy_out, faultless, fio, hotset, noise, refused, run,
    tool, until,
};
use layout::{BLOCK_BYTES, PoolSuperblock};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A pool that holds all of the origin's 32 MiB, and promotes all that is read.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("origin"), noise(1, 32 << 20)).unwrap();
    place.file("pool", 64);
    place.config(&USUAL.replace("\"10s\"", "\"10s\"\nsequential = \"0B\""));
    place
}

const LINES: u64 = (32 << 20) / (64 << 10);
const BLOCKS: u64 = (32 << 20) / 4096;

/// Reads everything, twice, since a line is promoted after the answer.
fn fill(place: &Place, daemon: &Daemon) {
    for _ in 0..4 {
        copy_out(&daemon.uri("vol"), &place.path("copy"));
        let status = daemon.status();
        if status["pools"][0]["lines"]["used"].as_u64() == Some(LINES) {
            return;
        }
    }
}

fn same(place: &Place, daemon: &Daemon) {
    let volume = copy_out(&daemon.uri("vol"), &place.path("copy"));
    let origin = fs::read(place.path("origin")).unwrap();
    assert!(volume == origin, "the volume is not what its origin holds");
}

#[test]
fn what_was_read_before_an_orderly_end_hits_at_once_after_it() {
    let place = place();
    let daemon = place.serve();
    fill(&place, &daemon);
    let promoted = daemon.count("blocks_promoted");
    assert!(promoted > BLOCKS / 2, "{promoted}");
    daemon.stop();
    let daemon = place.serve();
    until("the lines", || daemon.count("lines_restored") > LINES / 2);
    same(&place, &daemon);
    assert!(daemon.count("blocks_hit") >= promoted - promoted / 16);
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    daemon.stop();
    let report = run(hotset()
        .args(["pool", "inspect", "--lines"])
        .arg(place.path("pool")));
    assert!(report.contains("closed in order: true"), "{report}");
    let json = run(hotset()
        .args(["pool", "inspect", "--json"])
        .arg(place.path("pool")));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["lines"]["by_volume_id"][0]["lines"].as_u64().unwrap() > LINES / 2);
    assert_eq!(json["volumes"][0]["name"], "vol");
    let witness = place.path("state/fast.pool");
    assert!(run(hotset().args(["pool", "inspect"]).arg(witness)).contains("role: witness"));
}

#[test]
fn a_kill_loses_no_write_and_leaves_no_stale_byte() {
    let place = place();
    for round in 0..4 {
        let daemon = place.serve();
        same(&place, &daemon);
        let seed = format!("--randseed={round}");
        let options = [
            "--rw=randrw",
            "--bsrange=4k-64k",
            "--iodepth=8",
            "--size=32m",
            "--time_based",
            "--runtime=30",
            "--fsync=32",
            seed.as_str(),
        ];
        let mut load = tool("fio", "fio");
        load.args(["--ioengine=nbd", "--thread", "--name=load"])
            .arg(format!("--uri={}", daemon.uri("vol")))
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut load = load.spawn().unwrap();
        until("writes", || daemon.count("writes") > 200 * (round + 1));
        // Lines promoted since the last commit of the map are lost.
        until("a map", || daemon.count("map_commits") > 0);
        let known = daemon.count("bitmap_commits");
        assert!(known > 0);
        daemon.process.kill();
        load.wait().unwrap();
    }
    let daemon = place.serve();
    until("the lines", || {
        daemon.count("lines_restored") + daemon.count("lines_suspect") > 0
    });
    same(&place, &daemon);
    faultless(&fio(
        &place,
        "again",
        &daemon.uri("vol"),
        &["--rw=randread", "--size=32m", "--bs=64k"],
    ));
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    daemon.stop();
}

/// A daemon that is to refuse its configuration's pool, in one line.
fn refuses(place: &Place, expected: &[&str]) {
    let before = fs::read(place.path("pool")).unwrap();
    refused(
        hotset()
            .arg("serve")
            .arg("--config")
            .arg(place.path("hotset.toml")),
        1,
        expected,
    );
    assert!(
        fs::read(place.path("pool")).unwrap() == before,
        "the pool was written"
    );
}

#[test]
fn a_pool_device_that_holds_something_else_is_left_alone_until_confirmed() {
    let place = place();
    run(tool("mkfs.ext4", "e2fsprogs")
        .args(["-q", "-F"])
        .arg(place.path("pool")));
    refuses(&place, &["ext file system", "pool format --yes"]);
    let path = place.path("pool");
    refused(
        hotset().args(["pool", "format"]).arg(&path),
        1,
        &["ext file system", "--yes"],
    );
    run(hotset().args(["pool", "format", "--yes"]).arg(&path));
    let daemon = place.serve();
    refused(
        hotset().args(["pool", "inspect"]).arg(&path),
        1,
        &["in use"],
    );
    daemon.stop();
    fs::write(place.path("second"), noise(5, 8 << 20)).unwrap();
    let daemon = place.serve();
    let add = format!("pool add-device fast {}", place.text("second"));
    refused(
        &mut place.command(&add),
        1,
        &["data of an unknown kind", "format --yes"],
    );
    daemon.stop();
}

#[test]
fn pools_that_cannot_be_read_have_their_messages() {
    let place = place();
    place.serve().stop();
    let good = fs::read(place.path("pool")).unwrap();
    let pool = place.path("pool");
    // Cut short.
    File::options()
        .write(true)
        .open(&pool)
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    let said = place.serve().stop();
    assert!(said.contains("starts without pool"), "{said}");
    assert!(said.contains("cut short"), "{said}");
    assert!(said.contains("restore its size"), "{said}");
    refused(
        hotset().args(["pool", "inspect"]).arg(&pool),
        1,
        &["damaged"],
    );
    // Of a newer format.
    fs::write(&pool, &good).unwrap();
    let mut superblock = good[..4096].to_vec();
    superblock[8] = 3;
    let crc = crc32c::crc32c(&superblock[..4092]);
    superblock[4092..].copy_from_slice(&crc.to_le_bytes());
    let file = File::options().write(true).open(&pool).unwrap();
    file.write_all_at(&superblock, 0).unwrap();
    refuses(&place, &["version 3"]);
    // Both superblocks are damaged.
    fs::write(&pool, &good).unwrap();
    let file = File::options().write(true).open(&pool).unwrap();
    file.write_all_at(&[9], 100).unwrap();
    file.write_all_at(&[9], good.len() as u64 - (64 << 10) + 100)
        .unwrap();
    let said = place.serve().stop();
    assert!(said.contains("superblock is damaged"), "{said}");
    let format = format!("`hotset pool format --yes {}`", pool.display());
    assert!(said.contains(&format), "{said}");
    // One superblock is: the other holds, and the damage is reported.
    fs::write(&pool, &good).unwrap();
    let file = File::options().write(true).open(&pool).unwrap();
    file.write_all_at(&[9], 100).unwrap();
    let expected = hotset()
        .args(["pool", "inspect"])
        .arg(&pool)
        .output()
        .unwrap();
    assert!(
        all(&expected).contains("superblock A"),
        "{}",
        all(&expected)
    );
    place.serve().stop();
    // A zeroed device is initialised again.
    File::create(&pool).unwrap().set_len(64 << 20).unwrap();
    let daemon = place.serve();
    same(&place, &daemon);
    assert!(daemon.stop().contains("has lost"));
}

#[test]
fn a_pool_of_another_host_or_of_another_name_is_left_alone() {
    let place = place();
    place.serve().stop();
    // The view of another host: the same device, without the files beside it.
    fs::rename(place.path("state"), place.path("elsewhere")).unwrap();
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    place.config(&text.replace("\"fast\"", "\"quick\""));
    refuses(&place, &["belongs to pool fast", "format --yes"]);
    // The same pool without its witness starts cold.
    place.config(&text);
    let daemon = place.serve();
    same(&place, &daemon);
    assert!(daemon.stop().contains("without the lines"));
}

/// The record beside the pool is written again while the device is away.
#[test]
fn a_device_that_returns_after_the_record_was_lost_starts_cold() {
    let place = place();
    place.serve().stop();
    fs::remove_dir_all(place.path("state")).unwrap();
    let pool = File::options()
        .write(true)
        .open(place.path("pool"))
        .unwrap();
    pool.set_len(32 << 20).unwrap();
    assert!(place.serve().stop().contains("cut short"));
    pool.set_len(64 << 20).unwrap();
    let daemon = place.serve();
    same(&place, &daemon);
    let said = daemon.stop();
    assert!(said.contains("another pool of this name"), "{said}");
}

#[test]
fn a_volume_is_one_pools_only() {
    let place = place();
    place.serve().stop();
    place.file("other", 64);
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let other = text
        .replace("\"fast\"", "\"quick\"")
        .replace("$/pool", "$/other");
    place.config(&other.replace(&place.text("pool"), &place.text("other")));
    refuses(
        &place,
        &["claimed by two pools", "quick and fast", "fast.pool"],
    );
    fs::remove_file(place.path("state/fast.pool")).unwrap();
    place.serve().stop();
}

#[test]
fn an_origin_that_shrank_drops_its_lines_and_says_so() {
    let place = place();
    let daemon = place.serve();
    fill(&place, &daemon);
    daemon.stop();
    let origin = File::options()
        .write(true)
        .open(place.path("origin"))
        .unwrap();
    origin.set_len(16 << 20).unwrap();
    let daemon = place.serve();
    same(&place, &daemon);
    assert!(daemon.stop().contains("was cut short"));
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let place = place();
    fs::write(place.path("state"), "a file").unwrap();
    refuses(&place, &["cannot be kept here", "`state`"]);
}

#[test]
fn a_pool_that_names_another_host_is_left_alone() {
    let place = place();
    place.serve().stop();
    let mut bytes = fs::read(place.path("pool")).unwrap();
    let mut superblock = PoolSuperblock::decode(&bytes, &[]).unwrap();
    superblock.host = "another".into();
    let plan = superblock.plan().unwrap();
    for copy in plan.superblocks {
        let at = copy.start as usize * BLOCK_BYTES;
        superblock.encode(&mut bytes[at..at + copy.blocks as usize * BLOCK_BYTES]);
    }
    fs::write(place.path("pool"), &bytes).unwrap();
    fs::remove_dir_all(place.path("state")).unwrap();
    let expected = ["belongs to pool fast", "of another host", "format --yes"];
    refuses(&place, &expected);
    assert!(fs::read(place.path("pool")).unwrap() == bytes, "it changed");
}

#[test]
fn a_full_disk_beside_the_pool_is_reported() {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: this needs root, to mount a small file system");
        return;
    }
    let place = place();
    let state = place.path("state");
    fs::create_dir_all(&state).unwrap();
    let mut mount = tool("mount", "mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]);
    run(mount.arg(&state));
    let refused = std::panic::catch_unwind(|| {
        refuses(&place, &["cannot be kept here", "free some space"]);
    });
    run(tool("umount", "mount").arg(&state));
    refused.unwrap();
    // With room again the pool starts.
    place.serve().stop();
}

#[test]
fn a_volume_that_moved_to_another_pool_and_back_has_no_lines_of_before() {
    let place = place();
    place.file("other", 64);
    let here = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let other = r#"
[[device]]
name = "other"
path = "$/other"
[[pool]]
name = "slow"
devices = ["other"]
"#;
    let here = here + other;
    let there = here.replace("pool = \"fast\"", "pool = \"slow\"");
    place.config(&here);
    let daemon = place.serve();
    fill(&place, &daemon);
    daemon.stop();
    place.config(&there);
    let daemon = place.serve();
    // Elsewhere than the samples, as far as that goes, and killed at once.
    let source = place.path("source");
    fs::write(&source, noise(5, 1 << 20)).unwrap();
    crate::common::copy_in(&source, &daemon.uri("vol"));
    daemon.process.kill();
    place.config(&here);
    let daemon = place.serve();
    same(&place, &daemon);
    assert_eq!(daemon.count("lines_restored"), 0);
    daemon.stop();
}

#[test]
fn a_start_that_waits_for_devices_in_use_ends_soon_after_a_signal() {
    let place = Place::usual();
    let daemon = place.serve();
    let dir = place.text("");
    let others = [
        ("control", "control2"),
        ("state", "state2"),
        ("nbd", "nbd2"),
    ];
    let text = others.iter().fold(USUAL.to_owned(), |text, (of, other)| {
        text.replace(&format!("$/{of}\""), &format!("$/{other}\""))
    });
    let file = place.path("second.toml");
    fs::write(&file, text.replace("$/", &dir)).unwrap();
    let mut second = hotset();
    let second = second.arg("serve").arg("--config").arg(&file);
    let mut second = Process(second.stderr(Stdio::null()).spawn().unwrap());
    until("its control socket", || place.path("control2").exists());
    let asked = Instant::now();
    second.signal(libc::SIGTERM);
    second.0.wait().unwrap();
    // Without the signal the start takes up to 30 s. Ten of them are for the pool's device.
    assert!(asked.elapsed() < Duration::from_secs(20), "{asked:?}");
    daemon.stop();
}

/// A daemon with the socket `made`, as the service manager passes it.
fn with_socket(place: &Place, made: &UnixListener) -> Process {
    let mut shell = Command::new("sh");
    let words = "LISTEN_PID=$$ exec \"$0\" serve --config \"$1\" 3<&0 </dev/null";
    shell.args(["-c", words]).arg(hotset().get_program());
    shell.arg(place.path("hotset.toml")).env("LISTEN_FDS", "1");
    let socket = OwnedFd::from(made.try_clone().unwrap());
    Process(shell.stdin(socket).spawn().unwrap())
}

#[test]
fn a_socket_of_the_service_manager_keeps_clients_waiting_between_daemons() {
    let place = Place::usual();
    let socket = place.path("nbd");
    let made = UnixListener::bind(&socket).unwrap();
    let mut first = with_socket(&place, &made);
    let mut client = Client::connect(&socket, "vol");
    let bytes = noise(1, 4096);
    client.write(0, &bytes, true).unwrap();
    first.signal(libc::SIGTERM);
    assert!(first.0.wait().unwrap().success());
    assert!(client.read(0, 4096).is_err(), "the former connection ends");
    let came = socket.clone();
    let waiting = std::thread::spawn(move || Client::connect(&came, "vol").read(0, 4096));
    let second = with_socket(&place, &made);
    assert!(waiting.join().unwrap().unwrap() == bytes);
    drop(second);
    assert!(socket.exists(), "the file is the service manager's");
}
