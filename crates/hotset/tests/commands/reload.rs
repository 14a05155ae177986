//! A changed configuration, and its reload by the daemon.

use crate::common::{Place, Process, USUAL, all, copy_in, copy_out, hotset, noise};
use crate::common::{refused, run, tool, until};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

/// The exit status of `hotset check --against-running`, and its output.
fn against(place: &Place) -> (Option<i32>, String) {
    let mut command = place.command("check --against-running");
    let output = command.arg(place.path("hotset.toml")).output().unwrap();
    (output.status.code(), all(&output))
}

#[test]
fn what_a_file_would_change_is_said_before() {
    let place = Place::usual();
    let (status, said) = against(&place);
    assert!(status == Some(1) && said.contains("no daemon"), "{said}");
    let daemon = place.serve();
    let (status, said) = against(&place);
    assert!(
        status == Some(0) && said.contains("the daemon runs this"),
        "{said}"
    );

    // A lasting change is no difference, a temporary one is.
    run(&mut place.command("volume set-mode vol write-around"));
    assert_eq!(against(&place).0, Some(0));
    run(&mut place.command("volume set-mode --temporary vol pass-through"));
    let (status, said) = against(&place);
    let file = place.text("hotset.toml");
    let mode = "volume vol: `mode` was \"pass-through\", becomes \"write-around\"";
    assert!(
        status == Some(3) && said.contains(&format!("{file}:21: {mode}\n")),
        "{said}"
    );

    place.config(&USUAL.replace("64MiB", "128MiB"));
    let (status, listed) = changes(&place);
    assert_eq!(status, Some(4));
    assert_eq!(listed[0]["place"], format!("{file}:4"), "{listed}");
    assert!(listed[0]["needs_restart"].is_string() && listed[1]["needs_restart"].is_null());
    let (status, said) = against(&place);
    assert!(
        status == Some(4)
            && said.contains(&format!("{file}:4: daemon: `buffers` was"))
            && said.contains("2 changes, of which 1 cannot be made while the daemon runs"),
        "{said}"
    );
    place.config(&USUAL.replace("\"origin\"\npool", "\"none\"\npool"));
    refused(
        place
            .command("check --against-running")
            .arg(place.path("hotset.toml")),
        2,
        &["19: volume vol names a device none"],
    );
    // None of these has touched the daemon.
    assert_eq!(daemon.status()["volumes"][0]["mode"], "pass-through");
    fs::remove_file(place.path("hotset.toml")).unwrap();
    daemon.stop();
}

/// The exit status of `hotset check --against-running --json`, and its changes.
fn changes(place: &Place) -> (Option<i32>, Value) {
    let mut command = place.command("check --against-running --json");
    let output = command.arg(place.path("hotset.toml")).output().unwrap();
    let judged: Value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), judged["changes"].clone())
}

/// Devices, a volume and a socket to add to [`USUAL`].
const MORE: &str = r#"[[device]]
name = "second"
path = "$/second"
[[device]]
name = "other"
path = "$/other"
[[volume]]
name = "b"
origin = "other"
pool = "fast"
[[listen]]
unix = "$/more"
"#;

