//! Changes of a running daemon that its configuration file keeps.

use crate::common::site::Site;
use crate::common::{Daemon, Place, USUAL, refused, run, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// The line that a command prints, which has all of `parts`.
fn made(place: &Place, command: &str, parts: &[&str]) -> String {
    let said = run(&mut place.command(command));
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    said
}

/// The end of a command's output, for the line of `file` that begins with `text`.
fn kept_by(file: &str, text: &str) -> String {
    let said = fs::read_to_string(file).unwrap();
    let at = said.lines().position(|line| line.starts_with(text));
    format!("; kept by {file}, line {}", at.unwrap() + 1)
}

#[test]
fn what_is_changed_is_so_after_a_restart_too() {
    let place = Place::usual();
    place.config(&USUAL.replace("[[volume]]", "# The one that matters.\n[[volume]]"));
    place.file("second", 32);
    place.file("other", 32);
    let daemon = place.serve();
    let file = place.text("hotset.toml");
    let made = |command: &str, parts: &[&str]| made(&place, command, parts);
    let line = |text: &str| kept_by(&file, text);
    let reached = format!(
        "; clients reach it at nbd+unix:///vol?socket={}",
        place.text("nbd")
    );
    let said = made(
        "volume set-mode vol write-around",
        &["volume vol is write-around", &reached],
    );
    assert!(said.ends_with(&(line("mode = ") + "\n")), "{said}");
    let again = made("volume set-mode vol write-around", &[]);
    assert!(again.contains("says so already"), "{again}");
    let added = format!("pool add-device fast {}", place.text("second"));
    made(&added, &["device second is in pool fast; kept by"]);
    let said = made(
        "pool remove-device fast pool",
        &["device pool has left pool fast"],
    );
    assert!(said.ends_with(&(line("devices = ") + "\n")), "{said}");
    let site = Site::start(&place);
    let origin = json!({"name": "other", "path": place.text("other")});
    let volume = json!({"name": "b", "origin": origin, "pool": "fast"});
    site.operate("POST", "/api/v1/volumes", &volume.to_string());
    made("volume quiesce b", &["volume b is quiesced"]);
    daemon.stop();
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert!(
        text.contains("# The one that matters.\n[[volume]]"),
        "{text}"
    );

    let daemon = place.serve();
    let status = daemon.status();
    let volumes = status["volumes"].as_array().unwrap();
    let reported: Vec<_> = volumes
        .iter()
        .map(|v| (v["name"].as_str(), v["mode"].as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (Some("b"), Some("write-through")),
            (Some("vol"), Some("write-around"))
        ]
    );
    let devices = status["pools"][0]["devices"].as_array().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0]["name"], "second");
    let gone = format!("volume b is removed; its data are on its origin; {file} does not have it");
    made("volume remove b", &[&gone]);
    daemon.stop();
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    assert!(!text.contains("name = \"b\""), "{text}");
}

#[test]
fn temporary_changes_and_those_that_are_refused_leave_the_file_as_it_is() {
    let place = Place::usual();
    let daemon = place.serve();
    let file = place.path("hotset.toml");
    let before = fs::read_to_string(&file).unwrap();
    let said = run(&mut place.command("volume set-mode --temporary vol pass-through"));
    assert!(
        said.ends_with("; it holds until the daemon ends, and no file says it\n"),
        "{said}"
    );
    let site = Site::start(&place);
    let mode = r#"{"mode":"write-around"}"#;
    site.operate("PUT", "/api/v1/volumes/vol/mode?temporary", mode);
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-around");
    // The daemon refuses these, and the file these.
    refused(
        &mut place.command("pool add-device fast nosuch"),
        1,
        &["a device nosuch that does not exist"],
    );
    refused(
        &mut place.command("volume remove none"),
        1,
        &["no volume is named none"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    fs::write(&file, before.replace("name = \"vol\"", "name = \"new\"")).unwrap();
    refused(
        &mut place.command("volume set-mode vol pass-through"),
        1,
        &[
            "is not as the daemon has read it",
            "was `name = \"vol\"` and is `name = \"new\"`",
            "nothing was changed",
            "--temporary",
        ],
    );
    fs::remove_file(&file).unwrap();
    refused(
        &mut place.command("volume set-mode vol pass-through"),
        1,
        &["cannot be read", "nothing was changed"],
    );
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-around");
    let left: Vec<_> = fs::read_dir(place.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".new")),
        "{left:?}"
    );
    daemon.stop();
}

