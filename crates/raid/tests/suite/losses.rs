//! Members that fail, return, or cannot be read.

use crate::common::{drive, refused, run, spoil, strike};
use block::{Device, Extent, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::{Either, join, join_all, select};
use raid::{Level, MemberState};
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, SimHost, SimWorld, When};
use std::cell::Cell;
use std::rc::Rc;

const REDUNDANT: [(Level, usize); 4] = [
    (Level::Raid1, 2),
    (Level::Raid1, 3),
    (Level::Raid10, 4),
    (Level::Raid5, 4),
];

fn counted(array: &raid::Array) -> (u64, u64) {
    let members = array.report().members;
    let writes = members.iter().map(|m| m.counts.writes).sum();
    (writes, members.iter().map(|m| m.counts.repaired).sum())
}

#[test]
fn a_member_that_returns_gets_what_it_missed_and_no_more() {
    for (level, members) in REDUNDANT {
        run(1, 1, &vec![16; members], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            array.flush().await.unwrap();
            bench.control.kill(bench.disks[1]);
            bench.write(&array, 300, 300, 2).await.unwrap();
            let state = array.report().members[1].state;
            assert_eq!(state, MemberState::Failed { whole: false }, "{level:?}");
            bench.write(&array, 900, 5, 3).await.unwrap();
            assert!(bench.holds(&array, 300, 300, 2).await);
            bench.control.revive(bench.disks[1]);
            bench.sleep(1).await;
            array
                .add(bench.candidate(1), bench.uuid(), false)
                .await
                .unwrap();
            bench.settled(&array).await;
            // Counted again since the member is back: of 16 MiB some regions of 64 KiB.
            let written = array.report().members[1].counts.writes;
            assert!((1..60).contains(&written), "{level:?}: {written}");
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0, "{level:?}");
            for (at, len, byte) in [(0, 300, 1), (300, 300, 2), (900, 5, 3), (905, 1000, 1)] {
                assert!(bench.holds(&array, at, len, byte).await);
            }
        });
    }
}

#[test]
fn a_spare_takes_the_place_of_a_lost_member_while_io_goes_on() {
    for (level, members) in REDUNDANT {
        run(2, 1, &vec![8; members + 1], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[members]).await.unwrap();
            for at in 0..16 {
                bench
                    .write(&array, at * 128, 128, at as u8 + 1)
                    .await
                    .unwrap();
            }
            bench.control.kill(bench.disks[0]);
            for at in 0..16 {
                bench
                    .write(&array, at * 128 + 5, 20, 100 + at as u8)
                    .await
                    .unwrap();
                bench.sleep(20).await;
            }
            bench.settled(&array).await;
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0, "{level:?}");
            for at in 0..16 {
                assert!(bench.holds(&array, at * 128, 5, at as u8 + 1).await);
                assert!(bench.holds(&array, at * 128 + 5, 20, 100 + at as u8).await);
                assert!(bench.holds(&array, at * 128 + 25, 103, at as u8 + 1).await);
            }
        });
    }
}

#[test]
fn unreadable_sectors_are_read_elsewhere_and_written_again() {
    for (level, members) in REDUNDANT {
        let mut world = SimWorld::new(3);
        let disks: Vec<_> = (0..members)
            .map(|i| {
                let name = format!("disk-{i}");
                let geometry = block::Geometry::new(name, Sectors::from_mib(8), Sectors(1));
                world.add_disk(sim::DiskSpec::new(geometry)).unwrap()
            })
            .collect();
        let mut sim = SimHost::new(world);
        drive(&mut sim, &disks, async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 2048, 7).await.unwrap();
            array.close().await.unwrap();
        });
        // Beginning of the data: RAID 5 has its journal before it.
        let bad = if level == Level::Raid5 { 6144 } else { 2048 };
        let latent = (disks[0], Extent::new(Lba(bad), Sectors(64)));
        spoil(&mut sim, vec![latent]);
        drive(&mut sim, &disks, async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.assemble(&roles).await.unwrap();
            for _ in 0..members {
                for at in (0..2048).step_by(64) {
                    assert!(bench.holds(&array, at, 64, 7).await);
                }
            }
            bench.sleep(5).await;
            assert!(
                array.is_settled(),
                "a bad sector is no reason to lose a member"
            );
            assert_eq!(counted(&array).1, 64, "{level:?}");
            assert_eq!(array.report().members[0].counts.read_errors, 1);
        });
    }
}

