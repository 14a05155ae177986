//! Canaries of the rows. Then the printed figures of the shipped data files against their source
//! collection, where `HOTSET_SHARED` names the folder with the collection.

use crate::figures::{FigureStatus, FigureVerdict};
use crate::models;
use crate::parameters::Settings;
use crate::registry::{ALL, named};
use crate::verdict::{SEEDS, SeedOutcome, rows};
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

/// Rows of a quick form with these settings that are missed where those of the form as it is stand
/// for the printed ones.
fn turned(name: &str, settings: &Settings<'_>) -> Vec<String> {
    let experiment = named(name).unwrap();
    let runs = |settings: &Settings<'_>| -> Vec<SeedOutcome> {
        let run = |seed| (experiment.run)(seed, true, settings, &|_| ()).unwrap();
        (1..=SEEDS).map(run).collect()
    };
    let right = runs(&[]);
    let mut figures = (experiment.figures)();
    for printed in &mut figures.printed {
        let values = right.iter().map(|run| run.values[&printed.figure]);
        printed.value = values.sum::<f64>() / SEEDS as f64;
        printed.status = FigureStatus::Blind;
        (printed.bound, printed.within) = (None, None);
    }
    let missed = |runs: &[SeedOutcome]| -> Vec<String> {
        let rows = rows(name, &figures, runs, false, 0.0).unwrap().into_iter();
        let missed = rows.filter(|row| row.verdict == Some(FigureVerdict::Missed));
        missed.map(|row| row.figure).collect()
    };
    assert_eq!(missed(&right), [""; 0]);
    missed(&runs(settings))
}

#[test]
fn canary_a_wrong_drive_turns_a_row() {
    let turned = turned("nytro", &[("flash_cost", 3.0)]);
    assert!(turned.iter().any(|row| row == "latency.mean"), "{turned:?}");
}

#[test]
fn canary_another_model_of_the_drive_turns_a_row() {
    let slower = models::number("SAS7K2").unwrap();
    let turned = turned("perc-oltp", &[("disk_model", slower)]);
    assert!(turned.iter().any(|row| row == "tps"), "{turned:?}");
}

#[test]
fn canary_a_wrong_number_of_users_turns_a_row() {
    let turned = turned("perc-oltp", &[("users", 125.0)]);
    assert!(turned.iter().any(|row| row == "latency"), "{turned:?}");
}

#[test]
fn canary_a_generator_that_sends_half_of_the_requests_turns_a_row() {
    let turned = turned("redskin", &[("sent", 0.5)]);
    for row in ["hour.hdd.elevator.tt", "hour.x25-m.elevator.tt"] {
        assert!(turned.iter().any(|turned| turned == row), "{turned:?}");
    }
}

#[test]
fn every_device_under_test_has_a_cost_that_can_be_set() {
    for experiment in &ALL {
        for device in (experiment.figures)()
            .printed
            .iter()
            .filter_map(|p| p.device)
        {
            assert_eq!((experiment.check)(&[(device.cost(), 2.0)]), Ok(()));
        }
        let unknown = (experiment.check)(&[("made up", 2.0)]).unwrap_err();
        assert!(unknown.contains("_cost"), "{unknown}");
    }
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
