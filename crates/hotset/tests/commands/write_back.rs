//! Write-back while the daemon runs: begun, ended, and the daemon killed amid either.

use crate::common::browser::Browser;
use crate::common::client::{Client, Stamped};
use crate::common::site::Site;
use crate::common::{Daemon, Place, Process, noise, refused, run, until};
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A write-through volume, and devices that may become its log. The origin has blocks of 512 bytes.
const THROUGH: &str = r#"[daemon]
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
[[device]]
name = "log2"
path = "$/log2"
controller = "pcie2"
[[pool]]
name = "fast"
devices = ["pool"]
hit_latency_max = "10s"
[[volume]]
name = "vol"
origin = "origin"
pool = "fast"
max_lag = "10min" # a night's
[[listen]]
unix = "$/nbd"
"#;

const ON: &str = "volume set-mode vol write-back --log log0,log1";
const OFF: &str = "volume set-mode vol write-through";

/// The files, and the server of the origin, which can be stopped.
fn through() -> (Place, Process) {
    let place = Place::new();
    for name in ["origin", "pool", "log0", "log1", "log2"] {
        place.file(name, 24);
    }
    place.config(THROUGH);
    let server = place.stoppable_origin();
    (place, server)
}

fn volume(daemon: &Daemon<'_>) -> Value {
    daemon.status()["volumes"][0].clone()
}

fn file(place: &Place) -> String {
    fs::read_to_string(place.path("hotset.toml")).unwrap()
}

/// The mode in the file.
fn mode(place: &Place) -> &'static str {
    match file(place).contains("mode = \"write-back\"") {
        true => "write-back",
        false => "write-through",
    }
}

#[test]
fn a_volume_becomes_write_back_and_write_through_again_without_a_restart() {
    let (place, server) = through();
    let daemon = place.serve();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    let mut bytes = noise(1, 1 << 20);
    client.write(0, &bytes, false).unwrap();
    run(&mut place.command(ON));
    let now = volume(&daemon);
    assert_eq!(now["mode"], "write-back", "{now}");
    assert_eq!(now["write_back"]["copies"], 2, "{now}");
    let text = file(&place);
    assert!(text.contains("log = [\"log0\", \"log1\"]"), "{text}");
    assert!(text.contains("max_lag = \"10min\" # a night's"), "{text}");
    // The same once more changes nothing; other devices are refused.
    run(&mut place.command(ON));
    run(&mut place.command("volume set-mode vol write-back"));
    let pool = "volume set-mode vol write-back --log log0,pool";
    refused(&mut place.command(pool), 1, &["pool"]);
    // The log answers in place of the origin; a client sees its block unchanged.
    server.signal(libc::SIGSTOP);
    let later = noise(2, 512 * 3);
    client.write(512 * 5, &later, true).unwrap();
    bytes[512 * 5..512 * 8].copy_from_slice(&later);
    assert!(client.read(0, 1 << 20).unwrap() == bytes);
    assert!(volume(&daemon)["write_back"]["dirty_bytes"].as_u64() > Some(0));
    server.signal(libc::SIGCONT);
    run(&mut place.command(OFF));
    let now = volume(&daemon);
    assert!(
        now["write_back"].is_null() && now["mode"] == "write-through",
        "{now}"
    );
    assert!(fs::read(place.path("origin")).unwrap()[..1 << 20] == bytes);
    // The file keeps the devices of a log that is off, which nothing uses: others may.
    assert_eq!(mode(&place), "write-through");
    run(&mut place.command("volume set-mode vol write-back"));
    assert_eq!(volume(&daemon)["mode"], "write-back");
    client.write(0, &later, false).unwrap();
    bytes[..later.len()].copy_from_slice(&later);
    daemon.process.kill();
    let daemon = place.serve();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    assert!(client.read(0, 1 << 20).unwrap() == bytes);
    assert_eq!(volume(&daemon)["mode"], "write-back");
    daemon.stop();
}

