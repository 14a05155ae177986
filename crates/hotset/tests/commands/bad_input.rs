//! Bad input: one clear error each, a status that is not 0, and nothing changed.

use crate::common::{Place, Process, USUAL, all, hotset, noise, refused, run, tool, until};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// Changes the usual configuration. `check` and `serve` must refuse the changed one with a line
/// that holds each of `expected`, and leave every file as before.
fn wrong(from: &str, to: &str, expected: &[&str]) {
    let place = Place::new();
    let bytes = noise(1, 1 << 20);
    for name in ["origin", "pool"] {
        fs::write(place.path(name), &bytes).unwrap();
    }
    let text = USUAL.replacen(from, to, 1);
    assert_ne!(text, USUAL);
    let config = place.config(&text);
    refused(hotset().arg("check").arg(&config), 2, expected);
    refused(
        hotset().args(["serve", "--config"]).arg(&config),
        2,
        expected,
    );
    for name in ["origin", "pool"] {
        assert!(
            fs::read(place.path(name)).unwrap() == bytes,
            "{name} changed"
        );
    }
    assert!(!place.path("nbd").exists() && !place.path("control").exists());
}

/// A fault that keeps no volume from being served is a warning.
fn warned(check: &mut std::process::Command, expected: &[&str]) {
    let said = run(check);
    let line = said.lines().find(|line| line.ends_with("(a warning)"));
    let line = line.unwrap_or_else(|| panic!("no warning: {said}"));
    for expected in expected {
        assert!(line.contains(expected), "{line}");
    }
}

/// The configuration file has no part in such mistakes.
#[test]
fn mistakes_in_a_command_are_the_commands() {
    let place = Place::usual();
    let daemon = place.serve();
    let text = fs::read(place.path("hotset.toml")).unwrap();
    for (typed, status, expected) in [
        ("volume set-mode vol write-thru", 2, "write-through"),
        (
            "volume remove none",
            1,
            "was not changed: no volume is named none",
        ),
        (
            "pool add-device fast pool --name other",
            2,
            "leave --name and --controller out",
        ),
    ] {
        let mut command = place.command(typed);
        let output = all(&command.output().unwrap());
        assert!(!output.contains("--temporary"), "{output}");
        refused(&mut command, status, &[expected]);
    }
    assert!(fs::read(place.path("hotset.toml")).unwrap() == text);
    daemon.stop();
}

#[test]
fn a_wrong_configuration() {
    wrong(
        "path = \"$/origin\"",
        "pth = \"$/origin\"",
        &["hotset.toml:8: ", "`pth`", "remove it"],
    );
    wrong("name = \"fast\"", "name = fast", &["hotset.toml:14: "]);
    wrong(
        "pool = \"fast\"",
        "pool = \"fast\"\nmode = \"write-sideways\"",
        &[":21: ", "write-through"],
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let place = Place::new();
    let config = place.config(
        "[[device]]\nname = 'a'\npath = '$/missing'\n[[pool]]\nname = 'p'\ndevices = ['b']\n\
         [[volume]]\nname = 'v'\norigin = 'c'\npool = 'q'\n[daemon]\ncontrol = '$/no/where'\n",
    );
    let output = hotset().arg("check").arg(&config).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 5, "{error}");
    for (line, number) in lines.iter().zip(["1", "6", "9", "10", "12"]) {
        let at = format!("{}:{number}: ", config.display());
        assert!(line.starts_with(&at) && line.contains("; "), "{at} {line}");
    }
}