#[test]
fn too_many_losses_stop_writes_and_say_why() {
    run(4, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 256, 1).await.unwrap();
        bench.control.kill(bench.disks[0]);
        bench.control.kill(bench.disks[1]);
        refused(bench.write(&array, 0, 8, 2).await);
        let message = refused(bench.write(&array, 0, 8, 2).await);
        assert!(
            message.contains("writes are refused: too few members")
                && message.contains("; bring its members back"),
            "{message}"
        );
        // The data of the member that is left can still be read.
        let mut readable = 0;
        for at in (0..256).step_by(64) {
            readable += usize::from(bench.read(&array, at, 64).await.is_ok());
        }
        assert!((1..4).contains(&readable), "{readable}");
        assert!(array.report().down.is_some());
    });
}

#[test]
fn a_controller_that_is_pulled_takes_its_members_at_once() {
    run(5, 1, &[8; 4], async |bench| {
        // Disks 0 and 2 are on one controller, 1 and 3 on the other.
        let array = bench
            .create(Level::Raid10, &[0, 1, 2, 3], &[])
            .await
            .unwrap();
        assert_eq!(array.report().warnings, Vec::<String>::new());
        bench.write(&array, 0, 1024, 1).await.unwrap();
        bench.control.kill(bench.disks[0]);
        bench.control.kill(bench.disks[2]);
        // One request to one of them shows both.
        bench.write(&array, 0, 8, 2).await.unwrap();
        bench.sleep(1).await;
        let failed = |m: &&raid::MemberReport| matches!(m.state, MemberState::Failed { .. });
        let report = array.report();
        let roles: Vec<_> = report
            .members
            .iter()
            .filter(failed)
            .map(|m| m.role)
            .collect();
        assert_eq!(roles, [0, 2]);
        assert!(bench.holds(&array, 8, 1000, 1).await);
        assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    });
}

#[test]
fn whole_stripes_are_written_without_reading() {
    run(6, 1, &[8; 5], async |bench| {
        let array = bench
            .create(Level::Raid5, &[0, 1, 2, 3, 4], &[])
            .await
            .unwrap();
        let reads = |array: &raid::Array| -> u64 {
            array.report().members.iter().map(|m| m.counts.reads).sum()
        };
        let before = reads(&array);
        bench.write(&array, 256, 256 * 3, 5).await.unwrap();
        assert_eq!(reads(&array), before);
        bench.write(&array, 260, 8, 6).await.unwrap();
        assert_eq!(reads(&array), before + 2, "old data and old parity");
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
    });
}

#[test]
fn a_scrub_finds_what_differs_and_a_majority_decides() {
    run(7, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 1024, 9).await.unwrap();
        // Behind the array's back, on the first member.
        let mut buf = bench.env.pool.get(512).await;
        buf.fill(1);
        let first = bench.candidate(0).device;
        first
            .write(Lba(2048 + 77), buf.share(), block::Fua::No)
            .await
            .unwrap();
        let found = array.scrub(false).await.unwrap();
        assert_eq!((found.mismatches, found.repaired), (1, 0));
        let found = array.scrub(true).await.unwrap();
        assert_eq!((found.mismatches, found.repaired), (1, 1));
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        for _ in 0..3 {
            assert!(bench.holds(&array, 77, 1, 9).await);
        }
    });
}

#[test]
fn a_hand_cannot_take_the_last_copy() {
    run(8, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.fail(0).await.unwrap();
        assert!(refused(array.fail(1).await).contains("no other member has"));
        assert!(refused(array.fail(2).await).contains("no member 2"));
        bench.write(&array, 0, 8, 1).await.unwrap();
    });
}

