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
    if let Some(why) = lab::drill::DriveKind::Loop.obstacle() {
        println!("skipped: {why}");
        return;
    }
    let place = Place::new();
    let config = raid10_with_a_spare(&place);
    survived(
        &["--where", "real", "--drives", "loop", "--config", &config],
        8,
    );
}

/// A mirror of two RAID 5, of which one stops and is put together again.
#[test]
fn an_array_within_another_that_stopped_comes_back() {
    let place = Place::new();
    let mut text = String::from("[[listen]]\nunix = '/nonexistent/nbd'\n");
    for side in ["x", "y"] {
        for number in 0..3 {
            text += &format!(
                "[[device]]\nname = '{side}{number}'\npath = '/nonexistent/{side}{number}'\n\
                 controller = '{side}'\n"
            );
        }
        text += &format!(
            "[[array]]\nname = 'five-{side}'\nlevel = 'raid5'\ndetection = '1s'\n\
             members = ['{side}0', '{side}1', '{side}2']\n"
        );
    }
    text += "[[array]]\nname = 'both'\nlevel = 'raid1'\nmembers = ['five-x', 'five-y']\n\
             detection = '1s'\n";
    let config = place.path("hotset.toml");
    fs::write(&config, text).unwrap();
    survived(
        &["--where", "real", "--config", config.to_str().unwrap()],
        8,
    );
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
