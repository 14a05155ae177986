//! A bounded part of the crash laboratory.

use lab::crash::{Case, Length, Totals, replay, run, sweep};

const CASES: u64 = 300;

#[test]
fn daemons_that_are_killed_lose_and_make_up_nothing() {
    let mut totals = Totals::default();
    for seed in 0..CASES {
        let report = run(&Case::new(seed, Length::Long)).report;
        let wrong = report.violation.as_deref();
        assert_eq!(wrong, None, "replay: {}", replay(seed));
        totals.add(seed, report);
    }
    println!("{:#?}", totals.summary(1.0, replay));
    assert_eq!(totals.missed(), [], "no cut landed in these");
}

#[test]
fn every_boundary_of_a_short_case_can_be_the_last() {
    let swept = sweep(3);
    assert!(swept.cuts > 100, "{}", swept.cuts);
    assert!(swept.failed.is_none(), "{:#?}", swept.failed);
}

#[test]
fn a_seed_is_a_case() {
    for seed in [3, 17] {
        let report = || run(&Case::new(seed, Length::Long)).report;
        assert_eq!(format!("{:?}", report()), format!("{:?}", report()));
    }
}
