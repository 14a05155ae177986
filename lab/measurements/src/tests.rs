//! The published stress evaluation in its quick form: expected effects are visible.

use crate::perc::{self, PercReport};

fn quick(seed: u64) -> PercReport {
    perc::run(seed, true, &|_| ()).expect("the simulation ends")
}

#[test]
fn a_second_controller_gains_what_it_must_and_a_drive_may_go() {
    let report = quick(1);
    assert_eq!(
        report.points.len(),
        4 * 2 * 5,
        "every workload, at 1 to 256 threads"
    );
    for point in &report.points {
        assert!(point.iops > 0.0 && point.latency_ms_mean > 0.0, "{point:?}");
        assert!(
            point.latency_ms_p99 >= point.latency_ms_mean * 0.5,
            "{point:?}"
        );
        // As many requests are in flight as there are threads.
        let in_flight = point.iops * point.latency_ms_mean / 1e3;
        let ratio = in_flight / point.threads as f64;
        assert!((0.8..1.2).contains(&ratio), "{ratio}: {point:?}");
    }
    for row in &report.rows {
        println!("{}", perc::cells(row).join(" | "));
        assert_ne!(row.within, Some(false), "{row:?}");
    }
    let judged = report.rows.iter().filter(|row| row.within.is_some());
    assert!(judged.count() >= 7);
    assert!(!report.fitted.is_empty());
    let directory = std::env::temp_dir().join(format!("hotset-perc-{}", std::process::id()));
    perc::write(&report, &directory).unwrap();
    let page = std::fs::read_to_string(directory.join("perc.html")).unwrap();
    advise::page::assert_self_contained(&page);
    for chart in ["rates", "latencies", "loss"] {
        let svg = std::fs::read_to_string(directory.join(format!("perc-{chart}.svg"))).unwrap();
        assert!(svg.contains("polyline") && svg.contains("xmlns"), "{chart}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_same_seed_says_the_same() {
    let text = |report: &PercReport| serde_json::to_string(report).unwrap();
    let threads = [7, 7, 8].map(|seed| std::thread::spawn(move || text(&quick(seed))));
    let [one, again, other] = threads.map(|thread| thread.join().unwrap());
    assert_eq!(one, again);
    assert_ne!(one, other, "another seed is another run");
}