/// Work in flight, here a write that is not waited for, ends first.
#[test]
fn an_array_that_releases_its_members_can_be_reassembled() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5] {
        run(9, 1, &[8; 4], async move |bench| {
            let spares: &[usize] = if level.is_redundant() { &[3] } else { &[] };
            let array = bench.create(level, &[0, 1, 2], spares).await.unwrap();
            bench.write(&array, 0, 384, 1).await.unwrap();
            let soon = bench.env.timer.sleep(Nanos::from_micros(20));
            let write = Box::pin(bench.write(&array, 64, 8, 2));
            assert!(matches!(select(write, soon).await, Either::Right(_)));
            array.release().await;
            let members = array.report().members;
            assert!(members.iter().all(|member| member.device.is_none()));
            refused(bench.write(&array, 0, 8, 3).await);
            refused(bench.read(&array, 0, 8).await.map(drop));
            let again = bench
                .assemble(&[&[0, 1, 2], spares].concat())
                .await
                .unwrap();
            assert!(bench.holds(&again, 0, 64, 1).await, "{level:?}");
            bench.write(&again, 0, 384, 4).await.unwrap();
            assert!(bench.holds(&again, 0, 384, 4).await, "{level:?}");
        });
    }
}

#[test]
fn a_spare_that_is_taking_a_place_cannot_be_added_again() {
    run(11, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[3]).await.unwrap();
        array.fail(0).await.unwrap();
        let fresh = bench.uuid();
        while !array.is_settled() {
            let added = array.add(bench.candidate(3), fresh, true).await;
            let message = refused(added);
            assert!(message.contains("in this array already"), "{message}");
            bench.env.timer.sleep(Nanos::from_micros(20)).await;
        }
    });
}

const CHUNK: u64 = 64;

/// Returns the first byte of a sector, and `new` that after a test's write: no two chunks and their
/// parity make up for each other.
fn old(at: u64) -> u8 {
    (at / CHUNK) as u8 + 1
}

fn new(at: u64) -> u8 {
    (at / CHUNK) as u8 * 3 + 101
}

/// A missing member's data is computed from the others. A write that one of them refuses may leave
/// nothing from which the data could be computed.
#[test]
fn a_write_that_fails_without_a_member_leaves_no_wrong_byte() {
    for (missing, failing) in [(0, 1), (0, 2), (1, 3), (3, 0)] {
        let (mut sim, disks) = run(8, 1, &[8; 4], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2, 3], &[]).await;
            let array = array.unwrap();
            for at in (0..2048).step_by(CHUNK as usize) {
                bench.write(&array, at, CHUNK, old(at)).await.unwrap();
            }
            array.fail(missing).await.unwrap();
            array.close().await.unwrap();
        });
        let refuse = FaultRule {
            disk: disks[failing],
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(6144), Sectors(1024))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Media),
        };
        let faults = FaultPlan::of(vec![refuse]);
        let present: Vec<_> = (0..4).filter(|role| *role != missing).collect();
        // Twice: as the array runs, and reassembled from the content of the members.
        for faults in [faults, FaultPlan::default()] {
            let writes = !faults.rules.is_empty();
            let present = present.clone();
            sim.world_mut().set_plan(faults).unwrap();
            drive(&mut sim, &disks, async move |bench| {
                let array = bench.assemble(&present).await.unwrap();
                let (mut refused, mut lost) = (0, 0);
                for at in (4..2048).step_by(CHUNK as usize) {
                    if writes {
                        let written = bench.write(&array, at, 8, new(at)).await;
                        refused += u32::from(written.is_err());
                    }
                }
                for at in 0..2048 {
                    let written = (4..12).contains(&(at % CHUNK));
                    match bench.read(&array, at, 1).await {
                        Ok(buf) if buf.iter().all(|b| *b == old(at)) => {}
                        Ok(buf) if written && buf.iter().all(|b| *b == new(at)) => {}
                        Ok(buf) => panic!("sector {at} holds {}", buf[0]),
                        Err(error) => {
                            assert_eq!(error.kind(), IoErrorKind::Media);
                            lost += 1;
                        }
                    }
                }
                assert!(!writes || refused > 5, "{refused}");
                assert!(lost > 0 && lost <= 8 * 32, "{lost} of 8 in each chunk");
                array.close().await.unwrap();
            });
        }
    }
}

