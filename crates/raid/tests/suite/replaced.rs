//! Members in sync that are replaced: they serve until the new one is whole.

use crate::common::{Bench, after_power, drive, run, slow, spoil, strike};
use block::{Device, Extent, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Array, Level, Options};
use sim::{Domain, FaultEffect, FaultRule, OpFilter, When};

const LEVELS: [(Level, usize); 3] = [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)];
const SECTORS: u64 = 4096;

/// Returns the beginning of the data on the first member, which holds data of the array there.
fn data_at(level: Level) -> u64 {
    if level == Level::Raid5 { 4096 } else { 2048 }
}

/// Writes 1 everywhere and closes the array.
async fn fill(bench: &Bench, level: Level, members: usize) {
    let all: Vec<_> = (0..members).collect();
    let array = bench.create(level, &all, &[]).await.unwrap();
    bench.write(&array, 0, SECTORS, 1).await.unwrap();
    array.close().await.unwrap();
}

async fn holds_all(bench: &Bench, array: &Array, what: &str) {
    for at in (0..SECTORS).step_by(64) {
        assert!(bench.holds(array, at, 64, 1).await, "{what}, {at}");
    }
}

async fn begin(bench: &Bench, array: &Array, new: usize) {
    let new = bench.candidate(new);
    array.replace(1, new, bench.uuid(), true).await.unwrap();
}

/// A planned replacement while another member has a sector that cannot be read.
#[test]
fn nothing_is_lost_if_a_member_in_sync_is_replaced() {
    for (level, members) in LEVELS {
        let (mut sim, disks) = run(1, 1, &vec![8; members + 1], async move |bench| {
            fill(&bench, level, members).await;
        });
        let bad = Extent::new(Lba(data_at(level) + 64), Sectors(1));
        spoil(&mut sim, vec![(disks[0], bad)]);
        drive(&mut sim, &disks, async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let array = bench.assemble(&all).await.unwrap();
            begin(&bench, &array, members).await;
            assert_eq!(array.report().replaced, Some(1));
            bench.settled(&array).await;
            let report = array.report();
            assert!(report.bad.is_empty(), "{level:?}: {:?}", report.bad);
            let name = format!("disk-{members}");
            assert_eq!(report.members[1].device.as_deref(), Some(&*name));
            holds_all(&bench, &array, &format!("{level:?}")).await;
            array.close().await.unwrap();
            drop(array);
            // The old one is no member any more, and nothing is missing without it.
            let now: Vec<_> = (0..=members).filter(|disk| *disk != 1).collect();
            let array = bench.assemble(&now).await.unwrap();
            assert!(array.report().members.iter().all(|m| !m.state.is_failed()));
            array.scrub(true).await.unwrap();
            holds_all(&bench, &array, &format!("{level:?} again")).await;
        });
    }
}

/// Where the old member cannot be read, the new one gets the data of the others.
#[test]
fn what_the_replaced_member_cannot_read_comes_from_the_others() {
    for (level, members) in LEVELS {
        let (mut sim, disks) = run(1, 1, &vec![8; members + 1], async move |bench| {
            fill(&bench, level, members).await;
        });
        let bad = Extent::new(Lba(data_at(level) + 64), Sectors(9));
        spoil(&mut sim, vec![(disks[1], bad)]);
        drive(&mut sim, &disks, async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let array = bench.assemble(&all).await.unwrap();
            begin(&bench, &array, members).await;
            bench.settled(&array).await;
            assert!(array.report().bad.is_empty(), "{level:?}");
            let found = array.scrub(false).await.unwrap();
            assert_eq!((found.mismatches, found.unreadable), (0, 0), "{level:?}");
            holds_all(&bench, &array, &format!("{level:?}")).await;
        });
    }
}

