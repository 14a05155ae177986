//! Storms on real daemons.

use crate::common::{Place, all, lab};
use serde_json::Value;
use std::process::Output;

/// Runs storms with these options, where the machine can run them.
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

/// Checks the report of a canary, which a storm has to find within a few storms.
fn canary(name: &str, expected: &str) {
    let options = [
        "--seed",
        "1",
        "--minutes",
        "10",
        "--storms",
        "5",
        "--canary",
        name,
    ];
    let Some((output, report)) = storms(&options) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    let violations = report["violations"].as_array().unwrap();
    let whats = violations.iter().filter_map(|v| v["what"].as_str());
    let whats: Vec<&str> = whats.collect();
    let is_found = whats.iter().any(|what| what.contains(expected));
    assert!(is_found, "{expected:?}: {whats:#?}");
}

#[test]
fn canary_an_origin_that_loses_a_write_is_found() {
    canary("lost-write", " sector ");
}

#[test]
fn canary_an_origin_that_rots_is_found() {
    canary("rot", "bytes of no write");
}

#[test]
fn canary_a_bystander_that_is_written_is_found() {
    canary("bystander", "which is another's, was written");
}

#[test]
fn canary_a_configuration_that_does_not_start_is_found() {
    canary("configuration", "`hotset check` ends with 2");
}

#[test]
fn canary_a_daemon_that_dies_is_found() {
    canary("death", "no connection");
}

#[test]
fn canary_a_report_that_is_late_is_found() {
    canary("late-report", "report");
}

#[test]
#[ignore = "takes half a minute, and minutes on a busy machine: it waits out the limit of a request"]
fn canary_an_origin_that_is_unresponsive_is_found() {
    canary("silence", "no answer");
}

#[test]
fn canary_a_loss_that_is_not_said_is_found() {
    canary("unsaid", "no event says so");
}