/// A client of the volume `b` at the socket `more`.
fn client(place: &Place) -> Process {
    let mut client = Command::new("fio");
    client.current_dir(place.dir.path()).args([
        "--name=client",
        "--ioengine=nbd",
        "--thread",
        "--rw=randread",
        "--time_based",
        "--runtime=300",
        "--size=4m",
    ]);
    client.arg(format!("--uri=nbd+unix:///b?socket={}", place.text("more")));
    Process(client.stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_changed_file_is_run_step_by_step_and_clients_go_on() {
    let place = Place::usual();
    for name in ["second", "other"] {
        place.file(name, 64);
    }
    let daemon = place.serve();
    let image = place.path("image");
    fs::write(&image, noise(1, 8 << 20)).unwrap();
    copy_in(&image, &place.uri("vol"));
    let changed = USUAL.replace("[\"pool\"]", "[\"second\"]").replace(
        "pool = \"fast\"\n[[listen]]",
        "pool = \"fast\"\nmode = \"write-around\"\n[[listen]]",
    ) + MORE;
    place.config(&changed);
    assert_eq!(against(&place).0, Some(3));
    let said = run(&mut place.command("reload"));
    let file = place.text("hotset.toml");
    for expected in [
        format!("{file}:15: pool fast loses pool\n"),
        format!("{file}:15: pool fast gets second\n"),
        format!("{file}:21: volume vol: `mode` was \"write-through\", becomes \"write-around\"\n"),
        format!("{file}:30: volume b is added\n"),
        format!("listener {} is opened\n", place.text("more")),
        "7 changes made\n".to_owned(),
    ] {
        assert!(said.contains(&expected), "{expected} is not in {said}");
    }
    assert_eq!(against(&place).0, Some(0));
    let status = daemon.status();
    assert_eq!(status["pools"][0]["devices"][0]["name"], "second");
    assert_eq!(status["nbd"]["listeners"].as_array().unwrap().len(), 2);
    // A change that lasts goes into the new file, and both volumes are at both sockets.
    run(&mut place.command("volume set-mode b pass-through"));
    assert_eq!(against(&place).0, Some(0));
    for volume in ["vol", "b"] {
        let uri = format!("nbd+unix:///{volume}?socket={}", place.text("more"));
        run(tool("nbdinfo", "libnbd-bin").arg(uri));
    }
    assert_eq!(
        copy_out(&place.uri("vol"), &place.path("copy"))[..8 << 20],
        noise(1, 8 << 20)
    );

    // A client that came by a socket stays when that is closed.
    let client = client(&place);
    let requests = || daemon.status()["nbd"]["requests"].as_u64().unwrap();
    let begun = requests();
    until("a client", || requests() > begun + 100);
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    let (kept, _) = text.rsplit_once("[[listen]]").unwrap();
    fs::write(
        place.path("hotset.toml"),
        kept.replace("\"write-around\"", "\"write-through\""),
    )
    .unwrap();
    daemon.process.signal(libc::SIGHUP);
    until("a reload", || {
        daemon.status()["volumes"][1]["mode"] == "write-through"
    });
    until("a closed socket", || !place.path("more").exists());
    let closed = requests();
    until("the client to go on", || requests() > closed + 100);
    assert_eq!(daemon.status()["nbd"]["errors"], 0);
    drop(client);
    let log = daemon.stop();
    assert!(
        log.contains("reloaded: ") && log.contains("listener"),
        "{log}"
    );
}

#[test]
fn what_cannot_be_run_is_refused_before_the_first_step() {
    let place = Place::usual();
    place.file("small", 1);
    let daemon = place.serve();
    let file = place.text("hotset.toml");
    let changed = USUAL.replace("[daemon]", "[daemon]\nrequests = 7");
    place.config(&changed.replace(
        "pool = \"fast\"\n[[listen]]",
        "pool = \"fast\"\nmode = \"pass-through\"\n[[listen]]",
    ));
    refused(
        &mut place.command("reload"),
        1,
        &[
            &format!("{file}:2: daemon: `requests` was 128, becomes 7"),
            "needs a restart",
            "nothing was changed",
        ],
    );
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    place.config("[daemon");
    refused(&mut place.command("reload"), 1, &[&format!("{file}:1: ")]);

    // A failed step ends the plan; the steps before it are named, and are in force.
    let more = "[[device]]\nname = \"none\"\npath = \"$/none\"\n[[volume]]\nname = \"c\"\norigin = \"none\"\npool = \"fast\"\n";
    place.config(&format!(
        "{}{more}",
        USUAL.replace(
            "pool = \"fast\"\n[[listen]]",
            "pool = \"fast\"\nmode = \"pass-through\"\n[[listen]]"
        )
    ));
    refused(
        &mut place.command("reload"),
        1,
        &[
            "volume c is added",
            "does not exist",
            "changed before it",
            "`mode`",
        ],
    );
    let status = daemon.status();
    assert_eq!(status["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(status["volumes"][0]["mode"], "pass-through");
    // The rest of the plan is still to do.
    let (code, said) = against(&place);
    assert!(
        code == Some(3) && said.contains("volume c is added") && !said.contains("mode"),
        "{said}"
    );
    place.file("none", 32);
    let made: Value = serde_json::from_str(&run(&mut place.command("reload --json"))).unwrap();
    assert_eq!(made["changes"].as_array().unwrap().len(), 1, "{made}");
    assert_eq!(daemon.status()["volumes"].as_array().unwrap().len(), 2);
    daemon.stop();
}

#[test]
fn of_two_operators_the_second_is_shown_what_the_first_has_changed() {
    let place = Place::usual();
    let daemon = place.serve();
    // One operator has the file open in an editor and writes it; the other does not know of that.
    place.config(&USUAL.replace("hit_latency_max = \"10s\"", "hit_latency_max = \"20s\""));
    let before = fs::read_to_string(place.path("hotset.toml")).unwrap();
    refused(
        &mut place.command("volume set-mode vol pass-through"),
        1,
        &[
            "is not as the daemon has read it",
            "line 16 was `hit_latency_max = \"10s\"` and is `hit_latency_max = \"20s\"`",
            "nothing was changed; run `hotset reload` first, or use --temporary",
        ],
    );
    assert_eq!(
        fs::read_to_string(place.path("hotset.toml")).unwrap(),
        before
    );
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-through");
    place.config(USUAL);
    // Two at a time: the second begins from the text of the first.
    std::thread::scope(|scope| {
        for mode in ["write-around", "pass-through"] {
            let place = &place;
            scope.spawn(move || run(&mut place.command(&format!("volume set-mode vol {mode}"))));
        }
    });
    assert_eq!(against(&place).0, Some(0));
    daemon.stop();
}

#[test]
fn files_dropped_in_beside_are_read_changed_and_taken_away_again() {
    let place = Place::usual();
    place.file("other", 64);
    place.file("second", 32);
    let daemon = place.serve();
    let beside = place.path("conf.d");
    fs::create_dir(&beside).unwrap();
    let file = beside.join("b.toml");
    let text = "# Of a program.\n[[device]]\nname = \"other\"\npath = \"$/other\"\n[[volume]]\nname = \"b\"\norigin = \"other\"\npool = \"fast\"\n";
    let text = text.replace('$', &place.dir.path().display().to_string());
    fs::write(&file, text.replace("\"fast\"", "\"slow\"")).unwrap();
    let wrong = format!("{}:8: volume b names a pool slow", file.display());
    refused(
        hotset().arg("check").arg(place.path("hotset.toml")),
        2,
        &[&wrong],
    );
    refused(&mut place.command("reload"), 1, &[&wrong]);
    fs::write(&file, &text).unwrap();
    refused(
        &mut place.command("volume set-mode vol pass-through"),
        1,
        &["has a new file beside it", "b.toml", "hotset reload"],
    );
    let said = run(&mut place.command("reload"));
    let expected = format!("{}:5: volume b is added\n", file.display());
    assert!(said.contains(&expected), "{said}");

    // The file that has the section changes.
    let main = fs::read_to_string(place.path("hotset.toml")).unwrap();
    run(&mut place.command("volume set-mode b write-around"));
    let now = fs::read_to_string(&file).unwrap();
    assert_eq!(now, format!("{text}mode = \"write-around\"\n"));
    assert_eq!(fs::read_to_string(place.path("hotset.toml")).unwrap(), main);
    run(&mut place.command(&format!("pool add-device fast {}", place.text("second"))));
    assert_eq!(fs::read_to_string(&file).unwrap(), now);
    assert_eq!(against(&place).0, Some(0));
    daemon.stop();

    // The change is kept over a restart too, and goes with its file.
    let daemon = place.serve();
    assert_eq!(daemon.status()["volumes"][0]["mode"], "write-around");
    fs::remove_file(&file).unwrap();
    assert!(run(&mut place.command("reload")).contains("volume b is removed\n"));
    assert_eq!(daemon.status()["volumes"].as_array().unwrap().len(), 1);
    assert_eq!(
        daemon.status()["pools"][0]["devices"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    daemon.stop();
}
