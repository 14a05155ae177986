//! Devices that die under load: a pool device, which costs hits, and an origin
//! that comes back.

use crate::common::{
    Daemon, Place, Process, USUAL, copy_in, copy_out, faultless, fio, hotset, noise, refused, run,
    tool, until,
};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Instant;

#[test]
fn a_pool_device_killed_under_load_costs_no_error() {
    let place = Place::usual();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--unix"])
        .arg(place.path("ram"));
    server.args(["memory", "64M"]);
    // Without the wrapper that would outlive a kill of nbdkit alone.
    server.arg("--exit-with-parent");
    let server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("ram").exists());
    let nbd = "nbd = \"nbd+unix:///?socket=$/ram\"";
    let text = USUAL.replace("path = \"$/pool\"", nbd);
    place.config(&text.replace("\"10s\"", "\"500ms\""));
    let daemon = place.serve();
    let options = [
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--iodepth=8",
        "--numjobs=4",
        "--size=8m",
        "--offset_increment=32m",
        "--verify=crc32c",
        "--verify_state_save=0",
        "--verify_fatal=1",
        "--time_based",
        "--runtime=12",
    ];
    let stall_s = std::thread::scope(|scope| {
        let uri = daemon.uri("vol");
        let (place, options) = (&place, &options);
        let load = scope.spawn(move || faultless(&fio(place, "load", &uri, options)));
        until("hits", || daemon.count("blocks_hit") > 1000);
        server.kill();
        until("the ejection", || {
            let status = daemon.status();
            let state = status["pools"][0]["devices"][0]["state"].as_str().unwrap();
            state.starts_with("ejected")
        });
        // The log is written once a second.
        std::thread::sleep(std::time::Duration::from_secs(2));
        // Another takes its place while the load goes on.
        run(&mut place.command("pool remove-device fast pool"));
        let add = format!("pool add-device fast {} --name spare", place.text("pool"));
        run(&mut place.command(&add));
        let before = daemon.count("blocks_hit");
        until("hits on the spare", || {
            daemon.count("blocks_hit") > before + 100
        });
        load.join().unwrap()
    });
    let status = daemon.status();
    assert_eq!(status["nbd"]["errors"], 0, "{}", status["nbd"]);
    assert_eq!(status["pools"][0]["counters"]["devices_ejected"], 1);
    println!("the longest request took {stall_s:.3} s");
    let log = daemon.stop();
    // The first report: a late hit, or the refusal to connect again.
    let said = [
        "of pool fast is too slow and is gone round",
        "was ejected from pool fast (gone)",
    ];
    assert!(said.iter().any(|said| log.contains(said)), "{log}");
}

/// Reads that wait for an NBD origin while it is down are answered when it is back.
#[test]
fn an_nbd_origin_that_restarts_costs_no_read() {
    let place = Place::usual();
    let start = || {
        let mut server = tool("nbdkit", "nbdkit");
        server
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(place.path("san"));
        server.arg("file").arg(place.path("origin"));
        let server = Process(server.spawn().unwrap());
        until("nbdkit", || place.path("san").exists());
        server
    };
    let server = start();
    place.config(&USUAL.replace("path = \"$/origin\"", "nbd = \"nbd+unix:///?socket=$/san\""));
    let daemon = place.serve();
    run(&mut place.command("volume set-mode vol pass-through"));
    let options = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=8",
        "--size=64m",
        "--time_based",
        "--runtime=6",
    ];
    let reads = || daemon.status()["nbd"]["requests"].as_u64().unwrap();
    let again = std::thread::scope(|scope| {
        let (place, uri, options) = (&place, daemon.uri("vol"), &options);
        let load = scope.spawn(move || faultless(&fio(place, "load", &uri, options)));
        until("reads", || reads() > 1000);
        server.kill();
        std::fs::remove_file(place.path("san")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let again = start();
        let before = reads();
        until("reads after the restart", || reads() > before + 1000);
        load.join().unwrap();
        again
    });
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    daemon.stop();
    drop(again);
}

