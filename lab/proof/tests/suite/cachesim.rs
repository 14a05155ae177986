//! A bounded part of the cache engine's campaign.

use proof::cachesim::CacheCampaign;
use proof::campaign::{Campaign, sound};

const SEEDS: u64 = 400;

#[test]
fn the_cache_agrees_with_its_model() {
    let totals = sound(&CacheCampaign, 0..SEEDS);
    println!("{totals:?}");
    let missed = totals.missed(&CacheCampaign);
    assert_eq!(missed, [], "these classes were never met");
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 17] {
        let run = || CacheCampaign.run(seed);
        assert_eq!(format!("{:?}", run()), format!("{:?}", run()));
    }
}
