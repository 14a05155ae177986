//! Members that refuse to write some sectors.

use crate::common::{Bench, drive, options, run, strike};
use block::{Extent, IoErrorKind, Lba, Sectors};
use raid::{Array, Level, MemberState, Options};
use sim::{FaultEffect, FaultRule, OpFilter, When};

/// Runs `test` on an array of which member 1 answers its first write of data, or all, so.
fn refusing(
    (level, members): (Level, &'static [usize]),
    (when, kind): (When, IoErrorKind),
    test: impl AsyncFn(Bench, Array) + Clone + 'static,
) {
    let (mut sim, disks) = run(1, 1, &[8; 4], async move |bench| {
        let array = bench.create(level, members, &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let rule = FaultRule {
        disk: disks[1],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(8192), Sectors(4096))),
        when,
        effect: FaultEffect::Fail(kind),
    };
    strike(&mut sim, vec![rule]);
    drive(&mut sim, &disks, async move |bench| {
        let again = Options {
            rewrites: 2,
            ..options()
        };
        let members = bench.candidates(members);
        let array = bench.assemble_with(members, again).await;
        test(bench, array.unwrap()).await;
    });
}

const LEVELS: [(Level, &[usize]); 3] = [
    (Level::Raid1, &[0, 1]),
    (Level::Raid10, &[0, 1, 2, 3]),
    (Level::Raid5, &[0, 1, 2]),
];

#[test]
fn a_write_that_the_medium_takes_the_second_time_costs_no_member() {
    for level in LEVELS {
        refusing(
            level,
            (When::Nth(1), IoErrorKind::Media),
            async |bench, array| {
                let end = array.report().sectors.0 / 64 * 64;
                for at in (0..end).step_by(64) {
                    bench.write(&array, at, 64, 3).await.unwrap();
                }
                let report = array.report();
                let in_sync = |m: &raid::MemberReport| m.state == MemberState::InSync;
                assert!(report.members.iter().all(in_sync), "{:?}", array.events().0);
                assert_eq!(report.members[1].counts.write_errors, 1);
                array.fail(0).await.unwrap();
                for at in (0..end).step_by(64) {
                    assert!(bench.holds(&array, at, 64, 3).await, "{at}");
                }
            },
        );
    }
}

#[test]
fn a_member_that_never_takes_a_write_is_left_behind() {
    for kind in [IoErrorKind::Media, IoErrorKind::ReadOnly] {
        refusing(LEVELS[0], (When::Always, kind), async |bench, array| {
            let end = array.report().sectors.0 / 64 * 64;
            for at in (0..end).step_by(64) {
                bench.write(&array, at, 64, 3).await.unwrap();
            }
            assert!(array.report().members[1].state.is_failed());
        });
    }
}

/// A layer above would otherwise take an array that has lost too much for bad sectors.
#[test]
fn a_write_that_meets_two_lost_members_says_that_the_array_is_gone() {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 512, 1).await.unwrap();
        array.close().await.unwrap();
    });
    for kind in [IoErrorKind::Media, IoErrorKind::Gone] {
        let rule = |disk| FaultRule {
            disk,
            ops: OpFilter::Reads,
            within: Some(Extent::new(Lba(4096), Sectors(4096))),
            when: When::Always,
            effect: FaultEffect::Fail(kind),
        };
        strike(&mut sim, disks[..2].iter().copied().map(rule).collect());
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            let error = bench.write(&array, 3, 2, 2).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(array.report().down.is_some(), kind == IoErrorKind::Gone);
        });
    }
}