#[test]
fn an_origin_that_does_not_answer_is_left_when_the_daemon_ends() {
    let place = Place::usual();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--unix"])
        .arg(place.path("slow"));
    server.args(["memory", "64M", "--filter=delay", "wdelay=1000"]);
    server.arg("--exit-with-parent");
    let server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("slow").exists());
    let text = USUAL.replace(
        "path = \"$/origin\"",
        "nbd = \"nbd+unix:///?socket=$/slow\"",
    );
    let limits = "state = \"$/state\"\ngrace = \"100ms\"\nstop = \"4s\"";
    place.config(&text.replace("state = \"$/state\"", limits));
    let mut daemon = place.serve();
    std::fs::write(place.path("source"), [1; 4096]).unwrap();
    let mut writer = tool("nbdcopy", "libnbd-bin");
    writer.arg(place.path("source")).arg(daemon.uri("vol"));
    let writer = Process(writer.spawn().unwrap());
    until("the write", || daemon.count("writes") > 0);
    daemon.process.signal(libc::SIGTERM);
    let status = daemon.process.0.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let mut log = String::new();
    let mut error = daemon.process.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut error, &mut log).unwrap();
    assert!(
        log.contains("volume vol may have lost writes: its origin origin has not answered for 4s"),
        "{log}"
    );
    let waits = "waiting for the last writes of volume vol; device origin has answered none of ";
    assert_eq!(log.matches(waits).count(), 1, "{log}");
    drop((writer, server));
}

/// A write-back volume with an origin that can be stopped: nbdkit serves `$/origin`.
const WRITE_BACK: &str = r#"
[daemon]
control = "$/control"
state = "$/state"
buffers = "64MiB"
stop = "4s"
[[device]]
name = "origin"
nbd = "nbd+unix:///?socket=$/slow"
[[device]]
name = "pool"
path = "$/pool"
[[device]]
name = "log0"
path = "$/log0"
controller = "pcie0"
[[device]]
name = "log1"
path = "$/log1"
controller = "pcie1"
[[pool]]
name = "fast"
devices = ["pool"]
hit_latency_max = "10s"
[[volume]]
name = "vol"
origin = "origin"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
max_lag = "10min"
[[listen]]
unix = "$/nbd"
"#;

/// Its files, and the server of its origin.
fn write_back() -> (Place, Process) {
    let place = Place::new();
    place.file("origin", 24);
    place.file("pool", 16);
    place.file("log0", 24);
    place.file("log1", 24);
    place.config(WRITE_BACK);
    let server = place.stoppable_origin();
    (place, server)
}

fn log_of(daemon: &Daemon<'_>) -> serde_json::Value {
    daemon.status()["volumes"][0]["write_back"].clone()
}

fn dirty(daemon: &Daemon<'_>) -> u64 {
    log_of(daemon)["dirty_bytes"].as_u64().unwrap()
}

/// Writes data that the origin does not get, kills the daemon, and returns the volume's contents.
fn leave_dirty(place: &Place, server: &Process) -> Vec<u8> {
    let mut bytes = noise(1, 24 << 20);
    std::fs::write(place.path("first"), &bytes).unwrap();
    let daemon = place.serve();
    copy_in(&place.path("first"), &daemon.uri("vol"));
    until("the origin to have it", || dirty(&daemon) == 0);
    server.signal(libc::SIGSTOP);
    let later = noise(2, 4 << 20);
    std::fs::write(place.path("later"), &later).unwrap();
    copy_in(&place.path("later"), &daemon.uri("vol"));
    bytes[..later.len()].copy_from_slice(&later);
    assert_eq!(log_of(&daemon)["copies"], 2);
    assert!(dirty(&daemon) >= 4 << 20, "{}", daemon.status());
    daemon.process.kill();
    bytes
}

