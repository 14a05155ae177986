//! A pool that version 1 of the format wrote is opened. It loses no line but those in the place of
//! the table areas, and then remembers more volumes than before.
//!
//! `former/pool` and `former/witness` are the contents of [`Place`]'s devices from version 1: the
//! volumes `volume` and `other`, and all 124 lines in use. Each line has one byte: the number of
//! the line and one. The pool was closed in order, with a checkpoint, and records in its log after
//! that.

use crate::place::{LINE, Place, Rig, cut_off};
use block::{Lba, Sectors};
use cache::{Counter, DeviceFindings};
use sim::RunOutcome;

const POOL: &[u8] = include_bytes!("former/pool");
const WITNESS: &[u8] = include_bytes!("former/witness");
/// Lines before, and lines beside the table areas.
const LINES: [u64; 2] = [124, 122];
const ORIGIN_LINES: u64 = 140;

/// Unpacks literal bytes and runs of one byte, in turn, each with its length before it.
fn unpacked(mut packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !packed.is_empty() {
        let mut take = |n: usize| packed.split_off(..n).unwrap();
        let len = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
        let literal = len(take(4));
        bytes.extend(take(literal));
        let run = len(take(4));
        let byte = take(1)[0];
        bytes.resize(bytes.len() + run, byte);
    }
    bytes
}

fn former(seed: u64) -> Place {
    let mut place = Place::new(seed, 1);
    let origin = (0..ORIGIN_LINES).flat_map(|line| vec![line as u8 + 1; LINE as usize * 512]);
    let (pool, witness) = (place.pool[0], place.witness);
    place.patch(place.origin, Lba(0), origin.collect());
    place.patch(pool, Lba(0), unpacked(POOL));
    place.patch(witness, Lba(0), unpacked(WITNESS));
    place
}

/// Returns the number of lines that came back.
async fn warm(rig: &Rig) -> u64 {
    let found = rig.opened.devices[0].found;
    assert!(matches!(found, DeviceFindings::Lines { .. }), "{found:?}");
    rig.cache.warmed().await;
    rig.cache.check();
    rig.count(Counter::LinesRestored)
}

async fn reads_right(rig: &Rig) {
    for line in 0..ORIGIN_LINES {
        rig.expect(line * LINE, LINE, line as u8 + 1).await;
    }
    rig.cache.settle().await;
}

#[test]
fn a_pool_of_the_former_version_keeps_its_lines_and_remembers_more_volumes() {
    let mut place = former(1);
    place.done(&[0], |rig| async move {
        assert_eq!(warm(&rig).await, LINES[1]);
        assert_eq!(rig.cache.origin_record("volume"), [7; 100]);
        assert_eq!(rig.cache.origin_record("other"), [9; 300]);
        reads_right(&rig).await;
        for number in 0..57 {
            let name = format!("volume {number}");
            rig.add(&name, rig.origin, Some(Sectors(8)));
            assert!(rig.cache.set_origin_record(&name, &[number; 2048]));
        }
        rig.cache.remember().await;
        rig.end().await;
    });
    place.done(&[0], |rig| async move {
        assert_eq!(warm(&rig).await, LINES[1]);
        assert_eq!(rig.cache.remembered().len(), 59);
        for number in 0..57 {
            let name = format!("volume {number}");
            assert_eq!(rig.cache.origin_record(&name), [number; 2048]);
        }
        reads_right(&rig).await;
        rig.end().await;
    });
}

#[test]
fn a_power_cut_amid_the_upgrade_leaves_a_pool_that_opens() {
    let mut cuts = 0;
    for step in 1..200 {
        let mut place = former(step);
        place.cut_after(step);
        let outcome = place.run(&[0], |rig| async move {
            rig.cache.warmed().await;
            for number in 0..40 {
                let name = format!("volume {number}");
                rig.add(&name, rig.origin, Some(Sectors(8)));
                assert!(rig.cache.set_origin_record(&name, &[number; 2048]));
            }
            rig.cache.remember().await;
        });
        if outcome == RunOutcome::Done {
            break;
        }
        cuts = step;
        cut_off(&mut place, outcome);
        let again = place.run(&[0], |rig| async move {
            assert_eq!(warm(&rig).await, LINES[1]);
            let volumes = rig.cache.remembered().len();
            assert!([2, 42].contains(&volumes), "{volumes}");
            reads_right(&rig).await;
        });
        assert_eq!(again, RunOutcome::Done, "step {step}");
    }
    assert!((20..199).contains(&cuts), "{cuts}");
}

#[test]
fn former_devices_had_two_lines_more() {
    let plan = layout::LayoutPlan::new(Sectors::from_mib(8), LINE as u32 / 8).unwrap();
    assert_eq!([plan.places, plan.slots].map(u64::from), LINES);
}
