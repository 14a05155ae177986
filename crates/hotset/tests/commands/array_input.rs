//! Faulty arrays: one line each, with the remedy.

use crate::common::{Daemon, Place, hotset, refused, run, until};
use std::fs;
use std::process::Command;

/// `a`, `b` and `c` of 16 MiB, and an array `disk` of `level` over `members`.
fn place(level: &str, members: &[&str]) -> Place {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.file(name, 16);
    }
    config(&place, level, members, "");
    place
}

fn config(place: &Place, level: &str, members: &[&str], more: &str) {
    let mut text = String::from(
        "[daemon]\ncontrol = \"$/control\"\nstate = \"$/state\"\nbuffers = \"64MiB\"\n[[listen]]\nunix = \"$/nbd\"\n",
    );
    for name in members {
        text += &format!("[[device]]\nname = \"{name}\"\npath = \"$/{name}\"\n");
    }
    text += &format!(
        "[[array]]\nname = \"disk\"\nlevel = \"{level}\"\nmembers = {members:?}\n{more}\n\
         [[pool]]\nname = \"fast\"\ndevices = []\n\
         [[volume]]\nname = \"vol\"\norigin = \"disk\"\npool = \"fast\"\n"
    );
    place.config(&text);
}

fn array(place: &Place, words: &str) -> Command {
    let mut command = hotset();
    command.arg("array").args(words.split(' ')).arg("--config");
    command.arg(place.path("hotset.toml"));
    command
}

/// A daemon without a volume: its only one waits for an array that cannot start, and the reason is
/// reported.
fn waits<'a>(place: &'a Place, expected: &[&str]) -> Daemon<'a> {
    let daemon = place.serve();
    let status = daemon.status();
    assert_eq!(status["arrays"][0]["state"], "inactive", "{status}");
    let whys = [
        status["arrays"][0]["inactive"].to_string(),
        status["waiting"][0]["why"].to_string(),
        run(&mut place.command("status")),
    ];
    for why in whys {
        assert!(
            expected.iter().all(|part| why.contains(part)),
            "{expected:?}: {why}"
        );
    }
    daemon
}

#[test]
fn an_array_that_was_never_made_is_waited_for() {
    let place = place("raid1", &["a", "b"]);
    let daemon = waits(&place, &["make it with `hotset array create`"]);
    run(&mut array(&place, "create disk"));
    until("the volume", || {
        daemon.status()["volumes"][0]["name"] == "vol"
    });
    assert!(daemon.stop().contains("volume vol is served"));
}