#[test]
fn an_end_that_takes_long_says_what_it_waits_for_and_until_when() {
    let (place, server) = write_back();
    place.config(&WRITE_BACK.replace("stop = ", "grace = \"1s\"\nstop = "));
    let daemon = place.serve();
    server.signal(libc::SIGSTOP);
    std::fs::write(place.path("source"), noise(1, 4 << 20)).unwrap();
    copy_in(&place.path("source"), &daemon.uri("vol"));
    std::fs::remove_file(place.path("notify")).unwrap();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    let began = Instant::now();
    let log = daemon.stop();
    // Three times `grace` and one and a half times `stop`.
    assert!(began.elapsed().as_secs() < 9 + 1, "{:?}", began.elapsed());
    let says = [
        "waiting for the last writes of volume vol; ",
        "of volume vol are dirty; device origin has answered none of ",
        " s: see to it; the end comes within ",
    ];
    let lines = || log.lines().filter(|line| line.contains(says[0]));
    assert!(
        lines().count() == 1 && lines().all(|line| says.iter().all(|said| line.contains(said))),
        "{log}"
    );
    let mut state = [0; 512];
    manager.set_nonblocking(true).unwrap();
    let mut states = String::new();
    while let Ok(len) = manager.recv(&mut state) {
        states += &String::from_utf8_lossy(&state[..len]);
    }
    let status = format!("STOPPING=1\nSTATUS={}", says[0]);
    assert!(states.contains(&status), "{states}");
}

#[test]
fn what_a_log_answered_outlives_its_daemon_and_one_of_its_devices() {
    let (place, server) = write_back();
    let bytes = leave_dirty(&place, &server);
    std::fs::remove_file(place.path("log0")).unwrap();
    server.signal(libc::SIGCONT);
    let daemon = place.serve();
    assert_eq!(log_of(&daemon)["copies"], 1, "{}", daemon.status());
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "acknowledged bytes are lost");
    until("the origin to have it", || dirty(&daemon) == 0);
    // With one copy alone the origin answers.
    let last = noise(3, 1 << 20);
    std::fs::write(place.path("last"), &last).unwrap();
    copy_in(&place.path("last"), &daemon.uri("vol"));
    let mut bytes = bytes;
    bytes[..last.len()].copy_from_slice(&last);
    let origin = std::fs::read(place.path("origin")).unwrap();
    assert!(origin == bytes, "the origin lacks what it was to answer");
    let said = daemon.stop();
    assert!(
        said.contains("the log of volume vol goes without log0"),
        "{said}"
    );
    // Another takes its place; the one that was away meanwhile is not trusted.
    place.file("log0", 24);
    let daemon = place.serve();
    assert_eq!(log_of(&daemon)["copies"], 2);
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "acknowledged bytes are lost");
    daemon.stop();
}

#[test]
fn the_loss_of_a_device_of_a_log_is_said_though_the_log_is_given_up_at_once() {
    let (place, _server) = write_back();
    place.serve().stop();
    std::fs::remove_file(place.path("log0")).unwrap();
    let daemon = place.serve();
    run(&mut place.command("volume set-mode vol write-through --temporary"));
    let said = daemon.stop();
    assert!(
        said.contains("the log of volume vol goes without log0"),
        "{said}"
    );
}

#[test]
fn a_log_that_keeps_no_order_outlives_its_daemon_and_says_what_it_does_not_promise() {
    let (place, server) = write_back();
    let coalesced = "write_back = \"coalesced\"\nmax_lag = \"8s\"";
    let config = place.config(&WRITE_BACK.replace("max_lag = \"10min\"", coalesced));
    let unpromised = "nothing is promised of origin";
    let printed = run(hotset().arg("check").arg(config));
    assert!(printed.contains(unpromised), "{printed}");
    let bytes = leave_dirty(&place, &server);
    server.signal(libc::SIGCONT);
    let daemon = place.serve();
    assert_eq!(log_of(&daemon)["order"], "coalesced");
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "acknowledged bytes are lost");
    until("the origin to have it", || dirty(&daemon) == 0);
    let origin = std::fs::read(place.path("origin")).unwrap();
    assert!(origin == bytes, "the origin lacks what it was given");
    let said = daemon.stop();
    assert!(said.contains(unpromised), "{said}");
}

