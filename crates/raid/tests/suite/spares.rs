//! Activation of spares: its conditions and its cost.

use crate::common::{Bench, drive, options, run};
use crate::faulty::{Op, faulty, switched};
use block::{Device, Lba, Nanos, Sectors};
use raid::{Array, Level, MemberState, Options};

fn is_filling(array: &Array, role: usize) -> bool {
    let state = array.report().members[role].state;
    matches!(state, MemberState::Rebuilding { .. })
}

/// A copy less is worse than copies that may differ, which are compared at the pace that clients
/// leave.
#[test]
fn a_spare_is_activated_before_copies_are_compared() {
    let (mut sim, disks) = run(1, 1, &[9; 5], async |bench| {
        let array = bench
            .create(Level::Raid10, &[0, 1, 2, 3], &[])
            .await
            .unwrap();
        array.fail(1).await.unwrap();
        for at in (0..16 * 2048).step_by(128) {
            bench.write(&array, at, 128, 1).await.unwrap();
        }
        array.flush().await.unwrap();
    });
    drive(&mut sim, &disks, async |bench| {
        let slowly = Options {
            rebuild_floor: 1 << 20,
            ..options()
        };
        let members = bench.candidates(&[0, 2, 3]);
        let array = bench.assemble_with(members, slowly).await;
        let array = array.unwrap();
        let mut progress = None;
        // In use all the time: nothing goes on faster than its floor.
        for round in 0..100 {
            assert!(bench.holds(&array, 0, 8, 1).await);
            bench.sleep(10).await;
            if round == 50 {
                progress = array.report().progress;
                let spare = bench.candidate(4);
                array.add(spare, bench.uuid(), true).await.unwrap();
            }
        }
        let compared = progress.expect("copies are compared by then");
        assert_eq!(compared.role, None);
        assert!(compared.done < compared.total, "{compared:?}");
        assert!(is_filling(&array, 1), "{:?}", array.report());
        bench.settled(&array).await;
        for at in (0..16 * 2048).step_by(128) {
            assert!(bench.holds(&array, at, 128, 1).await, "{at}");
        }
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

/// Copies that differ after a crash, all over: the spare that was filled from them while they were
/// compared has the data that is served.
#[test]
fn a_spare_filled_from_copies_that_differ_has_what_is_served() {
    let (mut sim, disks) = run(7, 1, &[9; 5], async |bench| {
        let array = bench
            .create(Level::Raid10, &[0, 1, 2, 3], &[])
            .await
            .unwrap();
        for at in (0..16 * 2048).step_by(128) {
            bench.write(&array, at, 128, 1).await.unwrap();
        }
        array.flush().await.unwrap();
        array.fail(1).await.unwrap();
        for at in (0..16 * 2048).step_by(128) {
            bench.write(&array, at, 128, 2).await.unwrap();
        }
        bench.cut_power().await;
    });
    crate::common::after_power(&mut sim, &disks, &[0, 2, 3], async |bench, array| {
        let spare = bench.candidate(4);
        array.add(spare, bench.uuid(), true).await.unwrap();
        let mut seen = Vec::new();
        for at in (0..16 * 2048).step_by(8) {
            seen.push(bench.read(&array, at, 8).await.unwrap());
        }
        bench.settled(&array).await;
        for _ in 0..2 {
            for (at, before) in (0..16 * 2048).step_by(8).zip(&seen) {
                let now = bench.read(&array, at, 8).await.unwrap();
                assert!(now[..] == before[..], "{:?} changed", Lba(at));
            }
        }
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

async fn with_grace(bench: &Bench, seconds: u64) -> Array {
    let late_spares = Options {
        spare_delay: Nanos::from_secs(seconds),
        ..options()
    };
    let members = bench.candidates(&[0, 1, 2]);
    let array = bench.assemble_with(members, late_spares).await;
    array.unwrap()
}

fn mirror_with_spare(test: impl AsyncFn(Bench) + Clone + 'static) {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        array.close().await.unwrap();
    });
    drive(&mut sim, &disks, test);
}

#[test]
fn a_member_that_comes_back_in_time_gets_what_it_missed_and_keeps_its_place() {
    mirror_with_spare(async |bench| {
        let array = with_grace(&bench, 60).await;
        bench.control.kill(bench.disks[1]);
        bench.write(&array, 128, 8, 2).await.unwrap();
        assert!(array.report().members[1].state.is_failed());
        bench.sleep(15_000).await;
        assert_eq!(array.report().spares.len(), 1, "{:?}", array.events().0);
        bench.control.revive(bench.disks[1]);
        bench.sleep(1).await;
        let back = bench.candidate(1);
        array.add(back, bench.uuid(), false).await.unwrap();
        bench.settled(&array).await;
        let report = array.report();
        assert_eq!(report.spares.len(), 1);
        assert_eq!(report.members[1].device.as_deref(), Some("disk-1"));
        let moved = Sectors(report.members[1].counts.writes * 512);
        assert!(
            moved < Sectors(8192),
            "as good as all was written: {moved:?}"
        );
        assert!(bench.holds(&array, 128, 8, 2).await);
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

#[test]
fn a_member_that_stays_away_is_replaced_when_its_time_is_over() {
    mirror_with_spare(async |bench| {
        let array = with_grace(&bench, 60).await;
        bench.control.kill(bench.disks[1]);
        bench.write(&array, 128, 8, 2).await.unwrap();
        bench.sleep(59_000).await;
        assert_eq!(array.report().spares.len(), 1);
        bench.sleep(2_000).await;
        assert_eq!(array.report().spares.len(), 0);
        bench.settled(&array).await;
    });
}

/// A member that was taken out by hand does answer, and is not to be waited for.
#[test]
fn a_member_that_was_taken_out_by_hand_is_replaced_at_once() {
    mirror_with_spare(async |bench| {
        let array = with_grace(&bench, 60).await;
        array.fail(1).await.unwrap();
        bench.sleep(1_000).await;
        assert_eq!(array.report().spares.len(), 0);
        bench.settled(&array).await;
    });
}

/// Waits until `role` is filled by a former spare.
async fn until_filled(bench: &Bench, array: &Array) {
    for _ in 0..10_000 {
        if array.is_settled() {
            return;
        }
        bench.sleep(10).await;
    }
    panic!("never filled: {:#?} {:#?}", array.report(), array.events());
}

/// The source of the spare's data refuses its superblock for a moment: the spare is not blamed.
#[test]
fn a_spare_waits_while_another_member_refuses_its_superblock() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        run(5, 1, &vec![8; members + 1], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[members]).await.unwrap();
            bench.write(&array, 0, 64, 1).await.unwrap();
            bench.end(array).await;
            let meta = |op| matches!(op, Op::Write(of) if of.start < Lba(16));
            let (first, refuses) = switched(&bench, 0, meta);
            let mut all = vec![first];
            all.extend(bench.candidates(&roles[1..]));
            all.push(bench.candidate(members));
            let array = bench.assemble_with(all, options()).await.unwrap();
            bench.settled(&array).await;
            refuses.set(true);
            bench.control.kill(bench.disks[1]);
            bench.write(&array, 0, 64, 1).await.unwrap_err();
            bench.sleep(500).await;
            assert_eq!(array.report().spares.len(), 1, "{:#?}", array.events());
            refuses.set(false);
            until_filled(&bench, &array).await;
            assert!(bench.holds(&array, 0, 64, 1).await);
        });
    }
}

/// A spare of the array that is given again may be overwritten without a permission.
#[test]
fn a_spare_that_was_forgotten_is_taken_back() {
    run(6, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        bench.end(array).await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        array
            .add(bench.candidate(2), bench.uuid(), false)
            .await
            .unwrap();
        assert_eq!(array.report().spares.len(), 1);
    });
}

/// Both members of a mirror refuse writes for a moment, one of them for good. The other missed
/// nothing that was acknowledged: the array goes on with it once it is assembled again.
#[test]
fn a_mirror_whose_members_both_refuse_writes_goes_on_with_the_sound_one() {
    run(7, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        bench.write(&array, 0, 64, 1).await.unwrap();
        bench.end(array).await;
        let (first, refuses) = switched(&bench, 0, Op::changes);
        let (other, refuses_too) = switched(&bench, 1, Op::changes);
        let all = vec![first, other, bench.candidate(2)];
        let array = bench.assemble_with(all, options()).await.unwrap();
        bench.settled(&array).await;
        refuses.set(true);
        refuses_too.set(true);
        bench.write(&array, 0, 64, 2).await.unwrap_err();
        bench.sleep(2000).await;
        assert!(array.report().down.is_some(), "{:#?}", array.events());
        array.release().await;
        drop(array);
        let other = faulty(&bench, 1, Op::changes);
        let all = vec![bench.candidate(0), other, bench.candidate(2)];
        let array = bench.assemble_with(all, options()).await.unwrap();
        bench.write(&array, 0, 64, 3).await.unwrap();
        until_filled(&bench, &array).await;
        assert!(bench.holds(&array, 0, 64, 3).await);
    });
}

/// A spare that has shrunk, or has larger blocks, could take no place.
#[test]
fn a_spare_that_has_changed_is_left_out_at_a_start() {
    for (mib, block) in [(4, 1), (8, 8)] {
        let (mut sim, disks) = run(8, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
            array.close().await.unwrap();
        });
        let shape = (Sectors::from_mib(mib), Sectors(block));
        sim.world_mut().reshape(disks[2], shape.0, shape.1);
        drive(&mut sim, &disks, async |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            assert!(array.report().spares.is_empty());
        });
    }
}
