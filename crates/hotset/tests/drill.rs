//! The availability drills, in the simulator and on a real daemon.

mod common;

use common::{Place, all, hotset};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn every_drill_is_survived_in_both_worlds() {
    let place = Place::new();
    let page = place.path("drill.html");
    let mut drill = hotset();
    drill
        .args(["drill", "--json", "--directory"])
        .arg(place.path("d"));
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
    assert_eq!((rows.len(), cells.len()), (24, 24), "{cells:#?}");
    for row in &rows {
        assert_eq!(row["errors"], 0, "{row}");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        let rate = row["reads_per_s"].as_f64().unwrap();
        assert_eq!(row["io"] == true, rate > 0.0, "{row}");
        println!("{row}");
    }
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
}