/// Refuses configurations that leave the log out, or give its devices to others.
fn is_refused_without_its_log(place: &Place) {
    let serve = || {
        let mut command = hotset();
        command.arg("serve").arg("--config");
        command.arg(place.path("hotset.toml"));
        command
    };
    let config = |text: &str| drop(place.config(text));
    // Not configured, or as another mode.
    let begin = WRITE_BACK.find("[[volume]]").unwrap();
    let end = WRITE_BACK.find("[[listen]]").unwrap();
    config(&(WRITE_BACK[..begin].to_owned() + &WRITE_BACK[end..]));
    let why = "volume vol may have dirty data for its origin, on log0 and log1";
    refused(&mut serve(), 1, &[why, "vol.log", "--discard"]);
    let mut check = hotset();
    check.arg("check").arg(place.path("hotset.toml"));
    refused(&mut check, 2, &[why, "vol.log", "--discard"]);
    config(&WRITE_BACK.replace("mode = \"write-back\"", ""));
    refused(&mut serve(), 1, &[why]);
    // Its log as a pool's device.
    config(&WRITE_BACK.replace("$/pool\"", "$/log0\"").replacen(
        "path = \"$/log0\"\ncontroller",
        "path = \"$/other\"\ncontroller",
        1,
    ));
    refused(&mut serve(), 1, &["the log of a write-back volume"]);
    let mut format = hotset();
    format
        .args(["pool", "format", "--yes"])
        .arg(place.path("log1"));
    refused(
        &mut format,
        1,
        &["it may hold dirty data of volume vol", "--write-back"],
    );
}

#[test]
fn a_volume_with_dirty_data_is_served_by_its_log_or_not_at_all() {
    let (place, server) = write_back();
    let bytes = leave_dirty(&place, &server);
    server.signal(libc::SIGCONT);
    let logs = || ["log0", "log1"].map(|log| std::fs::read(place.path(log)).unwrap());
    let before = logs();
    is_refused_without_its_log(&place);
    let config = |text: &str| drop(place.config(text));
    config(WRITE_BACK);
    // Both devices away, or one and the file that would say whether the other is current.
    let away = |name: &str| place.path(&format!("{name}.away"));
    let take = |name: &str| std::fs::rename(place.path(name), away(name)).unwrap();
    let give = |name: &str| std::fs::rename(away(name), place.path(name)).unwrap();
    let waits = |why: &str| {
        let daemon = place.serve();
        let status = daemon.status();
        assert!(status["volumes"].as_array().unwrap().is_empty());
        let said = status["waiting"][0]["why"].as_str().unwrap().to_owned();
        assert!(said.contains(why), "{said}");
        let remove = "volume remove vol --temporary";
        refused(&mut place.command(remove), 1, &["may have dirty data"]);
        daemon.stop();
    };
    take("log0");
    take("log1");
    waits("what its origin does not have yet is on log0 and log1");
    give("log0");
    take("state/vol.log");
    waits("log1 may have what its origin does not have");
    give("state/vol.log");
    give("log1");
    // Another origin.
    std::fs::copy(place.path("origin"), place.path("other")).unwrap();
    config(&WRITE_BACK.replace("nbd = \"nbd+unix:///?socket=$/slow\"", "path = \"$/other\""));
    waits("this is another device");
    let other = std::fs::read(place.path("other")).unwrap();
    assert!(
        other[..4 << 20] != bytes[..4 << 20],
        "it got the dirty data of the log"
    );
    config(WRITE_BACK);
    assert!(logs() == before, "something was written to a log");
    let daemon = place.serve();
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "acknowledged bytes are lost");
    // Given up by a change of mode, once there is no dirty data.
    run(&mut place.command("volume set-mode vol write-through --temporary"));
    assert!(log_of(&daemon).is_null());
    assert!(std::fs::read(place.path("origin")).unwrap() == bytes);
    daemon.stop();
    config(&WRITE_BACK.replace("mode = \"write-back\"", ""));
    place.serve().stop();
}

