//! The availability drills, in the simulator and on a real daemon.

mod common;

use common::{Place, all, hotset};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn every_drill_is_survived_in_both_worlds() {
    survived(&[], 24);
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
             spares = ['e']\ndetection = '1s'\n";
    let config = place.path("hotset.toml");
    fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

#[test]
fn other_arrays_are_drilled_and_no_configured_device_is_opened() {
    let place = Place::new();
    survived(&["--config", &raid10_with_a_spare(&place)], 16);
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
    survived(&["--where", "real", "--config", &config], 8);
}

#[test]
fn arrays_within_another_come_back_on_other_loop_devices() {
    survived_on_loop_devices(|place| mirror_of(place, [("raid0", 2), ("raid5", 3)]));
}

#[test]
fn what_cannot_be_survived_is_told() {
    let place = Place::new();
    let config = place.path("hotset.toml");
    let text = "[[listen]]\nunix = '/nonexistent/nbd'\n\
                [[device]]\nname = 'a'\npath = '/nonexistent/a'\n\
                [[device]]\nname = 'b'\npath = '/nonexistent/b'\n\
                [[array]]\nname = 'r'\nlevel = 'raid0'\nmembers = ['a', 'b']\n";
    fs::write(&config, text).unwrap();
    let output = hotset().args(["drill", "--config"]).arg(&config).output();
    let told = all(&output.unwrap());
    assert!(
        told.contains("not run: a single drive (r) of side a"),
        "{told}"
    );
    assert!(told.contains("add redundancy"), "{told}");
}

/// Runs a drill of eight cells on loop devices, if they can be had here.
fn survived_on_loop_devices(config: impl FnOnce(&Place) -> String) {
    if let Some(why) = lab::drill::DriveKind::Loop.obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::new();
    let config = config(&place);
    survived(
        &["--where", "real", "--drives", "loop", "--config", &config],
        8,
    );
}

/// Runs a drill in both worlds, of so many cells.
fn survived(options: &[&str], expected: usize) {
    let place = Place::new();
    let page = place.path("drill.html");
    let mut drill = hotset();
    drill
        .args(["drill", "--json", "--directory"])
        .arg(place.path("d"))
        .args(options);
    let output = drill.arg("--report").arg(&page).output().unwrap();
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
