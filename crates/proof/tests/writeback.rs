//! A bounded part of the campaign of write-back.

use proof::writeback::{Case, Totals, replay, run};

const CASES: u64 = 400;

#[test]
fn what_was_acknowledged_survives_and_the_origin_alone_is_an_earlier_state() {
    let mut totals = Totals::default();
    for seed in 0..CASES {
        let report = run(&Case::new(seed));
        let wrong = report.violation.as_deref();
        assert_eq!(wrong, None, "replay: {}", replay(seed));
        totals.add(seed, report);
    }
    println!("{:#?}", totals.summary(1.0));
    assert!(
        totals.missed().is_empty(),
        "never met: {:?}",
        totals.missed()
    );
}

#[test]
fn a_seed_is_a_case() {
    for seed in [3, 17] {
        let report = || run(&Case::new(seed));
        assert_eq!(format!("{:?}", report()), format!("{:?}", report()));
    }
}
