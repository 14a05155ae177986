//! Devices that cannot be used at a start count as absent. Redundancy bears an absence; without
//! enough of it one volume waits while the others are served.

use crate::common::{
    Daemon, Place, USUAL, attaches, copy_in, copy_out, hotset, noise, refused, run, until,
};
use std::fs;
use std::process::Command;

const MIB: u64 = 16;

/// The usual volume `vol`, and a volume `mirrored` on the array `disk` of `level` over
/// `members`, which is made.
fn place(level: &str, members: &[&str]) -> Place {
    let place = Place::new();
    place.file("origin", 8);
    place.file("pool", 64);
    let mut text = USUAL.to_owned();
    for name in members {
        place.file(name, MIB);
        text += &format!("[[device]]\nname = \"{name}\"\npath = \"$/{name}\"\n");
    }
    text += &format!(
        "[[array]]\nname = \"disk\"\nlevel = \"{level}\"\nmembers = {members:?}\ndetection = \"2s\"\n\
         [[volume]]\nname = \"arrayed\"\norigin = \"disk\"\npool = \"fast\"\n"
    );
    let config = place.config(&text);
    let mut create = hotset();
    create.args(["array", "create", "disk", "--config"]);
    run(create.arg(config));
    place
}

fn served(daemon: &Daemon<'_>) -> Vec<String> {
    let status = daemon.status();
    let names = status["volumes"].as_array().unwrap().iter();
    names
        .map(|volume| volume["name"].as_str().unwrap().to_owned())
        .collect()
}

