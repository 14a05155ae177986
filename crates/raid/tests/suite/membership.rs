//! Current members: legs that diverged, stale legs, and starts with members that cannot be used.

use crate::common::{
    Bench, all_hold, drive, options, read_copy, refused, run, spoil, strike, write_copy,
};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use futures_util::future::{Either, join, select};
use raid::{ArrayStart, ArraySuperblock, Level, MemberState, Options, assemble, examine};
use sim::{Domain, FaultEffect, FaultRule, OpFilter, SimHost, When};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

fn rule(
    disk: TargetId,
    ops: OpFilter,
    within: (u64, u64),
    when: When,
    effect: FaultEffect,
) -> FaultRule {
    FaultRule {
        disk,
        ops,
        within: Some(Extent::new(Lba(within.0), Sectors(within.1))),
        when,
        effect,
    }
}

/// While a read of a returning member's metadata takes long, a spare is filled in its place. The
/// returning member is not considered in sync by the regions that it had missed before that.
#[test]
fn of_a_member_that_returns_and_a_spare_one_takes_the_place() {
    for nth in 1..=8 {
        let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let slow = FaultEffect::Delay(Nanos::from_secs(8));
        let nth = When::Nth(nth);
        let rule = rule(disks[1], OpFilter::Reads, (0, 16), nth, slow);
        strike(&mut sim, vec![rule]);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            bench.settled(&array).await;
            bench.sleep(120).await;
            let missed = async {
                array.fail(1).await.unwrap();
                bench.write(&array, 0, 256, 2).await.unwrap();
                array.flush().await.unwrap();
            };
            let back = async {
                bench.sleep(3).await;
                array.add(bench.candidate(1), bench.uuid(), true).await
            };
            let ((), added) = join(missed, back).await;
            if let Err(error) = added {
                assert_eq!(error.kind(), IoErrorKind::Busy, "{nth:?}: {error}");
            }
            bench.sleep(2000).await;
            bench.settled(&array).await;
            for _ in 0..4 {
                assert!(bench.holds(&array, 0, 256, 2).await, "{nth:?}");
            }
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{nth:?}: {:?}", array.events());
        });
    }
}

/// A member that refuses all writes, as a read-only one does, is lost or stays lost. The array
/// starts without it, as often as it is started.
#[test]
fn an_array_starts_with_a_member_that_refuses_writes() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let all: Vec<usize> = (0..members).collect();
        let roles = all.clone();
        let (mut sim, disks) = run(1, 1, &vec![8; members], async move |bench| {
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 512, 1).await.unwrap();
            array.close().await.unwrap();
        });
        for kind in [IoErrorKind::ReadOnly, IoErrorKind::Media] {
            let refusal = FaultEffect::Fail(kind);
            let disk = (0, 8 * 2048);
            let rule = rule(disks[1], OpFilter::Writes, disk, When::Always, refusal);
            strike(&mut sim, vec![rule]);
            let all = all.clone();
            drive(&mut sim, &disks, async move |bench| {
                for byte in 2..5 {
                    let array = bench.assemble(&all).await.unwrap();
                    bench.write(&array, 0, 512, byte).await.unwrap();
                    let state = array.report().members[1].state;
                    assert!(matches!(state, MemberState::Failed { .. }), "{state:?}");
                    bench.sleep(1000).await;
                    array.close().await.unwrap();
                    bench.sleep(500).await;
                    let array = bench.assemble(&all).await.unwrap();
                    assert!(bench.holds(&array, 0, 512, byte).await);
                    array.close().await.unwrap();
                    bench.sleep(500).await;
                }
            });
        }
    }
}

/// Makes two mirrored disks that held 1; `lost` was lost, and the other holds 2 in its first 64
/// sectors and was closed. Both are there.
fn continue_without(lost: usize) -> (SimHost, Vec<TargetId>) {
    run(1, 1, &[8; 2], async move |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        array.flush().await.unwrap();
        bench.sleep(3000).await;
        bench.control.kill(bench.disks[lost]);
        bench.write(&array, 0, 64, 2).await.unwrap();
        array.flush().await.unwrap();
        array.close().await.unwrap();
        drop(array);
        bench.control.revive(bench.disks[lost]);
        bench.sleep(300).await;
    })
}