/// The report of an inspection, in which the devices of the log have these states.
fn as_json(recover: &mut Command, states: [&str; 2]) -> serde_json::Value {
    let report: serde_json::Value = serde_json::from_str(&run(recover)).unwrap();
    assert_eq!(report["outcome"], "inspected", "{report}");
    assert_eq!(report["journal"]["device"], "hdd9", "{report}");
    let seen = [&report["log"][0]["state"], &report["log"][1]["state"]];
    assert_eq!(seen, states, "{report}");
    report
}

/// A journaled volume without its log: reported without a change, and given up by a command.
#[test]
fn a_log_that_is_lost_is_given_up_and_its_journal_replayed() {
    let (place, server) = write_back();
    place.file("hdd9", 24);
    let journal = "[[device]]\nname = \"hdd9\"\npath = \"$/hdd9\"\ncontroller = \"sas0\"\n[[pool]]";
    let journaled = "write_back = \"journaled\"\njournal = \"hdd9\"\nmax_lag = \"8s\"";
    let text = WRITE_BACK.replace("max_lag = \"10min\"", journaled);
    let config = place.config(&text.replace("[[pool]]", journal));
    let recover = |more: &[&str]| {
        let mut command = hotset();
        command.args(["pool", "recover", "--config"]).arg(&config);
        command.arg("vol").args(more);
        command
    };
    leave_dirty(&place, &server);
    server.signal(libc::SIGCONT);
    let report = as_json(&mut recover(&["--json"]), ["current", "current"]);
    assert!(report["dirty_bytes"].as_u64() >= Some(4 << 20), "{report}");
    let said = run(&mut recover(&[]));
    let expected = ["log0: a copy that counts", "`hotset serve` writes it back"];
    assert!(expected.iter().all(|text| said.contains(text)), "{said}");
    let daemon = place.serve();
    refused(&mut recover(&[]), 1, &["a daemon runs"]);
    daemon.process.kill();
    for log in ["log0", "log1"] {
        std::fs::remove_file(place.path(log)).unwrap();
    }
    let origin = || std::fs::read(place.path("origin")).unwrap();
    let (before, journal) = (origin(), std::fs::read(place.path("hdd9")).unwrap());
    let report = as_json(&mut recover(&["--json"]), ["absent", "absent"]);
    assert!(report["dirty_bytes"].is_null(), "{report}");
    let said = run(&mut recover(&[]));
    let expected = [
        "log1: cannot be used",
        "volume vol: its dirty data for origin is lost",
    ];
    assert!(expected.iter().all(|text| said.contains(text)), "{said}");
    assert!(origin() == before && std::fs::read(place.path("hdd9")).unwrap() == journal);
    assert!(place.path("state/vol.log").exists());
    let mut format = hotset();
    format
        .args(["pool", "format", "--yes"])
        .arg(place.path("hdd9"));
    refused(
        &mut format,
        1,
        &["the journal of volume vol", "pool recover"],
    );
    // Another log does not begin in its place.
    place.file("log0", 24);
    place.file("log1", 24);
    let daemon = place.serve();
    let why = daemon.status()["waiting"][0]["why"].clone();
    assert!(
        why.as_str().unwrap().contains("is on log0 and log1"),
        "{why}"
    );
    daemon.stop();
    let said = run(&mut recover(&["--discard"]));
    assert!(said.contains("an earlier state"), "{said}");
    let bytes = origin();
    let daemon = place.serve();
    assert_eq!(log_of(&daemon)["order"], "journaled", "{}", daemon.status());
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "it is not what its origin was");
    daemon.stop();
}

