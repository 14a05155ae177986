//! The published stress evaluation in its quick form: expected effects are visible.

use crate::perc::EXPERIMENT;
use experiment::verdict::SeedOutcome;

fn quick(seed: u64) -> SeedOutcome {
    (EXPERIMENT.run)(seed, true, &[], &|_| ()).expect("the simulation ends")
}

#[test]
fn a_second_controller_gains_what_it_must_and_a_drive_may_go() {
    let outcome = quick(1);
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
        ["Requests a second", "Mean latency", "The loss of a drive"]
    );
    for (title, svg) in &outcome.charts {
        assert!(svg.contains("polyline"), "{title}");
    }
}

#[test]
fn the_same_seed_says_the_same() {
    let threads = [7, 7, 8].map(|seed| std::thread::spawn(move || quick(seed)));
    let [one, again, other] = threads.map(|thread| thread.join().unwrap());
    assert_eq!(one, again);
    assert_ne!(one, other, "another seed is another run");
}