#[test]
fn members_that_hold_something_are_kept() {
    let place = place("raid1", &["a", "b"]);
    fs::write(place.path("b"), vec![7; 16 << 20]).unwrap();
    refused(
        &mut array(&place, "create disk"),
        1,
        &["b", "holds data; give --yes"],
    );
    assert!(
        fs::read(place.path("b"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 7)
    );
    assert!(
        fs::read(place.path("a"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    run(&mut array(&place, "create disk --yes"));
    refused(
        &mut array(&place, "create disk"),
        1,
        &["belongs to array disk", "--yes"],
    );
    refused(
        &mut array(&place, "create tape"),
        2,
        &["has no [[array]] tape"],
    );
}

#[test]
fn of_members_of_different_sizes_the_smallest_counts() {
    let place = place("raid1", &["a", "b"]);
    place.file("b", 24);
    let made = run(&mut array(&place, "create disk"));
    assert!(made.contains("HEALTHY, raid1 of 15.0 MiB"), "{made}");
    // Cut short later, the member is refused.
    let file = fs::File::options().write(true).open(place.path("a"));
    file.unwrap().set_len(8 << 20).unwrap();
    let without = run(&mut array(&place, "assemble disk"));
    assert!(without.contains("DEGRADED, raid1 of 15.0 MiB"), "{without}");
    place.file("c", 1);
    config(&place, "raid1", &["b", "c"], "");
    refused(
        &mut array(&place, "create disk --yes"),
        1,
        &["is too small"],
    );
}

#[test]
fn the_order_of_members_does_not_matter_once_it_is_made() {
    let place = place("raid5", &["a", "b", "c"]);
    run(&mut array(&place, "create disk"));
    config(&place, "raid5", &["c", "a", "b"], "");
    let found = run(&mut array(&place, "assemble"));
    assert!(found.contains("HEALTHY"), "{found}");
    config(&place, "raid1", &["c", "a", "b"], "");
    refused(
        &mut array(&place, "assemble disk"),
        1,
        &["raid5 on its members", "correct `level`"],
    );
}

#[test]
fn missing_members_are_reported_and_too_many_refused() {
    let place = place("raid5", &["a", "b", "c"]);
    run(&mut array(&place, "create disk"));
    fs::rename(place.path("a"), place.path("away")).unwrap();
    let found = run(&mut array(&place, "assemble disk"));
    assert!(
        found.contains("DEGRADED") && found.contains("missing"),
        "{found}"
    );
    fs::rename(place.path("b"), place.path("away-too")).unwrap();
    let expected = [
        "array disk cannot start",
        "too many members are missing",
        "bring them back",
        "b: ",
    ];
    refused(&mut array(&place, "assemble disk"), 1, &expected);
    let daemon = waits(&place, &expected[1..]);
    // Both members are back; the missed one is filled again.
    fs::rename(place.path("away"), place.path("a")).unwrap();
    fs::rename(place.path("away-too"), place.path("b")).unwrap();
    until("the rebuild", || {
        daemon.status()["arrays"][0]["state"] == "healthy"
    });
}

#[test]
fn the_half_that_may_be_old_starts_only_on_demand() {
    let place = place("raid1", &["a", "b"]);
    run(&mut array(&place, "create disk"));
    fs::rename(place.path("a"), place.path("away")).unwrap();
    let expected = [
        "may have continued without",
        "bring back the missing",
        "start it degraded",
    ];
    waits(&place, &expected).stop();
    let found = run(&mut array(&place, "assemble disk --degraded"));
    assert!(found.contains("DEGRADED"), "{found}");
    let daemon = place.serve();
    assert_eq!(daemon.status()["arrays"][0]["state"], "degraded");
}

#[test]
fn the_half_that_may_be_old_starts_by_itself_where_that_is_wanted() {
    let place = place("raid1", &["a", "b"]);
    run(&mut array(&place, "create disk"));
    fs::rename(place.path("a"), place.path("away")).unwrap();
    let daemon = waits(&place, &["may have continued without"]);
    // The file is changed while the daemon runs; the next attempt starts the array.
    config(&place, "raid1", &["a", "b"], "start_degraded = true");
    let changed = run(&mut place.command("reload"));
    assert!(
        changed.contains("`start_degraded` counts when"),
        "{changed}"
    );
    let is = |state: &str| daemon.status()["arrays"][0]["state"] == state;
    until("the start", || is("degraded"));
    daemon.stop();
    let file = place.path("hotset.toml");
    let checked = run(hotset().arg("check").arg(&file));
    assert!(checked.contains("end as a split brain"), "{checked}");
    let daemon = place.serve();
    assert_eq!(daemon.status()["arrays"][0]["state"], "degraded");
    // A member that is back is filled with the missed writes.
    fs::rename(place.path("away"), place.path("a")).unwrap();
    until("the rebuild", || {
        daemon.status()["arrays"][0]["state"] == "healthy"
    });
}

#[test]
fn two_members_with_one_role_are_refused() {
    let place = place("raid1", &["a", "b"]);
    run(&mut array(&place, "create disk"));
    fs::copy(place.path("a"), place.path("c")).unwrap();
    config(&place, "raid1", &["a", "b", "c"], "");
    refused(
        &mut array(&place, "assemble disk"),
        1,
        &[
            "is a copy of another member (role 0)",
            "remove one of the two",
        ],
    );
}

#[test]
fn a_member_of_another_array_counts_as_absent() {
    let place = place("raid1", &["a", "b"]);
    run(&mut array(&place, "create disk"));
    place.file("d", 16);
    config(&place, "raid1", &["c", "d"], "");
    run(&mut array(&place, "create disk"));
    config(&place, "raid1", &["a", "b", "c"], "");
    let found = run(&mut array(&place, "assemble disk"));
    assert!(found.contains("HEALTHY"), "{found}");
    config(&place, "raid1", &["a", "c"], "");
    refused(
        &mut array(&place, "assemble disk"),
        1,
        &["belong to two arrays", "remove one of them"],
    );
}

#[test]
fn an_array_is_started_once() {
    let place = place("raid1", &["a", "b"]);
    run(&mut array(&place, "create disk"));
    let daemon = place.serve();
    refused(
        &mut array(&place, "assemble disk"),
        1,
        &["a", "in use by hotset (process", "stop that first"],
    );
    refused(
        &mut array(&place, "create disk --yes"),
        1,
        &["in use by hotset (process"],
    );
    drop(daemon);
}

#[test]
fn a_spare_that_is_too_small_is_refused() {
    let place = place("raid1", &["a", "b"]);
    let text = fs::read_to_string(place.path("hotset.toml")).unwrap();
    place.file("s", 4);
    let text = text.replacen(
        "[[array]]",
        &format!(
            "[[device]]\nname = \"s\"\npath = \"{}\"\n[[array]]\nspares = [\"s\"]",
            place.text("s")
        ),
        1,
    );
    fs::write(place.path("hotset.toml"), text).unwrap();
    refused(
        &mut array(&place, "create disk"),
        1,
        &["s (", "has 4 MiB, a member needs", "give a larger device"],
    );
}