/// Then the lost leg is started alone by force, and written elsewhere: each leg has data that the
/// other lacks. Neither counts as the newer; either may be kept.
#[test]
fn legs_that_diverged_are_refused_and_either_may_be_kept() {
    for (lost, kept) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (mut sim, disks) = continue_without(lost);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.start(&[lost], ArrayStart::Degraded).await.unwrap();
            bench.write(&array, 4000, 64, 3).await.unwrap();
            bench.end(array).await;
            for order in [[0, 1], [1, 0]] {
                let message = refused(bench.assemble(&order).await);
                for what in [
                    "is a split brain",
                    "disk-0: event",
                    "disk-1: event",
                    "remove",
                ] {
                    assert!(message.contains(what), "{what}: {message}");
                }
                let message = refused(bench.start(&order, ArrayStart::Degraded).await);
                assert!(message.contains("is a split brain"), "{message}");
            }
            let array = bench.start(&[kept], ArrayStart::Degraded).await.unwrap();
            let other = bench.candidate(1 - kept);
            let message = refused(array.add(other.clone(), bench.uuid(), false).await);
            assert!(message.contains("was used apart"), "{message}");
            array.add(other, bench.uuid(), true).await.unwrap();
            let (byte, far) = if kept == lost { (1, 3) } else { (2, 1) };
            all_hold(&bench, &array, 64, byte).await;
            assert!(bench.holds(&array, 4000, 64, far).await);
            bench.end(array).await;
            let array = bench.assemble(&[0, 1]).await.unwrap();
            all_hold(&bench, &array, 64, byte).await;
        });
    }
}

/// The power goes during the forced start of a stale leg, which has written nothing. Both legs are
/// refused, or the data acknowledged without the stale leg is read.
#[test]
fn a_forced_start_that_is_cut_short_takes_nothing_back() {
    let started = Rc::new(Cell::new(0));
    let cuts = (0..16).map(|i| 1 + i * 2);
    for (lost, cut) in cuts.flat_map(|cut| [(0, cut), (1, cut)]) {
        let (mut sim, disks) = continue_without(lost);
        let slow = FaultEffect::Delay(Nanos::from_millis(10));
        let slow = rule(disks[lost], OpFilter::Writes, (0, 16), When::Always, slow);
        strike(&mut sim, vec![slow]);
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let cut = async {
                bench.sleep(cut).await;
                bench.cut_power().await;
            };
            let _ = join(bench.start(&[lost], ArrayStart::Degraded), cut).await;
        });
        strike(&mut sim, Vec::new());
        control.power_on(Domain(0));
        let started = started.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            match bench.assemble(&[lost, 1 - lost]).await {
                Ok(array) => {
                    all_hold(&bench, &array, 64, 2).await;
                    started.set(started.get() + 1);
                }
                Err(error) => assert!(error.to_string().contains("is a split brain"), "{error}"),
            }
        });
    }
    let started = started.get();
    assert!((8..32).contains(&started), "{started} of 32 healed");
}

/// One copy of the superblock of the leg that continued rots, or cannot be read: the other copy
/// says the same, and the stale leg is filled.
#[test]
fn a_stale_leg_is_not_trusted_when_a_superblock_of_the_other_rots() {
    for (lost, copy) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for unreadable in [false, true] {
            let (mut sim, disks) = continue_without(lost);
            let kept = 1 - lost;
            if unreadable {
                let sectors = Extent::new(Lba(copy * 8), Sectors(1));
                spoil(&mut sim, vec![(disks[kept], sectors)]);
            }
            drive(&mut sim, &disks, async move |bench| {
                if !unreadable {
                    let mut bytes = read_copy(&bench, kept, copy).await;
                    bytes[300] ^= 1;
                    write_copy(&bench, kept, copy, bytes).await;
                }
                let array = bench.assemble(&[0, 1]).await.unwrap();
                all_hold(&bench, &array, 64, 2).await;
            });
        }
    }
}

/// With both copies gone, no device shows that the other leg continued: the stale leg starts only
/// by force.
#[test]
fn a_leg_that_cannot_be_read_may_have_gone_on() {
    let (mut sim, disks) = continue_without(0);
    drive(&mut sim, &disks, async move |bench| {
        for copy in [0, 1] {
            let mut bytes = read_copy(&bench, 1, copy).await;
            bytes[300] ^= 1;
            write_copy(&bench, 1, copy, bytes).await;
        }
        let device = bench.candidate(1).device;
        let found = examine(&bench.env, &device).await;
        assert_eq!(found.unwrap_err().kind(), IoErrorKind::Corrupt);
        let message = refused(bench.assemble(&[0, 1]).await);
        assert!(message.contains("may have continued without"), "{message}");
        let array = bench.start(&[0, 1], ArrayStart::Degraded).await.unwrap();
        assert!(bench.holds(&array, 0, 64, 1).await);
        let message = array.events().0;
        let damaged = |event: &raid::ArrayEvent| event.what.contains("its superblock is damaged");
        assert!(message.iter().any(damaged), "{message:?}");
    });
}

