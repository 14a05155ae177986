//! The fate of members while superblocks that name them are being written.

use crate::common::{Bench, after_power, drive, run, strike};
use block::{Device, Extent, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use futures_util::future::join;
use raid::{Array, ArrayStart, Level, MemberState};
use sim::{Domain, FaultEffect, FaultRule, OpFilter, SimHost, When};
use std::cell::Cell;
use std::rc::Rc;

const TRIES: u64 = 16;

/// Strikes writes of the superblocks of `disk`.
fn superblocks(disk: TargetId, when: When, effect: FaultEffect) -> FaultRule {
    FaultRule {
        disk,
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(0), Sectors(16))),
        when,
        effect,
    }
}

/// Delays writes of superblocks of `disks` by 20 ms.
fn slow(disks: &[TargetId]) -> Vec<FaultRule> {
    let delay = FaultEffect::Delay(Nanos::from_millis(20));
    let rule = |disk: &TargetId| superblocks(*disk, When::Always, delay);
    disks.iter().map(rule).collect()
}

/// Starts the array of the second disk alone, which has its power back.
async fn assemble_second(bench: &Bench) -> Array {
    bench.sleep(1).await;
    let start = ArrayStart::Degraded;
    bench.start(&[1], start).await.unwrap()
}

/// Makes two mirrored disks that hold 1, and a start that is cut short when only the first has its
/// superblock for certain. After that only the second is there.
fn cut_in_a_start(seed: u64) -> (SimHost, Vec<TargetId>) {
    let (mut sim, disks) = run(seed, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 128, 1).await.unwrap();
        array.close().await.unwrap();
    });
    strike(&mut sim, slow(&disks[1..]));
    let control = sim.world().control();
    drive(&mut sim, &disks, async move |bench| {
        let cut = async {
            bench.sleep(10).await;
            bench.cut_power().await;
        };
        let _ = join(bench.assemble(&[0, 1]), cut).await;
    });
    strike(&mut sim, Vec::new());
    control.power_on(Domain(0));
    control.kill(disks[0]);
    (sim, disks)
}

/// The number of the member's event may be that of the start that followed without it.
#[test]
fn a_member_that_alone_began_an_event_is_not_taken_for_the_truth_of_it() {
    for seed in 0..TRIES {
        let (mut sim, disks) = cut_in_a_start(seed);
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let array = assemble_second(&bench).await;
            bench.write(&array, 0, 128, 2).await.unwrap();
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        control.revive(disks[0]);
        after_power(&mut sim, &disks, &[0, 1], async move |bench, array| {
            let kept = bench.holds(&array, 0, 128, 2).await;
            assert!(kept, "seed {seed}: {:#?}", array.report());
            bench.settled(&array).await;
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
            assert!(bench.holds(&array, 0, 128, 2).await, "seed {seed}");
        });
    }
}

#[test]
fn a_member_that_alone_began_an_event_may_return() {
    for seed in 0..TRIES {
        let (mut sim, disks) = cut_in_a_start(seed);
        drive(&mut sim, &disks, async move |bench| {
            let array = assemble_second(&bench).await;
            bench.write(&array, 0, 128, 2).await.unwrap();
            bench.control.revive(bench.disks[0]);
            bench.sleep(1).await;
            let candidate = bench.candidate(0);
            let added = array.add(candidate, bench.uuid(), false).await;
            added.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            bench.settled(&array).await;
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        });
    }
}

/// A member takes a superblock that another one refuses and is lost, and the other then takes the
/// next one: of the same event, for the one before was never done with.
#[test]
fn of_one_event_what_was_written_last_is_the_truth() {
    let mut refused = 0;
    for nth in 1..8 {
        let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
            let array = bench.create(Level::Raid10, &[0, 1, 2, 3], &[]).await;
            let array = array.unwrap();
            bench.write(&array, 0, 256, 1).await.unwrap();
            array.fail(1).await.unwrap();
            array.close().await.unwrap();
        });
        let refusal = FaultEffect::Fail(IoErrorKind::Other);
        let rule = superblocks(disks[0], When::Nth(nth), refusal);
        strike(&mut sim, vec![rule]);
        let seen = Rc::new(Cell::new(0));
        let refusals = seen.clone();
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let Ok(array) = bench.assemble(&[0, 2, 3]).await else {
                return;
            };
            let candidate = bench.candidate(1);
            let added = array.add(candidate, bench.uuid(), false).await;
            refusals.set(u64::from(added.is_err()));
            bench.control.kill(bench.disks[2]);
            while bench.write(&array, 0, 256, 3).await.is_err() {
                bench.sleep(1).await;
            }
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        if seen.get() == 0 {
            continue;
        }
        refused += 1;
        strike(&mut sim, Vec::new());
        control.revive(disks[2]);
        let all = [0, 1, 3, 2];
        after_power(&mut sim, &disks, &all, async move |bench, array| {
            bench.settled(&array).await;
            assert!(bench.holds(&array, 0, 256, 3).await, "{nth}");
        });
    }
    assert!(refused > 0, "no superblock was refused in time");
}

