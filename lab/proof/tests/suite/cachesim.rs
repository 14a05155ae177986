//! A bounded part of the cache engine's campaign.

use proof::cachesim::{CacheSimTotals, replay, run};

const SEEDS: u64 = 400;

#[test]
fn the_cache_agrees_with_its_model() {
    let mut totals = CacheSimTotals::default();
    for seed in 0..SEEDS {
        let report = run(seed);
        let wrong = report.violation.as_deref();
        assert_eq!(wrong, None, "replay: {}", replay(seed));
        totals.add(seed, report);
    }
    println!("{totals}");
    assert_eq!(totals.missed(), [], "these classes were never met");
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 17] {
        assert_eq!(format!("{:?}", run(seed)), format!("{:?}", run(seed)));
    }
}