/// A read that fails once is tried again.
#[test]
fn one_failed_read_of_a_superblock_leaves_no_member_behind() {
    for (disk, nth) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let (mut sim, disks) = run(1, 1, &[8; 2], async |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
            array.close().await.unwrap();
        });
        let failure = FaultEffect::Fail(IoErrorKind::Media);
        let failure = rule(
            disks[disk],
            OpFilter::Reads,
            (0, 16),
            When::Nth(nth),
            failure,
        );
        strike(&mut sim, vec![failure]);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1]).await.unwrap();
            assert!(array.is_settled(), "{:?}", array.events());
        });
    }
}

/// One member answers no read: it counts as absent, in time.
#[test]
fn a_member_that_is_unresponsive_at_a_start_counts_as_absent() {
    for given in [None, Some(Nanos::from_millis(100))] {
        let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 64, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let unresponsive = FaultEffect::Stick(None);
        let unresponsive = rule(
            disks[1],
            OpFilter::Reads,
            (0, 64),
            When::Always,
            unresponsive,
        );
        strike(&mut sim, vec![unresponsive]);
        drive(&mut sim, &disks, async move |bench| {
            let options = Options {
                timeout: given,
                ..options()
            };
            let all = bench.candidates(&[0, 1, 2]);
            let fresh = bench.uuid();
            let start = ArrayStart::default();
            let begin = Box::pin(assemble(&bench.env, None, fresh, all, start, options));
            let soon = given.map_or(Nanos::from_secs(11), |given| Nanos(given.0 * 4));
            let late = bench.env.timer.sleep(soon);
            let Either::Left((array, _)) = select(begin, late).await else {
                panic!("{given:?}: not started after {soon}");
            };
            let array = array.unwrap();
            assert!(bench.holds(&array, 0, 64, 1).await);
            let state = array.report().members[1].state;
            assert!(state.is_failed(), "{state:?}");
            assert!(array.events().0[0].what.contains("no answer in time"));
            bench
                .disks
                .iter()
                .for_each(|disk| bench.control.release(*disk));
        });
    }
}

/// A member that reports fewer sectors than before, lost or not.
#[test]
fn a_member_that_shrank_counts_as_absent() {
    for lost in [false, true] {
        run(1, 1, &[8, 8, 7], async move |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
            bench.write(&array, 0, 64, 1).await.unwrap();
            if lost {
                array.fail(1).await.unwrap();
            }
            array.close().await.unwrap();
            drop(array);
            let (from, to) = (bench.candidate(1).device, bench.candidate(2).device);
            for at in (0..7 * 2048).step_by(1024) {
                let buf = bench.env.pool.get(1024 * 512).await;
                let (buf, result) = from.read(Lba(at), buf).await;
                result.unwrap();
                to.write(Lba(at), buf.share(), Fua::No).await.unwrap();
            }
            let array = bench.assemble(&[0, 2]).await.unwrap();
            assert!(bench.holds(&array, 0, 64, 1).await);
            let message = array.events().0;
            let shrank = |event: &raid::ArrayEvent| event.what.contains("is smaller than it was");
            assert!(message.iter().any(shrank), "{message:?}");
        });
    }
}

/// While superblocks of an event are written, more changes: the members' images of one event are
/// the same all the same.
#[test]
fn members_have_the_same_of_an_event() {
    let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1, 2, 3], &[]).await;
        array.unwrap().close().await.unwrap();
    });
    let slow = |(disk, millis): (&TargetId, u64)| {
        let slow = FaultEffect::Delay(Nanos::from_millis(millis));
        rule(*disk, OpFilter::Writes, (0, 16), When::Always, slow)
    };
    let slow = disks.iter().zip([10, 15, 20, 25]).map(slow).collect();
    strike(&mut sim, slow);
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1, 2, 3]).await.unwrap();
        let changes = async {
            let one = array.fail(3);
            let other = async {
                bench.sleep(12).await;
                array.fail(2).await
            };
            let (one, other) = join(one, other).await;
            one.and(other).unwrap();
        };
        let look = async {
            for _ in 0..100 {
                bench.sleep(1).await;
                let copies = examine_copies(&bench).await;
                let mut tables = HashMap::new();
                for copy in &copies {
                    let same = tables.entry(copy.position()).or_insert(&copy.table);
                    assert_eq!(**same, copy.table, "{:?}", copy.position());
                }
                // Others are just being written.
                assert!(copies.len() >= 4, "{}", copies.len());
            }
        };
        join(changes, look).await;
    });
}

/// Reads all sound copies of superblocks.
async fn examine_copies(bench: &Bench) -> Vec<ArraySuperblock> {
    let mut all = Vec::new();
    for (disk, copy) in (0..bench.disks.len()).flat_map(|disk| [(disk, 0), (disk, 1)]) {
        let bytes = read_copy(bench, disk, copy).await;
        all.extend(ArraySuperblock::decode(&bytes));
    }
    all
}
