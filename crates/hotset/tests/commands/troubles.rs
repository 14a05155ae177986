//! Troubles are one list, which the command line, the metrics, the API and the page show.

use crate::common::browser::Browser;
use crate::common::site::Site;
use crate::common::{Daemon, Place, Process, USUAL, all, hotset, noise, run, tool, until};
use std::fs;

/// A write-back volume beside the usual one, and a pool without a device.
const MORE: &str = r#"
[[device]]
name = "second"
path = "$/second"
[[device]]
name = "log0"
path = "$/log0"
controller = "pcie1"
[[device]]
name = "log1"
path = "$/log1"
controller = "pcie2"
[[device]]
name = "third"
path = "$/third"
[[volume]]
name = "data"
origin = "second"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
[[volume]]
name = "away"
origin = "third"
pool = "fast"
"#;

/// Kinds and subjects.
fn troubles(daemon: &Daemon<'_>) -> Vec<(String, String)> {
    let status = daemon.status();
    let troubles = status["troubles"].as_array().unwrap().iter();
    let text = |trouble: &serde_json::Value, part: &str| trouble[part].as_str().unwrap().to_owned();
    troubles
        .map(|t| (text(t, "kind"), text(t, "subject")))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = expected
        .iter()
        .map(|(kind, subject)| ((*kind).into(), (*subject).into()));
    owned.collect()
}

/// The exit status of `hotset status --exit-code`, and its output.
fn exit_code(place: &Place) -> (Option<i32>, String) {
    let output = place.command("status --exit-code").output().unwrap();
    (output.status.code(), all(&output))
}

/// Its files, and the server of the pool's device.
fn machine() -> (Place, Process) {
    let place = Place::usual();
    for (file, mib) in [("second", 64), ("log0", 24), ("log1", 24), ("third", 16)] {
        place.file(file, mib);
    }
    fs::write(place.path("second"), noise(1, 64 << 20)).unwrap();
    let mut server = tool("nbdkit", "nbdkit");
    server.args(["--foreground", "--exit-with-parent", "--unix"]);
    server.arg(place.path("ram")).args(["memory", "64M"]);
    let server = Process(server.spawn().unwrap());
    until("nbdkit", || place.path("ram").exists());
    let usual = USUAL.replace("path = \"$/pool\"", "nbd = \"nbd+unix:///?socket=$/ram\"");
    let text = format!("{}{MORE}", usual.replace("\"10s\"", "\"500ms\""));
    place.config(&text);
    (place, server)
}

/// Three troubles, as everything shows them.
fn shown_everywhere(place: &Place, site: &Site, browser: &Browser) {
    let (code, shown) = exit_code(place);
    assert_eq!(code, Some(3), "{shown}");
    for part in [
        "critical: volume away is not served: ",
        "critical: device log0 of the log of volume data is lost: ",
        "mend:  ",
        "`hotset pool readmit fast pool`",
    ] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    browser.shows(
        ".banner.bad",
        "Device log0 of the log of volume data is lost",
    );
    let banner = browser.shows(".banner.bad", "Volume away is not served");
    assert!(banner.contains("its clients cannot reach it"), "{banner}");
    browser.pictures("troubles");
    let lost = "hotset_troubles{kind=\"log-copy-lost\",severity=\"critical\"} 1";
    let metrics = site.with(&site.reader, "GET", "/metrics", "").body;
    assert!(metrics.contains(lost), "{metrics}");
    let status = site.with(&site.reader, "GET", "/api/v1/status", "").json();
    assert_eq!(status["troubles"].as_array().unwrap().len(), 3, "{status}");
}

#[test]
fn what_is_wrong_is_one_list_and_everything_shows_it() {
    let (place, server) = machine();

    // All is well.
    let daemon = place.serve();
    assert_eq!(troubles(&daemon), []);
    let (code, text_shown) = exit_code(&place);
    assert_eq!(code, Some(0), "{text_shown}");
    let site = Site::start(&place);
    let mut browser = Browser::start();
    browser.sign_in(&site);
    browser.shows(".banner.good", "All is well.");
    daemon.stop();

    // A device of the log and an origin are not there, and the pool's device is lost.
    fs::remove_file(place.path("log0")).unwrap();
    fs::remove_file(place.path("third")).unwrap();
    let daemon = place.serve();
    server.kill();
    crate::common::copy_out(&daemon.uri("vol"), &place.path("out"));
    let log0 = "device log0 of the log of volume data";
    let mut expected = vec![
        ("volume-not-served", "volume away"),
        ("log-copy-lost", log0),
    ];
    until("what is missing", || {
        troubles(&daemon).starts_with(&pairs(&expected))
    });
    until("the pool's device", || {
        let kinds = ["pool-device-ejected", "pool-device-late"];
        let last = troubles(&daemon).pop().unwrap();
        last.1 == "device pool of pool fast" && kinds.contains(&&*last.0)
    });
    shown_everywhere(&place, &site, &browser);

    // A trouble that has ended leaves the list; a configuration that cannot be read comes into it.
    place.file("third", 16);
    run(&mut place.command("pool remove-device fast pool"));
    let broken = format!(
        "{}\n[[volume]]\nname = 7\n",
        fs::read_to_string(place.path("hotset.toml")).unwrap()
    );
    fs::write(place.path("hotset.toml"), broken).unwrap();
    let subject = format!("configuration {}", place.text("hotset.toml"));
    expected = vec![
        ("log-copy-lost", log0),
        ("pool-empty", "pool fast"),
        ("configuration-unreadable", &subject),
    ];
    until("the other troubles", || {
        troubles(&daemon) == pairs(&expected)
    });
    drop(browser);
    daemon.stop();
}

#[test]
fn a_daemon_that_is_away_has_no_status_to_exit_with() {
    let place = Place::usual();
    let output = hotset()
        .args(["status", "--exit-code"])
        .env("HOTSET_CONTROL", place.path("control"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
}
