//! A write-intent bitmap against holders that may have any of the images that are under way, and
//! against a count of the writes in each region.

use crate::{Intent, Regions, StateImage};
use proptest::prelude::*;
use std::collections::BTreeSet;

const REGIONS: usize = 5;

fn set(regions: &[usize]) -> (Regions, BTreeSet<usize>) {
    let mut set = Regions::none(100);
    let all: BTreeSet<_> = regions.iter().copied().collect();
    for region in &all {
        assert!(set.add(*region) && !set.add(*region));
    }
    (set, all)
}

fn holds(regions: &Regions, model: &BTreeSet<usize>) -> bool {
    regions.count() == model.len()
        && regions.is_empty() == model.is_empty()
        && regions.iter().eq(model.iter().copied())
}

proptest! {
    #[test]
    fn regions_are_a_set(
        ours in prop::collection::vec(0..100_usize, 0..30),
        theirs in prop::collection::vec(0..100_usize, 0..30),
    ) {
        let ((a, model_a), (b, model_b)) = (set(&ours), set(&theirs));
        prop_assert!(holds(&a, &model_a));
        let mut all = a.clone();
        all.merge(&b);
        prop_assert!(holds(&all, &(&model_a | &model_b)));
        prop_assert_eq!(a.are_in(&b), model_a.is_subset(&model_b));
        prop_assert!(a.are_in(&all) && b.are_in(&all));
        theirs.iter().for_each(|region| all.remove(*region));
        prop_assert!(holds(&all, &(&model_a - &model_b)));
        let read = Regions::from_words(100, a.words().to_vec());
        prop_assert_eq!(read, Some(a));
        prop_assert_eq!(Regions::from_words(129, b.words().to_vec()), None);
    }
}

#[test]
fn all_regions_are_no_more_than_there_are() {
    for count in [0, 1, 63, 64, 65, 100, 128] {
        let mut all = Regions::none(count);
        all.add_all();
        assert!(all.iter().eq(0..count), "{count}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    /// The write that began first, of those in flight, ends.
    End,
    Mark(usize),
    Image,
    /// Every holder has the image.
    Written,
    /// One holder has the image, and no more will.
    GivenUp,
    /// Clears regions that have been idle for so long.
    Clear(u64),
    NoHolders,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..REGIONS).prop_map(Step::Begin),
        3 => Just(Step::End),
        1 => (0..REGIONS).prop_map(Step::Mark),
        3 => Just(Step::Image),
        3 => Just(Step::Written),
        1 => Just(Step::GivenUp),
        2 => (0..4_u64).prop_map(Step::Clear),
        1 => Just(Step::NoHolders),
    ]
}

/// Plays steps beside the images that holders may have: each is on one of them, or may be.
fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let intent = Intent::new(REGIONS);
    let mut may_have = vec![Regions::none(REGIONS)];
    let mut image: Option<StateImage<'_, Regions>> = None;
    let (mut writes, mut ended) = (Vec::new(), [0; REGIONS]);
    for (step, now) in steps.iter().zip(1..) {
        match *step {
            Step::Begin(region) => {
                let new = !intent.marked().has(region);
                prop_assert_eq!(intent.begin(region), new);
                writes.push(region);
            }
            Step::End if !writes.is_empty() => {
                let region = writes.remove(0);
                ended[region] = now;
                intent.end(region, now);
            }
            Step::Mark(region) => {
                intent.mark(region);
            }
            Step::Image if image.is_none() => {
                let begun = intent.image();
                may_have.push(begun.clone());
                image = Some(begun);
            }
            Step::Written => {
                if let Some(image) = image.take() {
                    may_have = vec![image.clone()];
                    let _proof = image.written();
                }
            }
            Step::GivenUp => image = None,
            Step::Clear(for_long) => {
                let before = (now + 1_u64).saturating_sub(for_long);
                let idle = intent.idle(before);
                let is_idle = |r: &usize| !writes.contains(r) && ended[*r] < before;
                let marked: Vec<_> = intent.marked().iter().collect();
                let expected: Vec<_> = marked.into_iter().filter(is_idle).collect();
                prop_assert_eq!(&idle, &expected);
                // The caller that clears may have waited since.
                if let Some(region) = idle.first() {
                    intent.begin(*region);
                    writes.push(*region);
                }
                let cleared = intent.clear(&idle, before);
                prop_assert_eq!(cleared, idle.len().saturating_sub(1));
            }
            Step::NoHolders if image.is_none() => {
                intent.no_holders();
                may_have.clear();
            }
            _ => {}
        }
        for region in 0..REGIONS {
            let known = intent.proof(region..region + 1).is_some();
            let certain = may_have.iter().all(|held| held.has(region));
            prop_assert_eq!(known, certain, "region {} after {:?}", region, step);
        }
        prop_assert!(writes.iter().all(|region| intent.marked().has(*region)));
        let due = !may_have.iter().all(|held| intent.marked().are_in(held));
        prop_assert_eq!(intent.is_due(), due);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_region_is_known_to_be_marked_if_no_holder_can_lack_it(
        steps in prop::collection::vec(step(), 0..60)
    ) {
        play(&steps)?;
    }
}

#[test]
fn what_is_found_is_marked_and_known_to_nobody() {
    let intent = Intent::new(REGIONS);
    let mut found = Regions::none(REGIONS);
    found.add(3);
    intent.found(&found);
    assert!(intent.marked().iter().eq([3]) && intent.is_due());
    assert!(intent.proof(3..4).is_none());
    intent.found_all();
    assert_eq!(intent.marked().count(), intent.regions());
}
