//! The availability drills on a real daemon.

use crate::common::{Place, Process, all, hotset, run, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

#[test]
fn every_drill_is_survived() {
    survived(&[], 12);
}

#[test]
fn a_write_back_volume_is_drilled() {
    if let Some(why) = drill::DriveKind::Loop.obstacle() {
        println!("skipped: {why}");
        return;
    }
    survived(&["--set-up", "write-back"], 14);
}

/// A RAID 10 that loses half of itself, of which a spare takes a place.
fn raid10_with_a_spare(place: &Place) -> String {
    let mut text = String::from("[[listen]]\nunix = '/nonexistent/nbd'\n");
    for (name, side) in [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"), ("e", "x")] {
        text += &format!(
            "[[device]]\nname = '{name}'\npath = '/nonexistent/{name}'\ncontroller = '{side}'\n"
        );
    }
    text += "[[array]]\nname = 'r'\nlevel = 'raid10'\nmembers = ['a', 'b', 'c', 'd']\n\
             spares = ['e']\ndetection = '2s'\n";
    let config = place.path("hotset.toml");
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn other_arrays_are_drilled_and_no_configured_device_is_opened() {
    let place = Place::new();
    survived(&["--config", &raid10_with_a_spare(&place)], 8);
}

#[test]
fn loop_devices_come_back_as_others() {
    survived_on_loop_devices(raid10_with_a_spare);
}

/// A mirror of two arrays, of so many drives each.
fn mirror_of(place: &Place, sides: [(&str, usize); 2]) -> String {
    let mut text = String::from("[[listen]]\nunix = '/nonexistent/nbd'\n");
    for (side, (level, drives)) in ["x", "y"].into_iter().zip(sides) {
        let names: Vec<_> = (0..drives).map(|n| format!("{side}{n}")).collect();
        for name in &names {
            text += &format!(
                "[[device]]\nname = '{name}'\npath = '/nonexistent/{name}'\n\
                 controller = '{side}'\n"
            );
        }
        text += &format!(
            "[[array]]\nname = 'half-{side}'\nlevel = '{level}'\ndetection = '2s'\n\
             members = {names:?}\n"
        );
    }
    text += "[[array]]\nname = 'both'\nlevel = 'raid1'\nmembers = ['half-x', 'half-y']\n\
             detection = '2s'\n";
    let config = place.path("hotset.toml");
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn an_array_within_another_that_stopped_comes_back() {
    let place = Place::new();
    let config = mirror_of(&place, [("raid5", 3), ("raid5", 3)]);
    let options = ["--config", &config];
    survived_with(&options, 8, stalled);
}

/// Runs a drill while its daemon stalls now and then, as on a busy machine: events in a row are
/// then seen at once.
fn stalled(drill: &mut Command) -> Output {
    let drill = drill.stdout(Stdio::piped()).stderr(Stdio::piped());
    let drill = drill.spawn().unwrap();
    let (number, is_over) = (drill.id(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Relaxed) {
                if let Some(daemon) = daemon_of(number) {
                    signal("-STOP", &daemon);
                    thread::sleep(Duration::from_millis(100 + count * 37 % 240));
                    signal("-CONT", &daemon);
                    count += 1;
                }
                thread::sleep(Duration::from_millis(100 + count * 59 % 300));
            }
            assert!(count > 0, "no daemon was found");
        });
        let output = drill.wait_with_output();
        is_over.store(true, Relaxed);
        output.unwrap()
    })
}

/// The daemon that process `parent` has started, if one runs.
fn daemon_of(parent: u32) -> Option<String> {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(children).ok()?;
    let serves = |child: &&str| {
        let command = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).nth(1) == Some(b"serve")
    };
    children.split(' ').find(serves).map(str::to_owned)
}

fn signal(which: &str, process: &str) {
    // The process may have ended just now.
    let kill = format!("kill {which} {process}");
    let _ = Command::new("sh").args(["-c", &kill]).output();
}

#[test]
fn arrays_within_another_come_back_on_other_loop_devices() {
    survived_on_loop_devices(|place| mirror_of(place, [("raid0", 2), ("raid5", 3)]));
}