/// A configuration of which the volume `vol` alone is served.
const WAITING: &str = r#"
[[device]]
name = "origin1"
path = "$/origin1"
controller = "sas0"
[[device]]
name = "log0"
path = "$/log0"
controller = "pcie0"
[[device]]
name = "log1"
path = "$/log1"
controller = "pcie1"
[[device]]
name = "m0"
path = "$/m0"
[[device]]
name = "m1"
path = "$/m1"
[[array]]
name = "mirror"
level = "raid1"
members = ["m0", "m1"]
[[volume]]
name = "db"
origin = "origin1"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
[[volume]]
name = "on-mirror"
origin = "mirror"
pool = "fast"
"#;

#[test]
fn what_has_a_role_is_given_to_nobody_though_it_is_not_open() {
    let place = Place::usual();
    let more = USUAL.replace("devices = [\"pool\"]", "devices = [\"pool\", \"gone\"]");
    let gone = "[[device]]\nname = \"gone\"\npath = \"$/gone\"\n";
    place.config(&format!("{more}{gone}{WAITING}"));
    // Without the second device of its log `db` waits.
    for name in ["origin1", "log0", "m0", "m1", "free"] {
        place.file(name, 16);
    }
    let daemon = place.serve();
    place.file("gone", 16);
    let file = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let bytes = |name: &str| fs::read(place.path(name)).unwrap();
    let all = ["origin1", "gone", "log0", "m0", "m1"];
    let before = all.map(bytes);
    for (device, by) in [
        ("origin1", "volume db"),
        ("log0", "the log of volume db"),
        ("gone", "pool fast"),
        ("m1", "array mirror"),
        ("pool", "pool fast"),
    ] {
        let alias = format!("{device}-hard");
        fs::hard_link(place.path(device), place.path(&alias)).unwrap();
        let alias = place.text(&alias);
        let uses = format!("which {by} uses");
        for command in [
            format!("pool add-device fast {alias} --temporary"),
            format!("pool add-device fast {alias}"),
            format!("pool add other {alias} --temporary"),
            format!("volume add evil --origin {alias} --pool fast --temporary"),
        ] {
            refused(&mut place.command(&command), 1, &[&uses]);
        }
        let by_name = format!("volume add evil --origin {device} --pool fast --temporary");
        let uses = format!("uses device {device}, which ");
        refused(&mut place.command(&by_name), 1, &[&uses]);
    }
    assert_eq!(all.map(bytes), before);
    assert_eq!(fs::read_to_string(place.path("hotset.toml")).unwrap(), file);
    run(&mut place.command(&format!(
        "pool add-device fast {} --temporary",
        place.text("free")
    )));
    daemon.stop();
}

#[test]
fn a_mode_that_does_not_agree_with_the_configuration_is_refused_as_check_would() {
    let place = Place::usual();
    let log = "[[device]]\nname = \"log0\"\npath = \"$/log0\"\ncontroller = \"pcie1\"\n\
               [[device]]\nname = \"log1\"\npath = \"$/log1\"\ncontroller = \"pcie1\"\n[[volume]]\n";
    let text = USUAL.replace("[[volume]]\n", log);
    let pool = "pool = \"fast\"\n";
    let text = text.replace(pool, &format!("{pool}log = [\"log0\", \"log1\"]\n"));
    place.config(&text);
    for name in ["log0", "log1"] {
        place.file(name, 16);
    }
    let daemon = place.serve();
    let refusals = [
        ("", "needs two controllers"),
        (" --temporary", "is not temporary"),
    ];
    for (temporary, why) in refusals {
        let command = format!("volume set-mode vol write-back{temporary}");
        refused(&mut place.command(&command), 1, &[why]);
    }
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    daemon.stop();
}

