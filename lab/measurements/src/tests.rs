//! The published stress evaluation in its quick form: expected effects are visible. Then the page
//! with the place of each line of the sources, against the figures and the collection of them where
//! `HOTSET_SHARED` names its folder.

use crate::perc::EXPERIMENT;
use experiment::registry::ALL;
use experiment::verdict::SeedOutcome;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

const SOURCES: &str = include_str!("../../../docs/experiments/sources.md");

fn quick(seed: u64) -> SeedOutcome {
    (EXPERIMENT.run)(seed, true, &[], &|_| ()).expect("the simulation ends")
}

/// The quick form of seed 1, run once for all tests.
static FIRST: LazyLock<SeedOutcome> = LazyLock::new(|| quick(1));

#[test]
fn a_second_controller_gains_what_it_must_and_a_drive_may_go() {
    let outcome = &*FIRST;
    let points = &outcome.tables[0].lines;
    assert_eq!(
        points.len(),
        4 * 2 * 5,
        "every workload, at 1 to 256 threads"
    );
    for point in points {
        let cell = |column: usize| point[column].parse::<f64>().unwrap();
        let (threads, iops, mean_ms, p99_ms) = (cell(2), cell(4), cell(6), cell(7));
        assert!(iops > 0.0 && p99_ms >= mean_ms * 0.5, "{point:?}");
        // As many requests are in flight as there are threads.
        let ratio = iops * mean_ms / 1e3 / threads;
        assert!((0.8..1.2).contains(&ratio), "{ratio}: {point:?}");
    }
    let of = |figure: &str| outcome.values[figure];
    assert!((80.0..=111.0).contains(&of("gain.random")), "{outcome:?}");
    assert!(of("gain.sequential") > 30.0 && of("claim.depth") > 1.0);
    assert!(of("difference.sequential.all") < 1.0);
    assert!((0.9..1.1).contains(&of("claim.loss.reads")), "{outcome:?}");
    assert_eq!(of("claim.loss.errors"), 0.0);
    let titles: Vec<&str> = outcome.charts.iter().map(|(title, _)| &title[..]).collect();
    assert_eq!(
        titles,
        [
            "Requests a second",
            "Megabytes a second",
            "Mean latency",
            "The loss of a drive"
        ]
    );
    assert_eq!(of("claim.cells"), 12.0);
    assert_eq!(outcome.tables[2].lines.len(), 12);
    let is_os = |line: &&Vec<String>| line[0].contains("(os)");
    assert_eq!(outcome.tables[2].lines.iter().filter(is_os).count(), 4);
    // Both sides together are the rate of the sweep.
    for line in &outcome.tables[1].lines {
        let rates = |line: &[String]| line.iter().map(|cell| cell.parse::<f64>().unwrap()).sum();
        let both: f64 = rates(&line[1..]);
        let whole = |p: &&Vec<String>| p[..3] == ["sequential read", "2", line[0].as_str()];
        let whole: f64 = points.iter().find(whole).unwrap()[5].parse().unwrap();
        assert!((both - whole).abs() < 0.2, "{line:?}: {whole}");
    }
    for (title, svg) in &outcome.charts {
        assert!(svg.contains("polyline"), "{title}");
    }
}

#[test]
fn the_same_seed_says_the_same() {
    let threads = [1, 2].map(|seed| std::thread::spawn(move || quick(seed)));
    let [again, other] = threads.map(|thread| thread.join().unwrap());
    assert_eq!(*FIRST, again);
    assert_ne!(again, other, "another seed is another run");
}

/// All names that `{a,b}` in a pattern stands for.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return vec![pattern.to_owned()];
    };
    let (among, after) = rest.split_once('}').expect("a brace is closed");
    let each = among.split(',');
    each.flat_map(|one| expanded(&format!("{before}{one}{after}")))
        .collect()
}

#[test]
fn every_figure_has_its_place_on_the_page_of_the_sources() {
    let code = SOURCES.split('`').skip(1).step_by(2);
    let named: BTreeSet<String> = code.flat_map(expanded).collect();
    let figures = [&EXPERIMENT].into_iter().chain(&ALL);
    let figures = figures.flat_map(|experiment| (experiment.figures)().printed);
    let figures: BTreeSet<String> = figures.map(|printed| printed.figure).collect();
    let missing: Vec<_> = figures.difference(&named).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A name that looks like a figure's is one.
    let is_figure = |name: &&String| {
        let first = name.split('.').next().unwrap_or_default();
        let of = |known: &String| known.split('.').next() == Some(first) && known.contains('.');
        name.contains('.') && figures.iter().any(of)
    };
    let unknown: Vec<_> = named.difference(&figures).filter(is_figure).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_claim_of_the_collection_has_its_place() {
    let Some(folder) = std::env::var_os("HOTSET_SHARED") else {
        println!("skipped: HOTSET_SHARED does not name the folder of reference data");
        return;
    };
    let path = std::path::Path::new(&folder).join("reference/published_figures.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let evaluations = all["experiments"].as_array().unwrap();
    let claims = evaluations
        .iter()
        .flat_map(|e| e["claims"].as_array().unwrap());
    let claims: Vec<&str> = claims.map(|claim| claim["id"].as_str().unwrap()).collect();
    assert_eq!(claims.len(), 25);
    let missing = claims.iter().filter(|claim| !SOURCES.contains(**claim));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
}