/// Each sector that is written during the replacement is on the new one.
#[test]
fn what_is_written_meanwhile_is_on_both() {
    for (level, members) in LEVELS {
        let (mut sim, disks) = run(1, 1, &vec![8; members + 1], async move |bench| {
            fill(&bench, level, members).await;
        });
        drive(&mut sim, &disks, async move |bench| {
            let options = Options {
                rebuild_floor: 16 << 20,
                ..crate::common::options()
            };
            let all: Vec<_> = (0..members).collect();
            let found = bench.candidates(&all);
            let array = bench.assemble_with(found, options).await;
            let array = array.unwrap();
            begin(&bench, &array, members).await;
            let (mut rounds, mut byte) = (0, 0);
            while array.report().replaced.is_some() {
                rounds += 1;
                byte = (rounds % 251) as u8;
                for at in (0..SECTORS).step_by(256) {
                    bench.write(&array, at + 3, 16, byte).await.unwrap();
                }
            }
            assert!(rounds > 3, "{level:?}: it took {rounds} rounds");
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?}");
            // The others' copies of these sectors are not read.
            array.fail(0).await.unwrap();
            for at in (0..SECTORS).step_by(256) {
                assert!(
                    bench.holds(&array, at + 3, 16, byte).await,
                    "{level:?} {at}"
                );
                assert!(bench.holds(&array, at + 19, 64, 1).await, "{level:?} {at}");
            }
        });
    }
}

/// Either of the two is lost during the replacement.
#[test]
fn an_exchange_outlives_either_of_the_two() {
    for ((level, members), new_is_lost) in LEVELS
        .into_iter()
        .flat_map(|level| [(level, false), (level, true)])
    {
        let (mut sim, disks) = run(1, 1, &vec![8; members + 1], async move |bench| {
            fill(&bench, level, members).await;
        });
        let lost = if new_is_lost { members } else { 1 };
        let rule = FaultRule {
            disk: disks[lost],
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(data_at(level)), Sectors(2048))),
            when: When::Nth(3),
            effect: FaultEffect::Fail(IoErrorKind::Other),
        };
        strike(&mut sim, vec![rule]);
        drive(&mut sim, &disks, async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let array = bench.assemble(&all).await.unwrap();
            begin(&bench, &array, members).await;
            while array.report().replaced.is_some() {
                for at in (0..SECTORS).step_by(256) {
                    bench.write(&array, at, 16, 1).await.unwrap();
                }
            }
            bench.settled(&array).await;
            let device = array.report().members[1].device.clone();
            let stays = if new_is_lost { 1 } else { members };
            assert_eq!(
                device.as_deref(),
                Some(&*format!("disk-{stays}")),
                "{level:?}"
            );
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?}");
            holds_all(&bench, &array, &format!("{level:?} {new_is_lost}")).await;
            let message = array.events().0;
            let refused = message
                .iter()
                .any(|e| e.what.contains("does not take the place"));
            assert_eq!(refused, new_is_lost, "{message:?}");
        });
    }
}

/// A start finds the replacement done, or not begun, and nothing missing.
#[test]
fn power_that_goes_amid_an_exchange_leaves_every_member_in_sync() {
    let mut ended = [0; 2];
    for ((level, members), step) in LEVELS
        .into_iter()
        .flat_map(|level| (0..30).map(move |step| (level, step)))
    {
        let (mut sim, disks) = run(step, 1, &vec![8; members + 1], async move |bench| {
            fill(&bench, level, members).await;
        });
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let array = bench.assemble(&all).await.unwrap();
            begin(&bench, &array, members).await;
            // The power goes about the end of it, among its last writes.
            while array
                .report()
                .progress
                .is_none_or(|p| p.done.0 + 2048 < p.total.0)
            {
                bench.env.timer.sleep(Nanos::from_micros(100)).await;
            }
            bench.env.timer.sleep(Nanos::from_micros(step * 150)).await;
            let cut = async {
                bench.cut_power().await;
            };
            join(cut, async { drop(bench.write(&array, 8, 8, 1).await) }).await;
        });
        let all: Vec<_> = (0..=members).collect();
        let (old, new) = ("disk-1".to_owned(), format!("disk-{members}"));
        let seen = std::rc::Rc::new(std::cell::Cell::new(0));
        let which = seen.clone();
        after_power(&mut sim, &disks, &all, async move |bench, array| {
            let report = array.report();
            let device = report.members[1].device.as_deref().unwrap_or_default();
            assert!(device == old || device == new, "{level:?} {step}: {device}");
            let in_sync = report
                .members
                .iter()
                .all(|m| m.state == raid::MemberState::InSync);
            assert!(in_sync, "{level:?} {step}: {report:#?}");
            which.set(usize::from(device == new));
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?} {step}");
            holds_all(&bench, &array, &format!("{level:?} {step}")).await;
        });
        ended[seen.get()] += 1;
        control.power_on(Domain(0));
    }
    assert!(!ended.contains(&0), "not begun, done: {ended:?}");
}

