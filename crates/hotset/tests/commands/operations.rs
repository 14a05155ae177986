//! Commands to a running daemon, effective while clients do I/O.

use crate::common::client::Client;
use crate::common::{Place, USUAL, copy_out, faultless, fio, hotset, noise, refused, run, tool};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Runs fio in the background while `work` runs.
fn under_load(place: &Place, uri: &str, work: impl FnOnce()) -> f64 {
    let options = [
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--iodepth=8",
        "--numjobs=4",
        "--size=16m",
        "--offset_increment=32m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--time_based",
        "--runtime=6",
    ];
    std::thread::scope(|scope| {
        let load = scope.spawn(|| faultless(&fio(place, "load", uri, &options)));
        std::thread::sleep(std::time::Duration::from_secs(1));
        work();
        load.join().unwrap()
    })
}

#[test]
fn a_volume_whose_origin_has_grown_is_served_as_grown_when_that_is_asked_for() {
    let place = Place::usual();
    let daemon = place.serve();
    let size = || {
        daemon.status()["volumes"][0]["size_bytes"]
            .as_u64()
            .unwrap()
    };
    let before = size();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    let bytes = noise(1, 4096);
    client.write(0, &bytes, false).unwrap();
    refused(&mut place.command("volume grow vol"), 1, &["has not grown"]);
    assert!(client.read(0, 4096).unwrap() == bytes);
    let origin = fs::File::options()
        .write(true)
        .open(place.path("origin"))
        .unwrap();
    origin.set_len(before + (1 << 20)).unwrap();
    run(&mut place.command("volume quiesce vol"));
    refused(
        &mut place.command("volume grow vol"),
        1,
        &["resume it first"],
    );
    run(&mut place.command("volume resume vol"));
    assert_eq!(size(), before, "it was not asked for");
    run(&mut place.command("volume grow vol"));
    assert_eq!(size(), before + (1 << 20));
    let mut client = Client::connect(&place.path("nbd"), "vol");
    client.write(before, &bytes, false).unwrap();
    assert!(client.read(before, 4096).unwrap() == bytes);
    assert!(client.read(0, 4096).unwrap() == bytes);
    let hits = daemon.status()["volumes"][0]["counters"]["blocks_hit"].as_u64();
    assert!(hits > Some(0), "the pool has forgotten what it held");
    // An origin of which the size cannot be read, or that was cut short, leaves the client alone.
    fs::rename(place.path("origin"), place.path("away")).unwrap();
    refused(
        &mut place.command("volume grow vol"),
        1,
        &["cannot be read"],
    );
    fs::rename(place.path("away"), place.path("origin")).unwrap();
    origin.set_len(before).unwrap();
    refused(&mut place.command("volume grow vol"), 1, &["cut short"]);
    origin.set_len(before + (1 << 20)).unwrap();
    assert!(client.read(0, 4096).unwrap() == bytes);
    drop(client);
    daemon.stop();
}

