//! The printed figures of the shipped data files against their source collection, where
//! `HOTSET_SHARED` names the folder with the collection.

use crate::registry::named;
use serde_json::Value;

/// The evaluations of the collection, and the experiments that have their figures.
const EVALUATIONS: [(&str, &[&str]); 5] = [
    ("cachecade_web", &["cachecade"]),
    ("nytro_xd_tpch", &["nytro"]),
    ("perc_dual_mirror", &["perc-mail", "perc-oltp"]),
    ("maxiq_web", &["maxiq"]),
    ("redskin_apache", &["redskin"]),
];
/// Results of `perc`, with rows that are made elsewhere.
const OF_PERC: [&str; 7] = [
    "random read IOPS/throughput gain, mirrored dual vs single",
    "sequential read gain",
    "random and sequential write difference",
    "highest IOPS",
    "highest throughput",
    "random read latency",
    "CPU",
];

/// A printed value; of a time of day its minutes.
fn value(of: &Value) -> Option<f64> {
    of.as_f64().or_else(|| {
        let (hours, minutes) = of.as_str()?.split_once(':')?;
        Some(60.0 * hours.parse::<f64>().ok()? + minutes.parse::<f64>().ok()?)
    })
}

/// Published results without a row.
fn missing(evaluation: &Value, experiments: &[&str]) -> Vec<String> {
    let figures = |name: &&str| (named(name).unwrap().figures)().printed;
    let rows = experiments.iter().flat_map(figures);
    let mut values: Vec<f64> = rows.map(|row| row.value).collect();
    let results = evaluation["results"].as_array().unwrap();
    let mut missing = Vec::new();
    for result in results {
        let metric = result["metric"].as_str().unwrap();
        let printed = value(&result["value"]).unwrap();
        match values.iter().position(|value| *value == printed) {
            Some(place) => drop(values.swap_remove(place)),
            None if OF_PERC.contains(&metric) && experiments.contains(&"perc-mail") => {}
            None => missing.push(format!("{metric}: {printed}")),
        }
    }
    missing
}

#[test]
fn every_printed_figure_has_its_row() {
    let Some(folder) = std::env::var_os("HOTSET_SHARED") else {
        println!("skipped: HOTSET_SHARED does not name the folder of reference data");
        return;
    };
    let path = std::path::Path::new(&folder).join("reference/published_figures.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut printed = 0;
    for (id, experiments) in EVALUATIONS {
        let all = all["experiments"].as_array().unwrap();
        let mut evaluation = all.iter().find(|e| e["id"] == id).unwrap().clone();
        assert_eq!(missing(&evaluation, experiments), [""; 0], "{id}");
        printed += evaluation["results"].as_array().unwrap().len();
        // A value that was not printed is seen.
        evaluation["results"][0]["value"] = 0.123.into();
        evaluation["results"][0]["metric"] = "made up".into();
        assert_eq!(
            missing(&evaluation, experiments),
            ["made up: 0.123"],
            "{id}"
        );
    }
    assert_eq!(printed, 143);
}