#[test]
fn a_write_back_volume_that_was_off_has_its_log_again() {
    let (place, server) = through();
    let daemon = place.serve();
    run(&mut place.command(ON));
    let before = file(&place);
    let mut client = Client::connect(&place.path("nbd"), "vol");
    let bytes = noise(1, 1 << 20);
    client.write(0, &bytes, false).unwrap();
    run(&mut place.command("volume off vol"));
    let now = volume(&daemon);
    assert_eq!(
        (&now["mode"], &now["off"]),
        (&"pass-through".into(), &"write-back".into()),
        "{now}"
    );
    assert!(now["write_back"].is_null(), "{now}");
    assert!(fs::read(place.path("origin")).unwrap()[..1 << 20] == bytes);
    assert!(file(&place).contains("off = true") && mode(&place) == "write-back");
    let listed = run(&mut place.command("volume list"));
    assert!(listed.contains("off (write-back)"), "{listed}");
    // The mode of the file is the one in force.
    assert_eq!(run(&mut place.command("reload")).trim(), "0 changes made");
    run(&mut place.command("volume off vol"));
    // The volume is off at the next start too, without a look at its log.
    drop(client);
    daemon.stop();
    let daemon = place.serve();
    assert_eq!(volume(&daemon)["off"], "write-back");
    let forgotten = "volume on vol --temporary";
    refused(&mut place.command(forgotten), 1, &["not temporary"]);
    run(&mut place.command("volume on vol"));
    let now = volume(&daemon);
    assert!(now["off"].is_null() && now["mode"] == "write-back", "{now}");
    assert_eq!(now["write_back"]["copies"], 2, "{now}");
    assert_eq!(file(&place), before);
    // The log answers in place of the origin.
    let mut client = Client::connect(&place.path("nbd"), "vol");
    server.signal(libc::SIGSTOP);
    client.write(0, &noise(2, 4096), true).unwrap();
    server.signal(libc::SIGCONT);
    // Another mode turns the caching on as well; a volume that is off and on again has that mode.
    run(&mut place.command("volume off vol"));
    run(&mut place.command("volume set-mode vol write-around"));
    let now = volume(&daemon);
    assert!(
        now["off"].is_null() && now["mode"] == "write-around",
        "{now}"
    );
    run(&mut place.command("volume off vol --temporary"));
    assert_eq!(volume(&daemon)["off"], "write-around");
    assert!(!file(&place).contains("off"), "{}", file(&place));
    run(&mut place.command("reload"));
    let now = volume(&daemon);
    assert!(
        now["off"].is_null() && now["mode"] == "write-around",
        "{now}"
    );
    drop(client);
    daemon.stop();
}

/// Commands, the exit status of each, and a part of the message.
fn refusals(on: &str, third: &str, small: &str, used: &str) -> Vec<(String, i32, &'static str)> {
    vec![
        (on.to_owned(), 1, "its log has 0 devices"),
        (format!("{on} --log log0"), 1, "its log has 1 devices"),
        (format!("{on} --log log0,none"), 1, "none"),
        (
            format!("{on} --log log0,pool"),
            1,
            "pool fast uses device pool, which the log of volume vol uses",
        ),
        (
            format!("{on} --log log0,origin"),
            1,
            "which volume vol uses",
        ),
        (
            format!("{on} --log log0,{third}"),
            1,
            "without `controller`",
        ),
        (
            format!("{on} --log log0,{third} --controllers pcie0"),
            1,
            "needs two controllers",
        ),
        (
            format!("{on} --log log0,{small} --controllers pcie3"),
            1,
            "small is too small",
        ),
        (
            format!("{on} --log log0,{used} --controllers pcie2"),
            1,
            "hotset pool format --yes",
        ),
        (
            format!("{on} --log log0,log1 --controllers pcie2"),
            2,
            "--controllers",
        ),
        (
            format!("{on} --log log0,log1 --journal {third} --controllers pcie0"),
            1,
            "its journal needs a controller",
        ),
        (
            format!("{on} --log log0,log1 --temporary"),
            1,
            "is not temporary",
        ),
        (format!("{OFF} --log log0,log1"), 1, "without a log"),
    ]
}

#[test]
fn what_cannot_be_a_log_is_refused_and_nothing_is_changed() {
    let (place, _server) = through();
    place.file("small", 4);
    place.file("third", 24);
    fs::write(place.path("used"), noise(3, 24 << 20)).unwrap();
    let daemon = place.serve();
    let before = file(&place);
    let [third, small, used] = ["third", "small", "used"].map(|name| place.text(name));
    let on = "volume set-mode vol write-back";
    for (words, status, expected) in refusals(on, &third, &small, &used) {
        refused(&mut place.command(&words), status, &[expected]);
        assert_eq!(file(&place), before, "{words}");
        assert_eq!(volume(&daemon)["mode"], "write-through", "{words}");
    }
    run(&mut place.command("volume quiesce vol"));
    refused(&mut place.command(ON), 1, &["unchanged", "resume it first"]);
    run(&mut place.command("volume resume vol"));
    assert_eq!(file(&place), before);
    // The refused commands keep no device.
    let journaled = format!("{on} --log log0,log1 --journal {third} --controllers sas0");
    run(&mut place.command(&journaled));
    let now = volume(&daemon);
    assert_eq!(now["write_back"]["order"], "journaled", "{now}");
    daemon.stop();
    let daemon = place.serve();
    assert_eq!(volume(&daemon)["write_back"]["order"], "journaled");
    daemon.stop();
}

