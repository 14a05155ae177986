//! A bounded part of the crash laboratory.

use proof::campaign::{Campaign, sound};
use proof::crash::{
    CrashCampaign, CrashCase, CrashImage, FlipVerdict, Structure, flips, run, sweep,
};

const CASES: u64 = 300;

#[test]
fn daemons_that_are_killed_lose_and_make_up_nothing() {
    let totals = sound(&CrashCampaign, 0..CASES);
    println!("{totals:?}");
    assert_eq!(totals.missed(&CrashCampaign), [], "never met");
}

/// `docs/crash-laboratory.md` describes the engine's faults that these seeds found.
#[test]
fn seeds_that_found_something_stay_right() {
    for seed in [730437, 818353, 871920, 879713, 881410, 954915] {
        let wrong = run(&CrashCase::plain(seed)).violation;
        assert_eq!(wrong, None, "plain seed {seed}");
    }
    let seeds = [
        3942, 7967, 14613, 17516, 21207, 22391, 25936, 31117, 32295, 40738, 50941, 73681, 490038,
    ];
    sound(&CrashCampaign, seeds);
}

/// `make soak` cuts at every boundary.
#[test]
fn every_fifth_boundary_of_a_short_case_can_be_the_last() {
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    let swept = sweep(3, 5, threads);
    assert!(swept.cuts > 100, "{}", swept.cuts);
    assert!(swept.failed.is_none(), "{:#?}", swept.failed);
}

#[test]
fn a_seed_is_a_case() {
    for seed in [3, 17] {
        let run = || CrashCampaign.run(seed);
        assert_eq!(format!("{:?}", run()), format!("{:?}", run()));
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_or_harmless() {
    let flips = flips(0..500);
    println!("{flips:#?}");
    assert_eq!(flips.violations, []);
    assert_eq!(flips.missed(), [], "no bit of these was flipped");
    assert_eq!(flips.images, 2);
    for structure in [
        Structure::Journal,
        Structure::Map,
        Structure::Checksums,
        Structure::Data,
    ] {
        let outcome = flips.structures[&structure];
        assert!(outcome.counted > 5, "{structure:?}: {outcome:?}");
    }
}

/// The canary of flips: forges damage that the examination must find, as no flip can.
#[test]
fn marks_that_were_sealed_without_their_bits_are_seen_by_what_is_served() {
    for seed in [1, 3] {
        let mut image = CrashImage::new(seed);
        assert_eq!(image.examine(seed), FlipVerdict::Harmless);
        image.forge();
        let verdict = image.examine(seed);
        assert!(matches!(verdict, FlipVerdict::Wrong(_)), "{verdict:?}");
    }
}
