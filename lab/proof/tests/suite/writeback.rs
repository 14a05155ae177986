//! A bounded part of the campaign of write-back.

use proof::campaign::{Campaign, sound};
use proof::writeback::WriteBackCampaign;
use writelog::Cleaning;

const CASES: u64 = 400;

fn campaign(cleaning: Cleaning) {
    let campaign = WriteBackCampaign(cleaning);
    let totals = sound(&campaign, 0..CASES);
    println!("{totals:?}");
    assert_eq!(totals.missed(&campaign), [], "never met");
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
    sound(&WriteBackCampaign(Cleaning::Journaled), [21_010_578]);
}

#[test]
fn a_seed_is_a_case() {
    for (seed, cleaning) in [3, 17, 29].into_iter().zip(Cleaning::ALL) {
        let run = || WriteBackCampaign(cleaning).run(seed);
        assert_eq!(format!("{:?}", run()), format!("{:?}", run()));
    }
}
