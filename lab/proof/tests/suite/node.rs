//! A bounded part of the campaign of nodes.

mod devices;
mod kept;
mod pauses;

use proof::campaign::{Campaign, sound};
use proof::nodesim::NodeCampaign;
use proof::nodesim::write_back::LivesCampaign;

const CASES: u64 = 25;

#[test]
fn nodes_that_are_changed_and_lose_disks_lose_and_make_up_nothing() {
    sound(&NodeCampaign, 0..CASES);
}

#[test]
fn lives_of_a_write_back_volume_lose_and_make_up_nothing() {
    sound(&LivesCampaign, 0..CASES);
}

/// `docs/node-campaign.md` describes the faults, of the node or the campaign, that these seeds
/// found.
#[test]
fn seeds_that_found_something_stay_right() {
    sound(&NodeCampaign, [8, 108, 6170, 50378, 31000049]);
    let lives = [34000149, 34001846, 34007082, 34013190, 34015792, 34021060];
    sound(&LivesCampaign, lives);
}

#[test]
fn a_seed_is_a_case() {
    let [one, two] = [3, 3].map(|seed| NodeCampaign.run(seed));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
    let [one, two] = [3, 3].map(|seed| LivesCampaign.run(seed));
    assert_eq!(format!("{one:?}"), format!("{two:?}"));
}