#[test]
fn an_origin_that_does_not_answer_leaves_the_volume_as_it_was() {
    let (place, server) = through();
    let daemon = place.serve();
    let before = file(&place);
    let mut client = Client::connect(&place.path("nbd"), "vol");
    server.signal(libc::SIGSTOP);
    let bytes = noise(4, 1 << 16);
    std::thread::scope(|scope| {
        let write = scope.spawn(|| client.write(0, &bytes, true));
        refused(&mut place.command(ON), 1, &["volume vol: unchanged"]);
        assert_eq!(file(&place), before);
        assert_eq!(volume(&daemon)["mode"], "write-through");
        server.signal(libc::SIGCONT);
        write.join().unwrap().unwrap();
    });
    assert!(fs::read(place.path("origin")).unwrap()[..1 << 16] == bytes);
    daemon.process.kill();
    let daemon = place.serve();
    run(&mut place.command(ON));
    assert_eq!(volume(&daemon)["mode"], "write-back");
    daemon.stop();
}

#[test]
fn a_device_of_a_log_is_replaced_and_the_log_is_whole_again() {
    let (place, server) = through();
    let daemon = place.serve();
    let replace = "volume replace-log vol log0 log2";
    refused(
        &mut place.command(replace),
        1,
        &["volume vol has no log with log0"],
    );
    run(&mut place.command(ON));
    fs::write(place.path("used"), noise(3, 24 << 20)).unwrap();
    let before = file(&place);
    let used = format!(
        "volume replace-log vol log0 {} --controller pcie3",
        place.text("used")
    );
    for (words, expected) in [
        ("volume replace-log vol none log2", "no log with none"),
        ("volume replace-log vol log0 log1", "log1"),
        (
            "volume replace-log vol log0 pool",
            "which the log of volume vol uses",
        ),
        (&used, "hotset pool format --yes"),
    ] {
        refused(&mut place.command(words), 1, &[expected]);
        assert_eq!(file(&place), before, "{words}");
        assert_eq!(volume(&daemon)["write_back"]["copies"], 2, "{words}");
    }
    let socket = place.path("nbd");
    let over = AtomicBool::new(false);
    let mut part = Stamped::new(1, 0, 4 << 20);
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| part.write_until(&socket, &over));
        run(&mut place.command(replace));
        over.store(true, Ordering::SeqCst);
        writes.join().unwrap();
    });
    assert!(
        file(&place).contains("log = [\"log2\", \"log1\"]"),
        "{}",
        file(&place)
    );
    assert_eq!(volume(&daemon)["write_back"]["copies"], 2);
    // The dirty data is on the new device, alone if need be.
    server.signal(libc::SIGSTOP);
    let mut client = Client::connect(&socket, "vol");
    let later = noise(5, 1 << 20);
    client.write(8 << 20, &later, true).unwrap();
    daemon.process.kill();
    server.signal(libc::SIGCONT);
    fs::remove_file(place.path("log1")).unwrap();
    let daemon = place.serve();
    let mut client = Client::connect(&socket, "vol");
    assert!(client.read(8 << 20, 1 << 20).unwrap() == later);
    part.check(&socket);
    assert_eq!(volume(&daemon)["write_back"]["copies"], 1);
    // A lost device is replaced too.
    run(&mut place.command("volume replace-log vol log1 log0"));
    assert_eq!(volume(&daemon)["write_back"]["copies"], 2);
    part.check(&socket);
    daemon.stop();
}

