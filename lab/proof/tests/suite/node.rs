//! A bounded part of the campaign of nodes.

mod devices;
mod pauses;

use proof::nodesim::{replay, run, write_back};

const CASES: u64 = 25;

fn all_right(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let wrong = run(seed).violation;
        assert_eq!(wrong, None, "replay: {}", replay(seed));
    }
}

#[test]
fn nodes_that_are_changed_and_lose_disks_lose_and_make_up_nothing() {
    all_right(0..CASES);
}

#[test]
fn lives_of_a_write_back_volume_lose_and_make_up_nothing() {
    for seed in 0..CASES {
        let wrong = write_back::run(seed).violation;
        assert_eq!(wrong, None, "replay: {}", write_back::replay(seed));
    }
}

/// `docs/node-campaign.md` describes the faults, of the node or the campaign, that these seeds
/// found.
#[test]
fn seeds_that_found_something_stay_right() {
    all_right([8, 108, 6170, 50378, 31000049].into_iter());
}

#[test]
fn a_seed_is_a_case() {
    assert_eq!(format!("{:?}", run(3)), format!("{:?}", run(3)));
    let [one, two] = [3, 3].map(write_back::run);
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
}