/// The daemon's answer to a request.
fn ask(place: &Place, request: &Value) -> Value {
    let mut stream = UnixStream::connect(place.path("control")).unwrap();
    writeln!(stream, "{request}").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// True if the file, and the daemon's copy of it, have the volume's mode.
fn agrees(daemon: &Daemon) -> bool {
    let place = daemon.place;
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let running = ask(place, &json!({"request": "configuration"}));
    let known = &running["configuration"]["files"][0]["text"];
    let status = daemon.status();
    let mode = status["volumes"][0]["mode"].as_str().unwrap();
    *known == text && text.contains(&format!("mode = \"{mode}\""))
}

#[test]
fn a_change_whose_client_leaves_is_made_and_its_outcome_reported_later() {
    let place = Place::usual();
    let daemon = place.serve();
    let change = |mode: &str| {
        let mode = json!({"request": "set-mode", "volume": "vol", "mode": mode});
        json!({"request": "change", "change": mode, "temporary": false})
    };
    let mut stream = UnixStream::connect(place.path("control")).unwrap();
    writeln!(stream, "{}", change("pass-through")).unwrap();
    drop(stream);
    until("the change", || {
        daemon.status()["volumes"][0]["mode"] == "pass-through"
    });
    until("the file", || agrees(&daemon));

    for (mode, outcome) in [("write-around", ""), ("fast", "is no mode")] {
        let accepted = ask(&place, &change(mode));
        let name = accepted["accepted"].as_str().unwrap();
        let asked = json!({"request": "outcome", "change": name});
        until("the outcome", || !ask(&place, &asked)["ended"].is_null());
        let ended = ask(&place, &asked)["ended"].clone();
        let mut command = place.command(&format!("job outcome {name}"));
        match outcome {
            "" => {
                let made = ended["made"].as_str().unwrap();
                assert!(made.starts_with("volume vol is write-around; "), "{made}");
                assert_eq!(run(&mut command), format!("{made}\n"));
            }
            why => refused(&mut command, 1, &[why]),
        }
    }
    assert!(agrees(&daemon));
    refused(&mut place.command("job outcome 1-1"), 1, &["is not known"]);
    daemon.stop();
}

#[test]
fn changes_and_reloads_at_the_same_time_are_all_made() {
    let place = Place::usual();
    let daemon = place.serve();
    run(&mut place.command("volume set-mode vol pass-through"));
    std::thread::scope(|scope| {
        for mode in ["write-around", "pass-through", "write-through"] {
            let words = format!("volume set-mode vol {mode}");
            let place = &place;
            scope.spawn(move || (0..8).for_each(|_| drop(run(&mut place.command(&words)))));
        }
        for _ in 0..2 {
            scope.spawn(|| (0..12).for_each(|_| drop(run(&mut place.command("reload")))));
        }
        scope.spawn(|| {
            for _ in 0..8 {
                run(&mut place.command("volume quiesce vol"));
                run(&mut place.command("volume resume vol"));
                daemon.process.signal(libc::SIGHUP);
            }
        });
    });
    assert!(agrees(&daemon));
    daemon.stop();
}

#[test]
fn a_change_in_a_long_file_is_made() {
    let place = Place::usual();
    place.file("other", 32);
    let padding = "# A long remark.\n".repeat(20_000);
    place.config(&USUAL.replace("[[volume]]", &format!("{padding}[[volume]]")));
    let daemon = place.serve();
    let other = place.text("other");
    run(&mut place.command(&format!("volume add b --origin {other} --pool fast")));
    run(&mut place.command("volume set-mode vol pass-through"));
    daemon.stop();
}

#[test]
fn names_that_are_not_utf8_and_pipes_beside_the_file_are_refused_and_nothing_else() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::usual();
    let daemon = place.serve();
    let beside = place.path("conf.d");
    fs::create_dir(&beside).unwrap();
    let odd = beside.join(std::ffi::OsStr::from_bytes(b"b\xfccher.toml"));
    let pipe = beside.join("pipe.toml");
    fs::write(&odd, "").unwrap();
    refused(&mut place.command("reload"), 1, &["not UTF-8", "rename it"]);
    fs::remove_file(&odd).unwrap();
    run(std::process::Command::new("mkfifo").arg(&pipe));
    refused(&mut place.command("reload"), 1, &["no regular file"]);
    refused(
        &mut place.command("volume set-mode vol pass-through"),
        1,
        &["no regular file", "nothing was changed"],
    );
    fs::remove_file(&pipe).unwrap();
    run(&mut place.command("volume set-mode vol pass-through"));
    assert!(agrees(&daemon));
    daemon.stop();
}