/// The first member, which the array needs, may be one event behind, and refuses some writes of a
/// start beside the data. The start may fail, but leaves the member no further behind: the next one
/// succeeds.
#[test]
fn starts_that_a_member_refuses_leave_it_no_further_behind() {
    let mut failed = 0;
    for (seed, nth, count) in (0..4).flat_map(|s| (1..8).flat_map(move |n| [(s, n, 1), (s, n, 3)]))
    {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 256, 1).await.unwrap();
            array.close().await.unwrap();
        });
        strike(&mut sim, slow(&disks[..1]));
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            let cut = async {
                bench.sleep(10).await;
                bench.cut_power().await;
            };
            join(array.fail(2), cut).await.0.unwrap();
        });
        let rule = |nth| FaultRule {
            within: Some(Extent::new(Lba(0), Sectors(32))),
            ..superblocks(
                disks[0],
                When::Nth(nth),
                FaultEffect::Fail(IoErrorKind::Media),
            )
        };
        strike(&mut sim, (nth..nth + count).map(rule).collect());
        control.power_on(Domain(0));
        let seen = Rc::new(Cell::new(0));
        let refusals = seen.clone();
        drive(&mut sim, &disks, async move |bench| {
            bench.sleep(1).await;
            let array = loop {
                match bench.assemble(&[0, 1, 2]).await {
                    Ok(array) => break array,
                    Err(error) if refusals.get() < count => {
                        assert_eq!(error.kind(), IoErrorKind::Media, "{seed} {nth}: {error}");
                        refusals.set(refusals.get() + 1);
                    }
                    Err(error) => panic!("{seed} {nth} {count}: {error}"),
                }
            };
            assert!(bench.holds(&array, 0, 256, 1).await);
        });
        failed += seen.get();
    }
    assert!(failed > 20, "only {failed} starts were refused");
}

/// The member's journal is wiped then, which must not be before its loss is known.
#[test]
fn a_member_that_is_lost_and_back_at_once_keeps_its_records_until_the_loss_is_known() {
    for seed in 0..TRIES {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            array.close().await.unwrap();
        });
        strike(&mut sim, slow(&disks));
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            bench.write(&array, 0, 128, 1).await.unwrap();
            let parity = array.shape().stripe(0).parity;
            bench.control.kill(bench.disks[parity]);
            let back = async {
                // Noticed by the write, and not yet known to any other member.
                bench.sleep(1).await;
                bench.control.revive(bench.disks[parity]);
                bench.sleep(1).await;
                let fresh = bench.uuid();
                array.add(bench.candidate(parity), fresh, false).await.ok();
            };
            let cut = async {
                bench.sleep(12).await;
                bench.cut_power().await;
            };
            let write = bench.write(&array, 128 * 3, 8, 2);
            let _ = join(write, join(back, cut)).await;
        });
        after_power(&mut sim, &disks, &[0, 1, 2], async move |bench, array| {
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "seed {seed}");
        });
    }
}

/// The event that it refused is never sealed: it may be in sync in that event, and is no older
/// image of itself.
#[test]
fn a_member_that_refuses_superblocks_lacks_what_it_missed_and_no_more() {
    let mut evicted = 0;
    for (nth, cut_at) in (1..8).flat_map(|nth| (2..120).step_by(6).map(move |at| (nth, at))) {
        let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid1, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 128, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let refusal = FaultEffect::Fail(IoErrorKind::Other);
        let refused = (nth..nth + 2).map(|n| superblocks(disks[0], When::Nth(n), refusal));
        strike(&mut sim, refused.chain(slow(&disks[1..])).collect());
        let seen = Rc::new(Cell::new(false));
        let was_evicted = seen.clone();
        drive(&mut sim, &disks, async move |bench| {
            let Ok(array) = bench.assemble(&[0, 1, 2]).await else {
                return bench.cut_power().await;
            };
            let cut = async {
                bench.sleep(cut_at).await;
                was_evicted.set(array.report().members[0].state.is_failed());
                bench.cut_power().await;
            };
            let _ = join(array.fail(2), cut).await;
        });
        evicted += u64::from(seen.get());
        strike(&mut sim, Vec::new());
        after_power(&mut sim, &disks, &[0, 1, 2], async move |_, array| {
            let state = array.report().members[0].state;
            let whole = MemberState::Rebuilding { whole: true };
            assert_ne!(state, whole, "{nth}, {cut_at}");
        });
    }
    assert!(evicted > 10, "refused in {evicted} runs alone");
}

#[test]
fn an_array_is_settled_once_that_is_known() {
    let (mut sim, disks) = run(1, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    strike(&mut sim, slow(&disks));
    let control = sim.world().control();
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1]).await.unwrap();
        array.fail(1).await.unwrap();
        let added = array.add(bench.candidate(1), bench.uuid(), false);
        added.await.unwrap();
        while array.report().members[1].state != MemberState::InSync {
            bench.sleep(1).await;
        }
        assert!(!array.is_settled(), "no superblock says so yet");
        bench.settled(&array).await;
        bench.cut_power().await;
    });
    control.kill(disks[0]);
    control.power_on(Domain(0));
    drive(&mut sim, &disks, async move |bench| {
        assemble_second(&bench).await;
    });
}