/// The device has left its place, has the other one since, and is restored from an image.
#[test]
fn an_older_image_of_the_other_copy_of_a_log_costs_no_service() {
    let (place, server) = through();
    let daemon = place.serve();
    run(&mut place.command(ON));
    let mut client = Client::connect(&place.path("nbd"), "vol");
    client.write(0, &noise(6, 1 << 16), true).unwrap();
    fs::copy(place.path("log0"), place.path("image")).unwrap();
    run(&mut place.command("volume replace-log vol log0 log2"));
    run(&mut place.command("volume replace-log vol log1 log0"));
    server.signal(libc::SIGSTOP);
    let later = noise(7, 1 << 20);
    client.write(1 << 20, &later, true).unwrap();
    daemon.process.kill();
    server.signal(libc::SIGCONT);
    fs::copy(place.path("image"), place.path("log0")).unwrap();
    let daemon = place.serve();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    assert!(client.read(1 << 20, 1 << 20).unwrap() == later);
    until("both copies", || {
        volume(&daemon)["write_back"]["copies"] == 2
    });
    daemon.stop();
}

#[test]
fn the_page_begins_write_back_and_ends_it() {
    let (place, _server) = through();
    let daemon = place.serve();
    let site = Site::start(&place);
    let mut browser = Browser::start();
    browser.sign_in(&site);
    browser.run("location.hash = '#/volume/vol'", &[]);
    browser.shows("h1", "Volume vol");
    let choose = |browser: &mut Browser, mode: &str| {
        browser.click(&format!("//label[.//strong[text()='{mode}']]/input"));
    };
    choose(&mut browser, "write-back");
    for (number, device) in [(1, "log0"), (2, "log1")] {
        let field = format!("(//input[@placeholder='name or /path'])[{number}]");
        browser.write(&field, device);
    }
    browser.pictures("mode");
    browser.button("Set the mode");
    browser.shows("section[aria-label='Dirty data']", "2 of 2");
    assert_eq!(volume(&daemon)["mode"], "write-back");
    browser.write("//fieldset[@id='replace-log']//input", "log2");
    browser.button("Replace");
    browser.shows("dialog[open]", "log0 is blanked");
    browser.pictures("replace-log");
    browser.confirm();
    until("the other device", || {
        file(&place).contains("log = [\"log2\", \"log1\"]")
    });
    browser.shows("#replace-log select", "log2");
    assert_eq!(volume(&daemon)["write_back"]["copies"], 2);
    // The volume goes on with its log after it was off.
    browser.button("Turn caching off");
    browser.shows("dialog[open]", "The log keeps its devices");
    browser.confirm();
    browser.shows("h1 .state", "off (write-back)");
    browser.button("Turn caching on");
    browser.shows("section[aria-label='Dirty data']", "2 of 2");
    browser.shows("h1 .state", "write-back");
    choose(&mut browser, "write-through");
    browser.button("Set the mode");
    browser.shows("h1 .state", "write-through");
    assert_eq!(mode(&place), "write-through");
    daemon.stop();
}

#[test]
fn a_reload_begins_and_ends_write_back_too() {
    let (place, _server) = through();
    let daemon = place.serve();
    let on = THROUGH.replace(
        "pool = \"fast\"\nmax",
        "pool = \"fast\"\nmode = \"write-back\"\nlog = [\"log0\", \"log1\"]\nmax",
    );
    place.config(&on);
    run(&mut place.command("reload"));
    assert_eq!(volume(&daemon)["mode"], "write-back");
    place.config(THROUGH);
    run(&mut place.command("reload"));
    assert_eq!(volume(&daemon)["mode"], "write-through");
    daemon.stop();
}