/// Writes of RAID 5 are in flight, with their records on the old member, when all is copied. The
/// old member serves until they have ended, for the new one has no record of them.
#[test]
fn no_write_is_under_way_when_a_role_changes_hands() {
    let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
        fill(&bench, Level::Raid5, 3).await;
    });
    // The first stripes' data on the other two is written slowly.
    let first = Extent::new(Lba(data_at(Level::Raid5)), Sectors(4 * 64));
    let (others, delay) = ([disks[0], disks[2]], Nanos::from_secs(2));
    slow(&mut sim, &others, OpFilter::Writes, Some(first), delay);
    drive(&mut sim, &disks, async |bench| {
        let options = Options {
            rebuild_floor: 16 << 20,
            busy_for: Nanos::from_secs(1),
            ..crate::common::options()
        };
        let found = bench.candidates(&[0, 1, 2]);
        let array = bench.assemble_with(found, options).await.unwrap();
        bench.write(&array, SECTORS - 64, 16, 2).await.unwrap();
        begin(&bench, &array, 3).await;
        let done = || array.report().progress.map_or(0, |p| p.done.0);
        while done() < SECTORS / 2 {
            bench.sleep(1).await;
        }
        let writes = async {
            let write = async |stripe: u64| {
                let written = bench.write(&array, 128 * stripe + 3, 16, 2).await;
                written.unwrap();
            };
            join(write(0), join(write(1), write(2))).await;
        };
        let cut = async {
            while array.report().replaced.is_some() {
                bench.sleep(1).await;
            }
            bench.sleep(5).await;
            bench.control.cut_power(None);
        };
        join(writes, cut).await;
    });
    after_power(&mut sim, &disks, &[0, 3, 2], async |_, array| {
        let found = array.scrub(false).await.unwrap();
        assert_eq!(found.mismatches, 0, "{:?}", array.events());
    });
}

/// A device that was a member and takes the place of another loses its records: a start without a
/// member does none of them again.
#[test]
fn nothing_is_done_again_from_the_journal_of_a_device_that_was_a_member() {
    let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, SECTORS, 1).await.unwrap();
        array.flush().await.unwrap();
        // Records of the stripes with parity on the second member; they stay open on it.
        for round in 0..4 {
            for stripe in (0..SECTORS / 128).filter(|n| array.shape().stripe(*n).parity == 1) {
                let (at, byte) = (128 * stripe + 3, 2 + round);
                bench.write(&array, at, 16, byte).await.unwrap();
            }
        }
        array.fail(1).await.unwrap();
        let other = bench.candidate(3);
        array.replace(1, other, bench.uuid(), true).await.unwrap();
        bench.settled(&array).await;
        bench.write(&array, 0, SECTORS, 9).await.unwrap();
        let back = bench.candidate(1);
        array.replace(0, back, bench.uuid(), true).await.unwrap();
        bench.settled(&array).await;
        array.close().await.unwrap();
    });
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[1, 3]).await.unwrap();
        for at in (0..SECTORS).step_by(64) {
            assert!(bench.holds(&array, at, 64, 9).await, "{at}");
        }
    });
}

/// The other leg is lost as it is to learn of the replacement: it would consider the old one, which
/// waits for no other any more, as current.
#[test]
fn no_leg_is_lost_to_one_that_it_has_not_heard_of() {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        fill(&bench, Level::Raid1, 2).await;
    });
    let lost = |nth| FaultRule {
        disk: disks[0],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(0), Sectors(16))),
        when: When::Nth(nth),
        effect: FaultEffect::Fail(IoErrorKind::Gone),
    };
    // The first two are those of the start.
    strike(&mut sim, vec![lost(3)]);
    let acknowledged = std::rc::Rc::new(std::cell::Cell::new(false));
    let seen = acknowledged.clone();
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1]).await.unwrap();
        begin(&bench, &array, 2).await;
        bench.sleep(2000).await;
        assert_eq!(array.report().replaced, None);
        seen.set(bench.write(&array, 0, 64, 2).await.is_ok());
    });
    drive(&mut sim, &disks, async move |bench| {
        if let Ok(array) = bench.assemble(&[0, 1]).await {
            let all = bench.holds(&array, 0, 64, 2).await;
            assert!(all || !acknowledged.get(), "what was acknowledged is gone");
        }
    });
}