fn state(daemon: &Daemon<'_>) -> String {
    daemon.status()["arrays"][0]["state"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A file that is a directory now can neither be read nor written.
fn spoil(place: &Place, name: &str) {
    fs::rename(place.path(name), place.path(&format!("{name}.away"))).unwrap();
    fs::create_dir(place.path(name)).unwrap();
}

fn mend(place: &Place, name: &str) {
    fs::remove_dir(place.path(name)).unwrap();
    fs::rename(place.path(&format!("{name}.away")), place.path(name)).unwrap();
}

/// Spoils `b`, starts twice, since the first such start takes the member out, and mends `b`.
fn bears(place: &Place, expected: &str, spoil: impl FnOnce(), mend: impl FnOnce()) {
    let bytes = noise(1, 8 << 20);
    fs::write(place.path("in"), &bytes).unwrap();
    let daemon = place.serve();
    copy_in(&place.path("in"), &daemon.uri("arrayed"));
    daemon.stop();
    spoil();
    for start in 0..2 {
        let daemon = place.serve();
        assert_eq!(state(&daemon), "degraded", "start {start}");
        let out = copy_out(&daemon.uri("arrayed"), &place.path("out"));
        assert!(out[..bytes.len()] == bytes[..], "start {start}");
        let log = daemon.stop();
        assert!(log.contains(expected), "start {start}: {log}");
    }
    mend();
    let daemon = place.serve();
    until("the rebuild", || state(&daemon) == "healthy");
    daemon.stop();
}

#[test]
fn redundancy_bears_a_member_that_cannot_be_opened() {
    let place = place("raid5", &["a", "b", "c"]);
    let expected = "array disk starts without b: ";
    bears(
        &place,
        expected,
        || spoil(&place, "b"),
        || mend(&place, "b"),
    );
}

/// The readable part of the member shows that the mirror has not diverged by this half.
#[test]
fn a_mirror_bears_a_member_that_can_only_be_read() {
    if !attaches() {
        return;
    }
    let place = place("raid1", &["a", "b"]);
    let b = place.text("b");
    let mount = |options: &[&str]| drop(run(Command::new("mount").args(options).arg(&b)));
    let expected = "member b can only be read: ";
    let protect = || {
        mount(&["--bind", &b]);
        mount(&["-o", "remount,ro,bind"]);
    };
    let release = || drop(run(Command::new("umount").arg(&b)));
    bears(&place, expected, protect, release);
}

/// The start is tried again and again until someone decides.
#[test]
fn a_blank_member_of_an_array_that_waits_is_reported_once() {
    let place = place("raid1", &["a", "b"]);
    place.serve().stop();
    fs::remove_file(place.path("b")).unwrap();
    place.file("b", MIB);
    let daemon = place.serve();
    assert_eq!(state(&daemon), "inactive");
    std::thread::sleep(std::time::Duration::from_secs(5));
    let log = daemon.stop();
    let reports = log.matches("goes without b, which belongs to no array");
    assert_eq!(reports.count(), 1, "{log}");
}

#[test]
fn a_volume_whose_array_cannot_start_waits_while_another_is_served() {
    let place = place("raid5", &["a", "b", "c"]);
    spoil(&place, "a");
    fs::rename(place.path("b"), place.path("b.away")).unwrap();
    let daemon = place.serve();
    assert_eq!(served(&daemon), ["vol"]);
    assert_eq!(state(&daemon), "inactive");
    let waiting = daemon.status()["waiting"][0].clone();
    assert_eq!(waiting["name"], "arrayed");
    let why = waiting["why"].to_string();
    assert!(why.contains("a: ") && why.contains("b: "), "{why}");
    let listed = run(&mut place.command("array status disk"));
    assert!(listed.contains("disk: INACTIVE, raid5"), "{listed}");
    refused(
        &mut place.command("volume add arrayed --origin disk --pool fast"),
        1,
        &["is not served yet", "mend that, or remove the volume"],
    );
    copy_out(&daemon.uri("vol"), &place.path("out"));
    // One of the two is enough.
    fs::rename(place.path("b.away"), place.path("b")).unwrap();
    until("the volume", || served(&daemon).len() == 2);
    assert_eq!(state(&daemon), "degraded");
    copy_out(&daemon.uri("arrayed"), &place.path("out"));
    let output = daemon.stop();
    assert!(
        output.contains("volume arrayed is not served yet"),
        "{output}"
    );
    assert!(output.contains("volume arrayed is served"), "{output}");
}

#[test]
fn a_volume_that_waits_can_be_removed() {
    let place = place("raid1", &["a", "b"]);
    spoil(&place, "a");
    spoil(&place, "b");
    let daemon = place.serve();
    until("the removal", || {
        let mut remove = place.command("volume remove arrayed");
        remove.output().unwrap().status.success()
    });
    assert_eq!(daemon.status()["waiting"], serde_json::json!([]));
    mend(&place, "a");
    mend(&place, "b");
    run(&mut place.command("volume add arrayed --origin disk --pool fast"));
    assert_eq!(served(&daemon), ["arrayed", "vol"]);
    daemon.stop();
}

#[test]
fn an_origin_or_a_pool_device_that_is_missing_stops_nothing_else() {
    let place = place("raid1", &["a", "b"]);
    for missing in ["origin", "pool"] {
        fs::rename(place.path(missing), place.path("away")).unwrap();
        let daemon = place.serve();
        copy_out(&daemon.uri("arrayed"), &place.path("out"));
        match missing {
            "origin" => assert_eq!(served(&daemon), ["arrayed"]),
            _ => assert_eq!(served(&daemon), ["arrayed", "vol"]),
        }
        fs::rename(place.path("away"), place.path(missing)).unwrap();
        match missing {
            "origin" => until("the volume", || served(&daemon).len() == 2),
            _ => drop(run(&mut place.command("pool add-device fast pool"))),
        }
        copy_out(&daemon.uri("vol"), &place.path("out"));
        daemon.stop();
    }
}

/// The array was started for the volume alone, and is released with the volume.
#[test]
fn a_volume_that_is_refused_leaves_its_array_free() {
    let place = place("raid1", &["a", "b"]);
    let daemon = place.serve();
    run(&mut place.command("volume remove arrayed"));
    for _ in 0..2 {
        refused(
            &mut place.command("volume add large --origin disk --pool fast --size 1GiB"),
            1,
            &["is larger than its origin"],
        );
    }
    assert_eq!(daemon.status()["arrays"], serde_json::json!([]));
    run(&mut place.command("volume add arrayed --origin disk --pool fast"));
    run(&mut place.command("volume remove arrayed"));
    // A device that a pool refuses is left free too.
    fs::write(place.path("foreign"), noise(3, 1 << 20)).unwrap();
    let foreign = place.text("foreign");
    for _ in 0..2 {
        refused(
            &mut place.command(&format!("pool add-device fast {foreign}")),
            1,
            &["foreign", "hotset pool format"],
        );
    }
    daemon.stop();
}