#[test]
fn a_failure_of_the_operating_system_has_no_number() {
    for typed in [
        "pool inspect /nonexistent",
        "init --disk /nonexistent --ssd /nonexistent",
    ] {
        let output = hotset().args(typed.split(' ')).output().unwrap();
        let said = all(&output);
        assert!(
            !output.status.success() && said.contains("No such file or directory"),
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
    }
}

#[test]
fn a_configuration_that_is_not_there() {
    refused(
        hotset().args(["check", "/nonexistent"]),
        2,
        &["/nonexistent cannot be read"],
    );
}

#[test]
fn a_wrong_command_line() {
    let output = hotset().args(["serve", "--konfig", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", all(&output));
}

#[test]
fn an_origin_smaller_than_its_volume() {
    let place = Place::new();
    place.file("origin", 1);
    place.file("pool", 64);
    let sized = "origin = \"origin\"\nsize = \"2MiB\"";
    let config = place.config(&USUAL.replacen("origin = \"origin\"", sized, 1));
    let expected = ["larger than its origin", "make the origin larger"];
    warned(
        hotset().arg("check").arg(&config),
        &[&[":20: "][..], &expected].concat(),
    );
    // There may be other volumes, and the origin may be longer soon.
    let daemon = place.serve();
    let why = daemon.status()["waiting"][0]["why"].to_string();
    assert!(
        expected.iter().all(|expected| why.contains(expected)),
        "{why}"
    );
    place.file("origin", 2);
    until("the volume", || {
        daemon.status()["volumes"][0]["name"] == "vol"
    });
    assert!(daemon.stop().contains("volume vol is served"));
}

#[test]
fn two_volumes_on_one_origin() {
    wrong(
        "[[listen]]",
        "[[volume]]\nname = \"second\"\norigin = \"origin\"\npool = \"fast\"\n[[listen]]",
        &[
            ":23: ",
            "volume second uses device origin, which volume vol uses",
        ],
    );
}

#[test]
fn a_pool_device_that_is_also_an_origin() {
    wrong(
        "devices = [\"pool\"]",
        "devices = [\"pool\", \"origin\"]",
        &[":15: ", "origin"],
    );
    wrong(
        "path = \"$/pool\"",
        "path = \"$/origin\"",
        &[":11: ", "the same place"],
    );
}

#[test]
fn a_plain_text_listener_for_the_world() {
    wrong(
        "unix = \"$/nbd\"",
        "tcp = \"0.0.0.0:0\"",
        &[":22: ", "allow_plaintext"],
    );
}

#[test]
fn an_unknown_export() {
    let place = Place::usual();
    let daemon = place.serve();
    let info = tool("nbdinfo", "libnbd-bin")
        .arg(daemon.uri("nosuch"))
        .output()
        .unwrap();
    assert!(!info.status.success(), "{}", all(&info));
    run(tool("nbdinfo", "libnbd-bin").arg(daemon.uri("vol")));
    daemon.stop();
}

#[test]
fn a_socket_path_in_use() {
    let place = Place::usual();
    let config = place.path("hotset.toml");
    let held = UnixListener::bind(place.path("nbd")).unwrap();
    refused(
        hotset().args(["serve", "--config"]).arg(&config),
        2,
        &[":22: ", "in use"],
    );
    drop(held);
    fs::remove_file(place.path("nbd")).unwrap();
    fs::write(place.path("nbd"), "precious").unwrap();
    refused(
        hotset().args(["serve", "--config"]).arg(&config),
        2,
        &[":22: ", "is no socket"],
    );
    assert_eq!(fs::read(place.path("nbd")).unwrap(), b"precious");
}

#[test]
fn what_is_in_use_is_named_with_its_user() {
    let place = Place::usual();
    let me = format!("(process {})", std::process::id());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcp = \"{}\"", port.local_addr().unwrap());
    place.config(&USUAL.replace("unix = \"$/nbd\"", &tcp));
    let serve = || {
        let mut serve = hotset();
        serve
            .args(["serve", "--config"])
            .arg(place.path("hotset.toml"));
        serve
    };
    let check = || {
        let mut check = hotset();
        check.arg("check").arg(place.path("hotset.toml"));
        check
    };
    refused(&mut check(), 2, &["cannot be listened on, for", &me]);
    let waits = "Waiting for its end.";
    refused(&mut serve(), 1, &["is in use by", &me, waits]);
    place.config(USUAL);
    let held = UnixListener::bind(place.path("nbd")).unwrap();
    refused(&mut serve(), 2, &["the socket", "is in use by", &me]);
    drop(held);
    fs::remove_file(place.path("nbd")).unwrap();
    let device = fs::File::open(place.path("pool")).unwrap();
    device.lock().unwrap();
    warned(&mut check(), &["pool is in use by", &me]);
    let said = place.serve().stop();
    let expected = ["starts without pool", "is in use by", me.as_str()];
    assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    drop(device);
    let remembered = fs::File::open(place.path("state/fast.pool")).unwrap();
    remembered.lock().unwrap();
    refused(&mut serve(), 1, &["state/fast.pool", "is in use by", &me]);
}

#[test]
fn a_socket_left_by_a_dead_process_is_replaced() {
    let place = Place::usual();
    drop(UnixListener::bind(place.path("nbd")).unwrap());
    place.serve().stop();
}

#[test]
fn a_device_without_permission() {
    let place = Place::usual();
    let config = place.path("hotset.toml");
    for (path, mode) in [
        (place.dir.path().to_owned(), 0o777),
        (place.path("origin"), 0),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = hotset();
    command.arg("check").arg(&config);
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } == 0 {
        // Permissions do not bind root: run as the user that owns nothing.
        command.uid(65534).gid(65534);
    }
    warned(
        &mut command,
        &[
            ":8: ",
            "cannot be opened",
            "let this user read and write it",
        ],
    );
}

#[test]
fn a_pool_device_in_use_keeps_no_volume_from_being_served() {
    let place = Place::usual();
    let device = fs::File::open(place.path("pool")).unwrap();
    device.lock().unwrap();
    let before = fs::read(place.path("pool")).unwrap();
    let daemon = place.serve();
    run(tool("nbdinfo", "libnbd-bin").arg(daemon.uri("vol")));
    let trouble = daemon.status()["troubles"][0].clone();
    assert_eq!(trouble["kind"], "pool-device-absent");
    assert!(fs::read(place.path("pool")).unwrap() == before);
    drop(device);
    run(&mut place.command("pool readmit fast pool"));
    assert_eq!(daemon.status()["troubles"], serde_json::json!([]));
    daemon.stop();
}

#[test]
fn a_second_daemon_on_the_same_pool_or_origin() {
    let place = Place::usual();
    let first = place.serve();
    let expected = ["is in use by hotset (process", "stop that first"];
    let second = Place::usual();
    second.config(&USUAL.replace("$/pool", &place.text("pool")));
    let said = second.serve().stop();
    assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    // The volume waits for its origin; nothing of the origin is read or written.
    second.config(&USUAL.replace("$/origin", &place.text("origin")));
    let waits = second.serve();
    let status = waits.status();
    let why = status["waiting"][0]["why"].to_string();
    assert!(
        expected.iter().all(|expected| why.contains(expected)),
        "{why}"
    );
    assert_eq!(status["volumes"], serde_json::json!([]));
    waits.stop();
    // Its own sockets are in the way of a second daemon of one configuration.
    let again = place.path("hotset.toml");
    refused(
        hotset().args(["serve", "--config"]).arg(again),
        2,
        &[":2: ", "in use"],
    );
    run(tool("nbdinfo", "libnbd-bin").arg(first.uri("vol")));
    first.stop();
}

/// NBD knows no locks; the daemons of one machine keep off each other's exports.
#[test]
fn a_second_daemon_on_the_nbd_export_of_an_origin() {
    keeps_off_an_nbd_export("path = \"$/origin\"");
}

#[test]
fn a_second_daemon_on_the_nbd_export_of_a_pool() {
    keeps_off_an_nbd_export("path = \"$/pool\"");
}

/// A daemon has an export in this role; others are refused it. Each waits ten seconds for the first
/// daemon, so that all ask at a time.
fn keeps_off_an_nbd_export(role: &str) {
    let place = Place::usual();
    let mut server = tool("nbdkit", "nbdkit");
    server
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(place.path("san"))
        .args(["memory", "64M"]);
    let _server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("san").exists());
    let nbd = "nbd = \"nbd+unix:///?socket=$/san\"";
    let taken = &["san", "in use by another hotset"];
    place.config(&USUAL.replace(role, nbd));
    let first = place.serve();
    let uri = format!("nbd+unix:///?socket={}", place.text("san"));
    let san = format!("nbd = \"{uri}\"");
    std::thread::scope(|all| {
        all.spawn(|| {
            let second = Place::usual();
            second.config(&USUAL.replace("path = \"$/pool\"", &san));
            let said = second.serve().stop();
            assert!(taken.iter().all(|part| said.contains(part)), "{said}");
        });
        all.spawn(|| {
            let third = Place::usual();
            third.config(&USUAL.replace("path = \"$/origin\"", &san));
            let waits = third.serve();
            let why = waits.status()["waiting"][0]["why"].to_string();
            assert!(taken.iter().all(|expected| why.contains(expected)), "{why}");
            waits.stop();
        });
        let add = format!("volume add again --origin {uri} --pool fast");
        let has_a_role = &["san", "is the same place as device"];
        refused(&mut place.command(&add), 1, has_a_role);
        let add = format!("{add} --temporary");
        refused(&mut place.command(&add), 1, has_a_role);
    });
    first.stop();
}

/// Sends `bytes` and returns the answer until its end.
fn send(socket: &std::path::Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // The daemon may have had enough before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn garbage_on_either_socket() {
    let place = Place::usual();
    let before = noise(7, 128 << 20);
    fs::write(place.path("origin"), &before).unwrap();
    let daemon = place.serve();
    let control = place.path("control");
    let cases = [
        (b"hello\n".to_vec(), "that is no request"),
        (
            b"{\"request\":\"explode\"}\n".to_vec(),
            "that is no request",
        ),
        (vec![b'['; 60_000], ""),
        (vec![b'x'; 1 << 20], "at most 65536 bytes"),
        (
            [noise(1, 30_000), b"\n".to_vec()].concat(),
            "that is no request",
        ),
        (b"\n".to_vec(), "that is no request"),
        (Vec::new(), ""),
    ];
    for (garbage, expected) in cases {
        let answer = String::from_utf8(send(&control, &garbage)).unwrap();
        assert!(
            answer.contains(expected) && answer.lines().count() <= 1,
            "{answer}"
        );
        assert_eq!(answer.is_empty(), expected.is_empty(), "{answer}");
    }
    let nbd = place.path("nbd");
    for seed in 0..20 {
        send(&nbd, &noise(seed, 1000 * seed as usize));
    }
    // Greeted properly, and then nonsense.
    for seed in 0..20 {
        send(
            &nbd,
            &[&[0, 0, 0, 1][..], b"IHAVEOPT", &noise(seed, 5000)[..]].concat(),
        );
    }
    let after = crate::common::copy_out(&daemon.uri("vol"), &place.path("copy"));
    assert!(after == before, "garbage changed bytes");
    daemon.stop();
    assert!(
        fs::read(place.path("origin")).unwrap() == before,
        "the origin changed"
    );
}

#[test]
fn many_control_connections_are_bounded() {
    let place = Place::usual();
    let daemon = place.serve();
    let held: Vec<UnixStream> = (0..16)
        .map(|_| UnixStream::connect(place.path("control")).unwrap())
        .collect();
    let answer = String::from_utf8(send(&place.path("control"), b"")).unwrap();
    assert!(
        answer.contains("16 control connections are open"),
        "{answer}"
    );
    refused(
        &mut place.command("status"),
        1,
        &["16 control connections are open"],
    );
    drop(held);
    crate::common::until("the connections' end", || {
        place.command("status").output().unwrap().status.success()
    });
    daemon.stop();
}

#[test]
fn commands_without_a_daemon() {
    let place = Place::new();
    refused(
        &mut place.command("status"),
        1,
        &["no daemon answers", "start `hotset serve`"],
    );
}