/// The loop devices of the machine, each with the file system and the number of its file: a path
/// may mean nothing from outside.
fn loops() -> BTreeSet<String> {
    let columns = "NAME,BACK-MAJ:MIN,BACK-INO";
    let mut list = Command::new("losetup");
    let list = run(list.args(["--list", "--noheadings", "--raw", "--output", columns]));
    list.lines().map(str::to_owned).collect()
}

/// Mounts and processes of the machine that name the directory.
fn named(directory: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    // A process may have ended just now, and an entry that is no process has no command line.
    let commands = processes.flat_map(|process| fs::read(process.path().join("cmdline")));
    let commands = commands.map(|command| String::from_utf8_lossy(&command).replace('\0', " "));
    let all = mounts.lines().map(str::to_owned).chain(commands);
    all.filter(|line| line.contains(directory)).collect()
}

#[test]
fn a_killed_drill_leaves_no_mount_no_loop_device_and_no_process() {
    if let Some(why) = drill::DriveKind::Loop.obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::new();
    let directory = place.path("d");
    let named = || named(directory.to_str().unwrap());
    let config = raid10_with_a_spare(&place);
    let mut drill = hotset();
    drill.args(["drill", "--drives", "loop", "--config"]);
    drill.args([&config, "--directory"]).arg(&directory);
    let drill = Process(drill.stderr(Stdio::null()).spawn().unwrap());
    let number = drill.0.id();
    until("a daemon on loop devices", || daemon_of(number).is_some());
    let device = fs::read_link(directory.join("a.device")).unwrap();
    let is_its = |line: &String| line.starts_with(&format!("{} ", device.display()));
    let its = loops().into_iter().find(is_its).unwrap();
    let used = named();
    let has = |what: &str| used.iter().any(|line| line.contains(what));
    assert!(has("nbdkit") && has("nbdfuse") && has("serve"), "{used:#?}");
    assert!(!has("fuse rw"), "a mount is seen by all: {used:#?}");
    drill.kill();
    until("its processes to end", || named().is_empty());
    until("its loop device to go", || !loops().contains(&its));
}

#[test]
fn what_cannot_be_survived_is_reported() {
    let place = Place::new();
    let config = place.path("hotset.toml");
    let text = "[[listen]]\nunix = '/nonexistent/nbd'\n\
                [[device]]\nname = 'a'\npath = '/nonexistent/a'\n\
                [[device]]\nname = 'b'\npath = '/nonexistent/b'\n\
                [[array]]\nname = 'r'\nlevel = 'raid0'\nmembers = ['a', 'b']\n";
    fs::write(&config, text).unwrap();
    let output = hotset().args(["drill", "--config"]).arg(&config).output();
    let output = all(&output.unwrap());
    assert!(
        output.contains("not run: a single drive (r) of side a"),
        "{output}"
    );
    assert!(output.contains("add redundancy"), "{output}");
}

/// Runs a drill of eight cells on loop devices, if this machine allows them.
fn survived_on_loop_devices(config: impl FnOnce(&Place) -> String) {
    if let Some(why) = drill::DriveKind::Loop.obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::new();
    let config = config(&place);
    survived(&["--drives", "loop", "--config", &config], 8);
}

/// Runs a drill of so many cells.
fn survived(options: &[&str], expected: usize) {
    survived_with(options, expected, |drill| drill.output().unwrap());
}

fn survived_with(options: &[&str], expected: usize, run: fn(&mut Command) -> Output) {
    let place = Place::new();
    let page = place.path("drill.html");
    let mut drill = hotset();
    drill
        .args(["drill", "--json", "--directory"])
        .arg(place.path("d"))
        .args(options);
    let output = run(drill.arg("--report").arg(&page));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(&output)));
    let cells: BTreeSet<String> = rows
        .iter()
        .map(|row| {
            ["scenario", "side", "io", "where"]
                .map(|key| row[key].to_string())
                .join(" ")
        })
        .collect();
    assert_eq!(
        (rows.len(), cells.len()),
        (expected, expected),
        "{cells:#?}"
    );
    for row in &rows {
        assert_eq!(row["errors"], 0, "{row}");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        let rate = row["reads_per_s"].as_f64().unwrap();
        assert_eq!(row["io"] == true, rate > 0.0, "{row}");
        println!("{row}");
    }
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
}
