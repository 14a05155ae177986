//! The parts of an installed system: service manager, group, manual pages, shipped configuration.

use crate::common::{Place, USUAL, hotset, refused, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_watchdog_is_fed_as_long_as_the_daemon_runs() {
    let place = Place::usual();
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut command = Command::new("sh");
    // The watchdog is of the process that its variable names.
    command.args(["-c", "WATCHDOG_PID=$$ exec \"$0\" serve --config \"$1\""]);
    command
        .arg(hotset().get_program())
        .arg(place.path("hotset.toml"));
    command
        .env("NOTIFY_SOCKET", place.path("notify"))
        .env("WATCHDOG_USEC", "300000");
    let daemon = Ended(command.stderr(Stdio::null()).spawn().unwrap());
    let next = || {
        let mut state = [0; 128];
        let len = manager.recv(&mut state).unwrap();
        String::from_utf8(state[..len].to_vec()).unwrap()
    };
    assert_eq!(next(), "READY=1\nSTATUS=serving 1 volume\n");
    for _ in 0..5 {
        assert_eq!(next(), "WATCHDOG=1\nSTATUS=serving 1 volume\n");
    }
    drop(daemon);
}

#[test]
fn a_group_shares_the_control_socket_if_there_is_such_a_group() {
    let place = Place::usual();
    let daemon = place.serve();
    let mode = || {
        fs::metadata(place.path("control"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(), 0o600);
    daemon.stop();
    let own = run(Command::new("id").arg("-gn"));
    let shared = |group: &str| {
        USUAL.replacen(
            "[daemon]",
            &format!("[daemon]\ncontrol_group = {group:?}"),
            1,
        )
    };
    place.config(&shared(own.trim()));
    let daemon = place.serve();
    assert_eq!(mode(), 0o660);
    daemon.stop();
    let file = place.config(&shared("no-such-group"));
    for alone in [
        &["check", "--alone"][..],
        &["check"],
        &["serve", "--config"],
    ] {
        let expected = ["hotset.toml:2: there is no group \"no-such-group\""];
        refused(hotset().args(alone).arg(&file), 2, &expected);
    }
}

#[test]
fn files_alone_are_judged_while_a_daemon_serves_them() {
    let place = Place::usual();
    let daemon = place.serve();
    let file = place.path("hotset.toml");
    refused(hotset().arg("check").arg(&file), 2, &["control"]);
    let judged = run(hotset().args(["check", "--alone"]).arg(&file));
    assert!(judged.contains("no problem found"), "{judged}");
    let as_json = |status: i32| -> serde_json::Value {
        let check = ["check", "--alone", "--json"];
        let output = hotset().args(check).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(as_json(0)["problems"], serde_json::json!([]));
    place.config(&format!("{USUAL}\nunknown = 1\n"));
    let line = fs::read_to_string(&file).unwrap().lines().count();
    let expected = format!("hotset.toml:{line}: ");
    refused(
        hotset().args(["check", "--alone"]).arg(&file),
        2,
        &[&expected],
    );
    let problem = as_json(2)["problems"][0].clone();
    assert!(problem.as_str().unwrap().contains(&expected), "{problem}");
    daemon.stop();
}

#[test]
fn each_command_has_a_manual_page() {
    let place = Place::new();
    run(hotset().args(["man", "--directory"]).arg(place.path("")));
    for name in ["hotset", "hotset-serve", "hotset-volume-add", "hotset-web"] {
        let page = fs::read_to_string(place.path(&format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
    assert!(!place.path("hotset-ublk-begin.1").exists());
    refused(
        hotset().args(["man", "--directory", "/nowhere"]),
        1,
        &["/nowhere"],
    );
}

#[test]
fn the_shipped_configuration_is_right_with_its_comments_and_without() {
    let shipped = fs::read_to_string(tree("packaging/hotset.toml")).unwrap();
    let shipped = shipped.replace("control_group = \"hotset\"", "");
    let section = |line: &str| {
        [
            "#[", "#name", "#path", "#devices", "#origin", "#pool", "#ublk",
        ]
        .iter()
        .any(|mark| line.starts_with(mark))
    };
    let uncommented = shipped
        .lines()
        .map(|line| if section(line) { &line[1..] } else { line });
    let uncommented = uncommented.collect::<Vec<_>>().join("\n");
    let place = Place::new();
    for (text, counted) in [(shipped, "0 volumes"), (uncommented, "1 volume,")] {
        let judged = run(hotset().args(["check", "--alone"]).arg(place.config(&text)));
        assert!(judged.contains(counted), "{judged}");
    }
}

#[test]
fn the_notices_of_the_page_are_those_of_its_packages() {
    let lock = fs::read_to_string(tree("web/package-lock.json")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let notices = fs::read_to_string(tree("web/NOTICES.md")).unwrap();
    let packages = lock["packages"].as_object().unwrap().iter();
    let bundled = packages.filter(|(path, package)| !path.is_empty() && package["dev"] != true);
    let headings = bundled.map(|(path, package)| {
        let name = path.strip_prefix("node_modules/").unwrap();
        format!("## {name} {}", package["version"].as_str().unwrap())
    });
    let headings: Vec<_> = headings.collect();
    let noted: Vec<_> = notices
        .lines()
        .filter(|line| line.starts_with("## "))
        .collect();
    assert!(headings.len() >= 3);
    assert_eq!(noted, headings, "renew them with `make page`");
}