/// A member that is lost amid writes and comes back holds part of them.
#[test]
fn what_is_missing_is_not_computed_from_updates_that_were_cut_short() {
    let cut_short = Rc::new(Cell::new(0));
    for seed in 0..40 {
        let cut_short = cut_short.clone();
        run(100 + seed, 1, &[8; 4], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2, 3], &[]).await;
            let array = array.unwrap();
            for at in (0..2048).step_by(CHUNK as usize) {
                bench.write(&array, at, CHUNK, old(at)).await.unwrap();
            }
            array.flush().await.unwrap();
            array.fail(0).await.unwrap();
            let writes = (4..2048).step_by(CHUNK as usize);
            let writes = join_all(writes.map(|at| bench.write(&array, at, 8, new(at))));
            let loss = async {
                let after = Nanos::from_micros(1 + seed * 97);
                bench.env.timer.sleep(after).await;
                bench.control.kill(bench.disks[1]);
            };
            let (written, ()) = join(writes, loss).await;
            let failed = written.iter().any(|result| result.is_err());
            cut_short.set(cut_short.get() + u32::from(failed));
            // The loss of the member is noticed here at the latest.
            for at in (0..2048).step_by(CHUNK as usize) {
                let _ = bench.read(&array, at, 1).await;
            }
            bench.control.revive(bench.disks[1]);
            bench.sleep(1).await;
            for at in 0..2048 {
                let touched = (4..12).contains(&(at % CHUNK));
                match bench.read(&array, at, 1).await {
                    Ok(buf) if buf.iter().all(|b| *b == old(at)) => {}
                    Ok(buf) if touched && buf.iter().all(|b| *b == new(at)) => {}
                    Ok(buf) => panic!("seed {seed}: sector {at} holds {}", buf[0]),
                    Err(error) => assert_eq!(error.kind(), IoErrorKind::Gone),
                }
            }
        });
    }
    assert!(cut_short.get() > 9, "{cut_short:?} losses came amid writes");
}

/// Both members hang at once. One is lost, since the other is there; the other is waited for, since
/// no other is left.
#[test]
fn the_last_member_is_waited_for() {
    let (mut sim, disks) = run(31, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 64, 1).await.unwrap();
        array.close().await.unwrap();
    });
    let hang = |disk: &block::TargetId| FaultRule {
        disk: *disk,
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(2048), Sectors(64))),
        when: When::Nth(1),
        effect: FaultEffect::Stick(None),
    };
    strike(&mut sim, disks.iter().map(hang).collect());
    drive(&mut sim, &disks, async |bench| {
        let options = raid::Options {
            timeout: Some(Nanos::from_millis(10)),
            ..crate::common::options()
        };
        let members = bench.candidates(&[0, 1]);
        let array = bench.assemble_with(members, options).await;
        let array = array.unwrap();
        let (disks, control, timer) = (
            bench.disks.clone(),
            bench.control.clone(),
            bench.env.timer.clone(),
        );
        bench.env.spawn.spawn(async move {
            timer.sleep(Nanos::from_millis(500)).await;
            disks.iter().for_each(|disk| control.release(*disk));
        });
        let began = bench.env.timer.now();
        bench.write(&array, 0, 64, 2).await.unwrap();
        assert!(bench.env.timer.now() - began >= Nanos::from_millis(500));
        let report = array.report();
        assert_eq!(report.down, None);
        let lost = report.members.iter().position(|m| m.state.is_failed());
        let lost = lost.expect("one of both took too long");
        assert!(!report.members[1 - lost].state.is_failed());
        bench.sleep(10).await;
        let given = array.add(bench.candidate(lost), bench.uuid(), false).await;
        given.unwrap();
        bench.settled(&array).await;
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        assert!(bench.holds(&array, 0, 64, 2).await);
    });
}
