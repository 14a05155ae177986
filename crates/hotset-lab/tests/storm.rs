//! Storms on real daemons.

mod common;

use common::{Place, all, lab};
use serde_json::Value;
use std::process::Output;

/// Storms with these options, where they can be had.
fn storms(options: &[&str]) -> Option<(Output, Value)> {
    if let Some(why) = storm::obstacle() {
        println!("skipped: {why}");
        return None;
    }
    let place = Place::new();
    let mut command = lab();
    command.args(["storm", "--json", "--directory"]);
    command.arg(place.path("storm")).args(options);
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {}", all(&output)));
    Some((output, report))
}

#[test]
fn a_daemon_weathers_a_storm() {
    let Some((output, report)) = storms(&["--seed", "1", "--storms", "1"]) else {
        return;
    };
    println!("{report:#}");
    assert!(output.status.success(), "{}", all(&output));
    assert!(report["lives"].as_u64().unwrap() >= 3, "{report:#}");
    assert!(report["requests"].as_u64().unwrap() > 100, "{report:#}");
}

#[test]
fn canary_an_origin_that_loses_a_write_is_found() {
    let options = [
        "--seed",
        "1",
        "--minutes",
        "10",
        "--storms",
        "5",
        "--canary",
    ];
    let Some((output, report)) = storms(&options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    let what = report["violations"][0]["what"].as_str().unwrap();
    assert!(what.contains(" sector "), "{report:#}");
}
