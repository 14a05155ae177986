//! A bounded part of the arrays' campaign.

use proof::campaign::{Campaign, sound};
use proof::raidsim::{ArrayCampaign, Class};

const SEEDS: u64 = 300;
/// Seeds that once found a fault.
const FOUND: [u64; 21] = [
    626, 1376, 1387, 1623, 1807, 1825, 2573, 2875, 4400, 4621, 4843, 5619, 6647, 14025, 14745,
    15538, 23657, 29704, 98, 503686, 505028,
];
/// Seeds with a trouble that once found a fault.
const FOUND_IN_TROUBLE: [u64; 43] = [
    486, 4457, 780, 1294, 2195, 4404, 6001171, 6006493, 6007976, 6008649, 6009279, 7002294,
    7006129, 7009071, 8589, 9007134, 9010707, 10101647, 10206883, 10229241, 11007826, 12079995,
    466, 497, 615, 636, 662, 1073, 1565, 1658, 2001, 2510, 203137, 203590, 205859, 403362, 2010735,
    2017344, 3002459, 32006814, 32005819, 32033818, 40014289,
];

#[test]
fn arrays_agree_with_their_model() {
    let campaign = ArrayCampaign::default();
    let totals = sound(&campaign, 0..SEEDS);
    println!("{totals:?}");
    // The rarest are met by longer campaigns.
    let rare = [
        Class::CutTwice,
        Class::Unreadable,
        Class::LossInRebuild,
        Class::RefusedLost,
    ];
    let mut missed = totals.missed(&campaign);
    let of_all = |class: &Class| (*class as usize) <= Class::Scrub as usize;
    missed.retain(|class| !rare.contains(class) && of_all(class));
    assert_eq!(missed, [], "these classes were never met");
}

#[test]
fn what_was_found_stays_mended() {
    let plain = ArrayCampaign {
        plain: true,
        only: None,
    };
    sound(&plain, FOUND);
    sound(&ArrayCampaign::default(), FOUND_IN_TROUBLE);
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 17] {
        let run = || ArrayCampaign::default().run(seed);
        assert_eq!(format!("{:?}", run()), format!("{:?}", run()));
    }
}