#[test]
fn modes_switch_under_load() {
    let place = Place::usual();
    let daemon = place.serve();
    under_load(&place, &daemon.uri("vol"), || {
        for mode in [
            "pass-through",
            "write-around",
            "write-through",
            "pass-through",
            "write-through",
        ] {
            run(&mut place.command(&format!("volume set-mode vol {mode}")));
            let list = run(&mut place.command("volume list"));
            assert!(list.contains(mode), "{list}");
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
    });
    assert_eq!(daemon.count("mode_switches"), 5);
    assert_eq!(daemon.count("blocks_corrupt"), 0);
    refused(
        &mut place.command("volume set-mode vol fast"),
        2,
        &["write-through, write-around, pass-through, write-back"],
    );
    refused(
        &mut place.command("volume set-mode no write-around"),
        1,
        &["no volume is named no"],
    );
    daemon.stop();
}

#[test]
fn pool_devices_come_and_go_under_load() {
    let place = Place::usual();
    place.file("second", 32);
    let daemon = place.serve();
    under_load(&place, &daemon.uri("vol"), || {
        let add = format!(
            "pool add-device fast {} --controller pcie1",
            place.text("second")
        );
        run(&mut place.command(&add));
        refused(&mut place.command(&add), 1, &["second", "in use"]);
        run(&mut place.command("pool remove-device fast pool"));
        let list = run(&mut place.command("pool list"));
        assert!(
            list.contains("second") && list.contains("pcie1") && !list.contains("pcie0"),
            "{list}"
        );
        run(&mut place.command("pool add-device fast pool"));
        run(&mut place.command("pool remove-device fast second"));
        run(&mut place.command("pool remove-device fast pool"));
        assert!(run(&mut place.command("pool list")).contains("none"));
    });
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    // A device that is released is not locked any more.
    let lock = tool("flock", "util-linux")
        .args(["--nonblock", "--exclusive"])
        .arg(place.path("second"))
        .arg("true")
        .status()
        .unwrap();
    assert!(lock.success(), "the removed device is still locked");
    refused(
        &mut place.command("pool remove-device fast pool"),
        1,
        &["has no device pool"],
    );
    refused(
        &mut place.command("pool add-device fast nosuch"),
        1,
        &["pool fast names a device nosuch that does not exist"],
    );
    refused(
        &mut place.command("pool add-device slow pool"),
        1,
        &["no pool is named slow"],
    );
    daemon.stop();
}

#[test]
fn volumes_come_and_go() {
    let place = Place::usual();
    let bytes = noise(9, 16 << 20);
    fs::write(place.path("other"), &bytes).unwrap();
    let daemon = place.serve();
    let other = place.text("other");
    std::os::unix::fs::symlink(place.path("pool"), place.path("alias")).unwrap();
    under_load(&place, &daemon.uri("vol"), || {
        let add = format!("volume add second --origin {other} --pool fast --mode write-around");
        run(&mut place.command(&add));
        refused(&mut place.command(&add), 1, &["a volume is named second"]);
        let out = copy_out(&daemon.uri("second"), &place.path("out"));
        assert!(
            out == bytes,
            "the new volume reads otherwise than its origin"
        );
        run(&mut place.command("volume remove second"));
        let gone = tool("nbdinfo", "libnbd-bin")
            .arg(daemon.uri("second"))
            .output()
            .unwrap();
        assert!(!gone.status.success());
    });
    refused(
        &mut place.command("volume remove second"),
        1,
        &["no volume is named second"],
    );
    for (words, expected) in [
        (
            format!("volume add b --origin {other} --pool fast --size 1GiB"),
            "larger than its origin",
        ),
        (
            format!("volume add b --origin {other} --pool slow"),
            "names a pool slow that does not exist",
        ),
        (
            format!("volume add b/c --origin {other} --pool fast"),
            "is no name",
        ),
        (
            format!("volume add b --origin {other} --pool fast --mode m"),
            "is no mode",
        ),
        ("volume add b --origin origin --pool fast".into(), "origin"),
        (
            format!("volume add b --origin {} --pool fast", place.text("pool")),
            "device pool, which volume b uses; give each its own device",
        ),
        (
            format!("volume add b --origin {} --pool fast", place.text("alias")),
            "is the same place as device pool",
        ),
        (
            format!("volume add b --origin {} --pool fast", place.text("no")),
            "does not exist",
        ),
    ] {
        refused(&mut place.command(&words), 1, &[expected]);
    }
    // A refused command holds nothing.
    run(&mut place.command(&format!(
        "volume add b --origin {other} --pool fast --read-only"
    )));
    let info = run(tool("nbdinfo", "libnbd-bin").arg(daemon.uri("b")));
    assert!(info.contains("is_read_only: true"), "{info}");
    daemon.stop();
    assert!(fs::read(&other).unwrap() == bytes, "the origin changed");
}

#[test]
fn status_counts_what_clients_do() {
    let place = Place::usual();
    let daemon = place.serve();
    let read = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=4",
        "--size=4m",
        "--loops=4",
    ];
    faultless(&fio(&place, "read", &daemon.uri("vol"), &read));
    let status = daemon.status();
    let volume = &status["volumes"][0];
    assert_eq!(volume["name"], "vol");
    assert_eq!(volume["size_bytes"], 128 << 20);
    let hits = volume["counters"]["blocks_hit"].as_u64().unwrap();
    let misses = volume["counters"]["blocks_missed"].as_u64().unwrap();
    assert_eq!(hits + misses, 4 * 1024, "{volume}");
    assert!(hits > misses, "{volume}");
    assert_eq!(status["nbd"]["errors"], 0);
    let pool = status["devices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["role"] == "pool");
    let pool = pool.unwrap();
    assert!(pool["read"]["iops"].as_f64().unwrap() > 0.0, "{pool}");
    assert!(
        pool["read"]["latency_us_p99"].as_f64().unwrap() > 0.0,
        "{pool}"
    );
    let table = run(&mut place.command("status"));
    for expected in [
        "vol",
        "write-through",
        "pcie0",
        "online",
        "r us p99",
        "busy %",
    ] {
        assert!(table.contains(expected), "no {expected:?} in\n{table}");
    }
    // The second report is over its own interval, in which nothing was read.
    let watched = run(&mut place.command("status --json --watch --interval 0.2 --count 2"));
    let reports: Vec<serde_json::Value> = watched
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(reports.len(), 2);
    assert!(reports[1]["span_s"].as_f64().unwrap() < reports[0]["span_s"].as_f64().unwrap());
    for device in reports[1]["devices"].as_array().unwrap() {
        assert_eq!(device["read"]["iops"], 0.0, "{device}");
    }
    daemon.stop();
}

/// Acknowledged writes before SIGTERM are on the origin, and clients in the middle of their work
/// may finish their requests in flight.
#[test]
fn sigterm_under_load_ends_well() {
    let place = Place::usual();
    let daemon = place.serve();
    let uri = daemon.uri("vol");
    let mut load = tool("fio", "fio");
    load.current_dir(place.dir.path()).args([
        "--name=load",
        "--ioengine=nbd",
        "--thread",
        "--rw=randwrite",
        "--bs=64k",
        "--iodepth=16",
        "--size=64m",
        "--time_based",
        "--runtime=30",
        &format!("--uri={uri}"),
    ]);
    load.stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let load = crate::common::Process(load.spawn().unwrap());
    crate::common::until("writes", || daemon.count("writes") > 100);
    daemon.stop();
    drop(load);
}

#[test]
fn tcp_is_served_on_loopback() {
    let place = Place::usual();
    place.config(&USUAL.replace(
        "[[listen]]",
        "[[listen]]\ntcp = \"127.0.0.1:0\"\n[[listen]]",
    ));
    let daemon = place.serve();
    let status = daemon.status();
    let uri = status["nbd"]["listeners"][0].as_str().unwrap();
    let info = run(tool("nbdinfo", "libnbd-bin").arg(format!("{uri}vol")));
    assert!(info.contains("export-size: 134217728"), "{info}");
    daemon.stop();
}

#[test]
fn a_daemon_whose_standard_error_is_gone_or_never_read_serves_on() {
    for is_gone in [true, false] {
        let place = Place::usual();
        let mut daemon = place.serve();
        if is_gone {
            drop(daemon.process.0.stderr.take());
        }
        if let Some(pipe) = &daemon.process.0.stderr {
            // SAFETY: no pointers are involved.
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        }
        // Each is a line of the log at least.
        for n in 0..50 {
            let grace = format!("grace = \"{}s\"\nstate = ", n + 1);
            place.config(&USUAL.replacen("state = ", &grace, 1));
            run(&mut place.command("reload"));
        }
        assert_eq!(daemon.status()["volumes"][0]["name"], "vol");
        daemon.process.signal(libc::SIGTERM);
        assert!(daemon.process.0.wait().unwrap().success());
    }
}

#[test]
fn two_signals_at_once_end_the_daemon_in_order() {
    for _ in 0..3 {
        let place = Place::usual();
        let mut daemon = place.serve();
        daemon.process.signal(libc::SIGTERM);
        daemon.process.signal(libc::SIGINT);
        // The next one finds the sockets free, or waits for them.
        let next = place.serve();
        assert!(daemon.process.0.wait().unwrap().success());
        next.stop();
    }
}

#[test]
fn a_daemon_that_hangs_is_reported_within_five_seconds() {
    let place = Place::usual();
    let daemon = place.serve();
    daemon.process.signal(libc::SIGSTOP);
    let began = std::time::Instant::now();
    refused(&mut place.command("status"), 1, &["does not answer"]);
    assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    daemon.process.signal(libc::SIGCONT);
    daemon.stop();
}

#[test]
fn a_change_is_logged_with_its_client_and_a_log_may_be_json() {
    let place = Place::usual();
    let daemon = place.serve();
    run(&mut place.command("volume quiesce vol"));
    run(&mut place.command("volume resume vol"));
    let log = daemon.stop();
    // SAFETY: no pointers are involved.
    let client = format!("(asked by user {}, process ", unsafe { libc::getuid() });
    let changes = log.lines().filter(|line| line.contains(&client));
    assert_eq!(changes.count(), 2, "{log}");
    let pool = fs::File::options().write(true).open(place.path("pool"));
    pool.unwrap().write_all_at(&noise(2, 1 << 20), 0).unwrap();
    let config = place.text("hotset.toml");
    let mut serve = hotset();
    serve.args(["serve", "--config", &config, "--log-format", "json"]);
    let output = serve.output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(
        (output.status.code(), &last["priority"]),
        (Some(1), &"error".into()),
        "{log}"
    );
}