#[test]
fn a_write_back_volume_grows_with_its_origin_while_the_daemon_runs() {
    let place = Place::new();
    for name in ["origin", "pool", "log0", "log1"] {
        place.file(name, 24);
    }
    let [export, path] = [
        "nbd = \"nbd+unix:///?socket=$/slow\"",
        "path = \"$/origin\"",
    ];
    place.config(&THROUGH.replace(export, path));
    let daemon = place.serve();
    run(&mut place.command(ON));
    let origin = fs::File::options().write(true).open(place.path("origin"));
    let origin = origin.unwrap();
    let before = origin.metadata().unwrap().len();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    let bytes = noise(1, 1 << 20);
    client.write(0, &bytes, false).unwrap();
    assert!(volume(&daemon)["write_back"]["dirty_bytes"].as_u64() > Some(0));
    // What cannot be is refused before the log is drained, and clients stay.
    let grow = || place.command("volume grow vol");
    refused(&mut grow(), 1, &["has not grown"]);
    origin.set_len(before + (1 << 20) + 512).unwrap();
    refused(&mut grow(), 1, &["a multiple of 4 KiB"]);
    assert!(client.read(0, 1 << 20).unwrap() == bytes);
    origin.set_len(before + (1 << 20)).unwrap();
    run(&mut grow());
    let now = volume(&daemon);
    assert_eq!(now["size_bytes"], before + (1 << 20), "{now}");
    assert_eq!(now["mode"], "write-back", "{now}");
    assert_eq!(now["write_back"]["copies"], 2, "{now}");
    assert_eq!(mode(&place), "write-back");
    let mut client = Client::connect(&place.path("nbd"), "vol");
    let added = noise(2, 4096);
    client.write(before, &added, true).unwrap();
    assert!(client.read(0, 1 << 20).unwrap() == bytes);
    // The log has the grown volume's data after a crash too.
    daemon.process.kill();
    let daemon = place.serve();
    let mut client = Client::connect(&place.path("nbd"), "vol");
    assert!(client.read(before, 4096).unwrap() == added);
    drop(client);
    daemon.stop();
    let served = fs::read(place.path("origin")).unwrap();
    assert!(served[..1 << 20] == bytes && served[before as usize..][..4096] == added);
}

/// The kind and the command of the change that follows so many others.
fn next(place: &Place, before: u32) -> (usize, String) {
    if mode(place) != "write-back" {
        return (1, ON.to_owned());
    }
    if before.is_multiple_of(3) {
        return (0, OFF.to_owned());
    }
    let text = file(place);
    let log = text
        .lines()
        .find(|line| line.starts_with("log = "))
        .unwrap();
    let [leaves, comes] = match log.contains("log0") {
        true => ["log0", "log2"],
        false => ["log2", "log0"],
    };
    (2, format!("volume replace-log vol {leaves} {comes}"))
}

/// Four clients write stamps of 512 bytes and more, a part of them forced, while the mode of the
/// volume changes; the daemon is killed at any moment of that.
#[test]
fn no_write_is_lost_whenever_the_daemon_is_killed_while_the_mode_changes() {
    const ROUNDS: u64 = 6;
    let rounds = std::env::var("HOTSET_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    let (place, _server) = through();
    let mut parts: Vec<Stamped> = (0..4).map(|n| Stamped::new(n, n << 22, 1 << 22)).collect();
    let mut changes = [0; 3];
    for round in 0..rounds {
        let daemon = place.serve();
        let socket = place.path("nbd");
        assert_eq!(volume(&daemon)["mode"], mode(&place), "round {round}");
        parts.iter_mut().for_each(|part| part.check(&socket));
        let over = AtomicBool::new(false);
        let before: u32 = changes.iter().sum();
        let made = AtomicU32::new(before);
        std::thread::scope(|scope| {
            let clients: Vec<_> = parts
                .iter_mut()
                .map(|part| scope.spawn(|| part.write(&socket, &over)))
                .collect();
            let operator = scope.spawn(|| {
                let mut done = [0; 3];
                while !over.load(Ordering::SeqCst) {
                    let (kind, words) = next(&place, made.load(Ordering::SeqCst));
                    let output = place.command(&words).output().unwrap();
                    let killed = over.load(Ordering::SeqCst);
                    assert!(output.status.success() || killed, "{output:?}");
                    done[kind] += u32::from(output.status.success());
                    made.store(before + done.iter().sum::<u32>(), Ordering::SeqCst);
                }
                done
            });
            // At any moment of the change after the first, the second or the third.
            let most = before + 1 + round as u32 % 3;
            until("changes", || {
                operator.is_finished() || made.load(Ordering::SeqCst) >= most
            });
            std::thread::sleep(Duration::from_millis(round * 67 % 400));
            over.store(true, Ordering::SeqCst);
            daemon.process.kill();
            let done = operator.join().unwrap();
            changes
                .iter_mut()
                .zip(done)
                .for_each(|(all, done)| *all += done);
            clients
                .into_iter()
                .for_each(|client| client.join().unwrap());
        });
    }
    let daemon = place.serve();
    let socket = place.path("nbd");
    parts.iter_mut().for_each(|part| part.check(&socket));
    let writes: u64 = parts.iter().map(|part| part.acknowledged).sum();
    let [off, on, replaced] = changes;
    println!("{writes} writes, {off} times off, {on} times on, {replaced} devices replaced");
    assert!(writes > 100 && changes.iter().all(|done| *done > 0));
    daemon.stop();
}