/// Each target that is unfit is refused, and a target without an action, or without a log.
fn refuse_targets(place: &Place, recover: &dyn Fn(&[&str]) -> std::process::Command) {
    let image = place.text("image");
    refused(&mut recover(&["--to", &image]), 2, &["give `--write-back`"]);
    let to = |path: &str| recover(&["--write-back", "--to", &place.text(path)]);
    std::os::unix::fs::symlink(place.path("log0"), place.path("link")).unwrap();
    refused(&mut to("link"), 1, &["is log0 of the configuration"]);
    refused(&mut to("pool"), 1, &["is pool of the configuration"]);
    refused(&mut to("later"), 1, &["has 4 MiB, and the origin 24 MiB"]);
    refused(&mut to("first"), 1, &["holds"]);
    refused(&mut to("none/image"), 1, &["cannot be made"]);
    let discard = ["--discard", "--to", &image];
    refused(&mut recover(&discard), 1, &["copy origin as it is"]);
    std::fs::rename(place.path("log0"), place.path("away")).unwrap();
    let nothing = "nothing can be written back: no record of dirty data of volume vol";
    refused(&mut to("image"), 1, &[nothing]);
    std::fs::rename(place.path("away"), place.path("log0")).unwrap();
    assert!(!place.path("image").exists());
}

#[test]
fn former_names_of_options_are_refused_with_the_new_name() {
    let (recover, format) = (["pool", "recover", "vol"], ["pool", "format", "/none"]);
    for (command, option, expected) in [
        (recover, "--keep", "--keep is --write-back now"),
        (recover, "--rewind", "--rewind is --discard now"),
        (format, "--rewind", "--rewind is --discard now"),
    ] {
        let mut refusal = hotset();
        refusal.args(command).arg(option);
        if command == recover {
            refusal.args(["--config", "/none"]);
        }
        refused(&mut refusal, 2, &[expected]);
    }
}

/// The log of a volume that the daemon does not serve, since nothing shows that its one device is
/// current: written elsewhere, and then written back, by a command.
#[test]
fn dirty_data_is_written_back_by_a_command_or_written_elsewhere() {
    let (place, server) = write_back();
    let bytes = leave_dirty(&place, &server);
    server.signal(libc::SIGCONT);
    for lost in ["log1", "state/vol.log"] {
        std::fs::remove_file(place.path(lost)).unwrap();
    }
    let recover = |more: &[&str]| {
        let mut command = hotset();
        command.args(["pool", "recover", "--config"]);
        command.arg(place.path("hotset.toml")).arg("vol").args(more);
        command
    };
    let doubt = "log1 may have what its origin does not have";
    let daemon = place.serve();
    let why = daemon.status()["waiting"][0]["why"].clone();
    let why = why.as_str().unwrap();
    let named = [
        doubt,
        "`hotset pool recover vol`",
        "`--write-back`",
        "`--discard`",
    ];
    assert!(named.iter().all(|text| why.contains(text)), "{why}");
    refused(&mut recover(&["--write-back"]), 1, &["a daemon runs"]);
    daemon.stop();

    let files = ["origin", "log0", "pool", "state/vol.log"];
    let all = || files.map(|name| std::fs::read(place.path(name)).unwrap());
    let before = all();
    let said = run(&mut recover(&["--check"]));
    let expected = [
        doubt,
        "volume vol: not served, 4 MiB of dirty data for origin",
        "`--write-back` writes it back",
    ];
    assert!(expected.iter().all(|text| said.contains(text)), "{said}");
    assert_eq!(said, run(&mut recover(&[])));
    refused(
        &mut recover(&["--write-back", "--discard"]),
        2,
        &["--discard"],
    );
    refuse_targets(&place, &recover);
    let image = place.text("image");
    let said = run(&mut recover(&["--write-back", "--to", &image]));
    assert!(
        said.contains("the 4 MiB of dirty data of volume vol"),
        "{said}"
    );
    let written = std::fs::read(place.path("image")).unwrap();
    assert!(written == bytes, "the image lacks something");
    assert!(all() == before, "something else was changed");

    let said = run(&mut recover(&["--write-back"]));
    assert!(
        said.contains("4 MiB of dirty data written back to origin"),
        "{said}"
    );
    let origin = || std::fs::read(place.path("origin")).unwrap();
    assert!(origin() == bytes, "the origin lacks something");
    place.file("log1", 24);
    let daemon = place.serve();
    assert_eq!(log_of(&daemon)["copies"], 2, "{}", daemon.status());
    let held = copy_out(&daemon.uri("vol"), &place.path("out"));
    assert!(held == bytes, "acknowledged bytes are lost");
    daemon.stop();
}
