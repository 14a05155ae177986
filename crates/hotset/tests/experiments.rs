//! `hotset lab run`, in its quick forms.

mod common;

use common::{Place, all, hotset};
use serde_json::Value;
use std::fs::File;

fn points(output: &std::process::Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(output)));
    let points = report["points"].as_array().unwrap().clone();
    for point in &points {
        let figure = |key: &str| point[key].as_f64().unwrap();
        assert!(figure("iops") > 0.0 && figure("mb_s") > 0.0, "{point}");
        assert!(figure("latency_ms_p99") > 0.0, "{point}");
    }
    points
}

#[test]
fn the_simulation_writes_its_report() {
    let place = Place::new();
    let out = place.path("out");
    let mut command = hotset();
    command.args(["lab", "run", "perc", "--quick", "--json", "--out"]);
    let output = command.arg(&out).output().unwrap();
    assert_eq!(points(&output).len(), 4 * 2 * 5);
    let written = std::fs::read_to_string(out.join("perc.json")).unwrap();
    assert_eq!(written, String::from_utf8(output.stdout).unwrap());
    let output = hotset().args(["lab", "run", "perc", "--quick"]).output();
    let text = all(&output.unwrap());
    for word in [
        "fitted: media rate",
        "[blind]",
        "[shape]",
        "too few requests",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn a_device_is_read_and_not_written() {
    let place = Place::new();
    let path = place.path("device");
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let mut command = hotset();
    command.args(["lab", "run", "perc", "--quick", "--json", "--device"]);
    let output = command.arg(&path).output().unwrap();
    let points = points(&output);
    assert_eq!(points.len(), 2 * 5, "reads alone");
    let host = points[0]["cpu_host_percent"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&host), "{host}");
    assert_eq!(points[0]["cpu_daemon_percent"], Value::Null);
}

#[test]
fn files_are_swept_through_a_daemon() {
    let place = Place::new();
    let mut command = hotset();
    command.args(["lab", "run", "perc", "--quick", "--json", "--real"]);
    let output = command.arg(place.path("files")).output().unwrap();
    let points = points(&output);
    assert_eq!(points.len(), 4 * 2 * 5);
    for point in &points {
        assert!(
            point["cpu_daemon_percent"].as_f64().unwrap() > 0.0,
            "{point}"
        );
    }
}

#[test]
fn every_printed_figure_of_the_log_replay_has_its_row() {
    let output = hotset()
        .args(["lab", "run", "redskin", "--quick", "--json", "--seeds", "2"])
        .output()
        .unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", all(&output)));
    assert_eq!(rows.len(), 59);
    for row in &rows {
        let of = |key: &str| row[key].as_f64().unwrap();
        assert!(
            of("ours_min") <= of("ours") && of("ours") <= of("ours_max"),
            "{row}"
        );
        assert_eq!(
            (of("seeds"), row["experiment"].as_str()),
            (2.0, Some("redskin"))
        );
    }
    let output = hotset()
        .args([
            "lab", "run", "redskin", "--quick", "--seeds", "1", "--memory", "1",
        ])
        .output()
        .unwrap();
    let text = all(&output);
    for word in [
        "claim.gap.hour",
        "not identifiable",
        "fitted: files of the site",
        "too few",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}
