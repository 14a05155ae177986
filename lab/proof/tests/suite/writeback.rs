//! A bounded part of the campaign of write-back.

use proof::writeback::{WriteBackCase, WriteBackTotals, replay, run};
use writelog::Cleaning;

const CASES: u64 = 400;

fn campaign(cleaning: Cleaning) {
    let mut totals = WriteBackTotals::default();
    for seed in 0..CASES {
        let report = run(&WriteBackCase::new(seed, cleaning));
        let wrong = report.violation.as_deref();
        assert_eq!(wrong, None, "replay: {}", replay(seed, cleaning));
        totals.add(seed, report);
    }
    println!("{:#?}", totals.summary(1.0, cleaning));
    let missed = totals.missed(cleaning);
    assert!(missed.is_empty(), "never met: {missed:?}");
}

#[test]
fn what_was_acknowledged_survives_and_the_origin_alone_is_an_earlier_state() {
    campaign(Cleaning::Ordered);
}

#[test]
fn what_was_acknowledged_survives_and_a_replay_makes_the_origin_an_earlier_state() {
    campaign(Cleaning::Journaled);
}

#[test]
fn what_was_acknowledged_survives_without_order_and_the_origin_lacks_no_more_than_it_may() {
    campaign(Cleaning::Coalesced);
}

/// One copy was lost, which was not known durably yet, and the other was missing at the next
/// start: the journal had a record that the first had lost with its cache.
#[test]
fn a_journal_is_never_ahead_of_a_copy_that_is_trusted() {
    let report = run(&WriteBackCase::new(21_010_578, Cleaning::Journaled));
    assert_eq!(report.violation, None);
}

#[test]
fn a_seed_is_a_case() {
    for (seed, cleaning) in [3, 17, 29].into_iter().zip(Cleaning::ALL) {
        let report = || run(&WriteBackCase::new(seed, cleaning));
        assert_eq!(format!("{:?}", report()), format!("{:?}", report()));
    }
}
