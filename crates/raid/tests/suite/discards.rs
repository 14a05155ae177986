//! Hints that bytes are not needed: disks answer them differently, or not at all.

use crate::common::{drive, run, strike};
use block::{Device, Extent, IoErrorKind, Lba, Sectors};
use raid::{Level, MemberState};
use sim::{FaultEffect, FaultRule, OpFilter, When};

const LEVELS: [(Level, &[usize]); 3] = [
    (Level::Raid1, &[0, 1]),
    (Level::Raid10, &[0, 1, 2, 3]),
    (Level::Raid5, &[0, 1, 2]),
];

/// A simulated disk keeps discarded data, or reads as zeroes, by chance.
#[test]
fn a_trim_leaves_copies_that_agree() {
    for (level, members) in LEVELS {
        run(1, 1, &[8; 4], async move |bench| {
            let array = bench.create(level, members, &[]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            for at in (0..4096).step_by(128) {
                let extent = Extent::new(Lba(at), Sectors(128));
                array.discard(extent).await.unwrap();
            }
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?}");
        });
    }
}

#[test]
fn a_member_that_takes_no_discard_stays() {
    for (level, members) in &LEVELS[..2] {
        let (mut sim, disks) = run(1, 1, &[8; 4], async move |bench| {
            let array = bench.create(*level, members, &[]).await.unwrap();
            array.close().await.unwrap();
        });
        let rule = FaultRule {
            disk: disks[1],
            ops: OpFilter::All,
            within: Some(Extent::new(Lba(8192), Sectors(4096))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Unsupported),
        };
        strike(&mut sim, vec![rule]);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(members).await.unwrap();
            let extent = array.geometry().extent();
            array.discard(extent).await.unwrap();
            let states = array.report().members.into_iter().map(|m| m.state);
            let states: Vec<_> = states.collect();
            assert!(
                states.iter().all(|state| *state == MemberState::InSync),
                "{level:?}: {:?}",
                array.events().0
            );
        });
    }
}
