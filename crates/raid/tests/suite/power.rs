//! Losses of power together with a lost member or sectors that cannot be read. The part of a disk's
//! cache that survives is random: each case is tried often.

use crate::common::{Bench, after_power, drive, options, run, spoil, strike};
use block::{Device, Extent, Fua, IoErrorKind, IoResult, Lba, Nanos, Sectors, TargetId};
use futures_util::future::{join, join_all};
use raid::{Array, Level, Options};
use sim::{Domain, FaultEffect, FaultPlan, FaultRule, OpFilter, SimHost, When};
use std::cell::RefCell;
use std::rc::Rc;

const TRIES: u64 = 16;

/// Returns a data sector of a member, near the front.
fn inside(level: Level) -> u64 {
    if level == Level::Raid5 { 6144 } else { 2048 }
}

/// Makes `sectors` of the data of `disk` unreadable.
fn spoil_data(sim: &mut SimHost, disk: TargetId, level: Level, sectors: block::Sectors) {
    let extent = Extent::new(Lba(inside(level)), sectors);
    spoil(sim, vec![(disk, extent)]);
}

/// Returns the byte of sector `sector` of two chunks after write number `which`: no two parities
/// are alike.
fn byte(sector: u64, which: u8) -> u8 {
    which + 10 * (sector / 64) as u8
}

async fn write(
    bench: &Bench,
    array: &Array,
    (at, sectors): (u64, u64),
    which: u8,
    fua: Fua,
) -> IoResult {
    let mut buf = bench.env.pool.get(sectors as usize * 512).await;
    for (sector, bytes) in (at..).zip(buf.chunks_mut(512)) {
        bytes.fill(byte(sector, which));
    }
    array.write(Lba(at), buf.share(), fua).await
}

/// Tests that durable writes of `sectors` of a stripe from `at` on outlive power and any member,
/// and so does durable data beside them.
fn outlives_power_and_any_member(at: u64, sectors: u64) {
    for (seed, lost) in (0..TRIES).flat_map(|seed| (0..3).map(move |lost| (seed, lost))) {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let whole = write(&bench, &array, (0, 128), 1, Fua::No).await;
            whole.and(array.flush().await).unwrap();
            let part = write(&bench, &array, (at, sectors), 2, Fua::Yes).await;
            part.unwrap();
            bench.cut_power().await;
        });
        let left: Vec<_> = (0..3).filter(|disk| *disk != lost).collect();
        after_power(&mut sim, &disks, &left, async move |bench, array| {
            let read = bench.read(&array, 0, 128).await.unwrap();
            for (sector, bytes) in (0..).zip(read.chunks(512)) {
                let which = 1 + u8::from((at..at + sectors).contains(&sector));
                let kept = bytes.iter().all(|b| *b == byte(sector, which));
                assert!(kept, "seed {seed}, disk {lost}, sector {sector}");
            }
        });
    }
}

#[test]
fn a_part_of_a_stripe_written_durably_outlives_power_and_any_member() {
    outlives_power_and_any_member(3, 20);
}

#[test]
fn a_whole_stripe_written_durably_outlives_power_and_any_member() {
    outlives_power_and_any_member(0, 128);
}

/// Power goes amid a write, of a stripe or of a part, and a member with it.
#[test]
fn what_was_being_written_is_old_new_or_lost_without_any_member() {
    let mut message = [0; 3];
    for (seed, len) in (0..4 * TRIES).flat_map(|seed| [(seed, 128), (seed, 100)]) {
        let cut = Nanos::from_micros(40 + seed * 7);
        let (mut sim, disks) = run(seed, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let old = write(&bench, &array, (0, 128), 1, Fua::No).await;
            old.and(array.flush().await).unwrap();
            let (timer, control) = (bench.env.timer.clone(), bench.control.clone());
            bench.env.spawn.spawn(async move {
                timer.sleep(cut).await;
                control.cut_power(None);
            });
            // The write may be cut short.
            let _ = write(&bench, &array, (0, len), 2, Fua::No).await;
            bench.sleep(1).await;
        });
        let seen = Rc::new(RefCell::new([0; 3]));
        let counts = seen.clone();
        let lost = seed as usize % 3;
        let left: Vec<_> = (0..3).filter(|disk| *disk != lost).collect();
        after_power(&mut sim, &disks, &left, async move |bench, array| {
            for at in 0..128 {
                let which = match bench.read(&array, at, 1).await {
                    Err(_) => 0,
                    Ok(buf) if buf.iter().all(|b| *b == byte(at, 1)) => 1,
                    Ok(buf) if at < len && buf.iter().all(|b| *b == byte(at, 2)) => 2,
                    Ok(_) => panic!("seed {seed}, disk {lost}, sector {at} of {len}"),
                };
                counts.borrow_mut()[which] += 1;
            }
        });
        for (all, seen) in message.iter_mut().zip(*seen.borrow()) {
            *all += seen;
        }
    }
    assert!(!message.contains(&0), "lost, old and new: {message:?}");
}

/// A member is missing, and power goes amid a write of a stripe or nearly all of it. The record
/// leaves out the parity that follows from the data.
#[test]
fn what_was_being_written_without_a_member_is_old_or_new() {
    let cases = (0..4 * TRIES).flat_map(|seed| [(seed, 128), (seed, 127), (seed, 20)]);
    let mut seen = [0; 2];
    for (seed, len) in cases {
        let lost = seed as usize % 2;
        let cut = Nanos::from_micros(100 + seed * 9);
        let (mut sim, disks) = run(seed, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let old = write(&bench, &array, (0, 128), 1, Fua::No).await;
            old.and(array.flush().await).unwrap();
            array.fail(lost).await.unwrap();
            write(&bench, &array, (0, 128), 1, Fua::Yes).await.unwrap();
            let cut = async {
                bench.env.timer.sleep(cut).await;
                bench.cut_power().await;
            };
            let _ = join(write(&bench, &array, (0, len), 2, Fua::No), cut).await;
        });
        let counts = Rc::new(RefCell::new([0; 2]));
        let now = counts.clone();
        let left: Vec<_> = (0..3).filter(|disk| *disk != lost).collect();
        after_power(&mut sim, &disks, &left, async move |bench, array| {
            for at in 0..128 {
                let buf = bench.read(&array, at, 1).await.unwrap();
                let is = |which| buf.iter().all(|b| *b == byte(at, which));
                let is_new = at < len && is(2);
                assert!(is(1) || is_new, "seed {seed}, {len}, disk {lost}, {at}");
                now.borrow_mut()[usize::from(is_new)] += 1;
            }
        });
        for (all, now) in seen.iter_mut().zip(*counts.borrow()) {
            *all += now;
        }
    }
    assert!(!seen.contains(&0), "old and new: {seen:?}");
}

/// The parity member is lost, so that the write has no record. Power goes before any superblock
/// says so, and all members are back with it.
#[test]
fn what_is_written_without_its_parity_leaves_data_and_parity_that_fit() {
    // A part's parity is read before a record is written, that of the whole is not.
    let written = [(3, 20), (0, 128)];
    for (seed, written) in (0..TRIES).flat_map(|seed| written.map(|part| (seed, part))) {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let whole = write(&bench, &array, (0, 128), 1, Fua::No).await;
            whole.and(array.close().await).unwrap();
        });
        let rule = |disk: &TargetId| FaultRule {
            disk: *disk,
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(0), Sectors(16))),
            when: When::Always,
            effect: FaultEffect::Delay(Nanos::from_millis(20)),
        };
        strike(&mut sim, disks.iter().map(rule).collect());
        let control = sim.world().control();
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&[0, 1, 2]).await.unwrap();
            // The stripe's region is marked from here on.
            let beside = write(&bench, &array, (40, 8), 2, Fua::Yes).await;
            beside.unwrap();
            bench
                .control
                .kill(bench.disks[array.shape().stripe(0).parity]);
            let cut = async {
                bench.sleep(10).await;
                bench.cut_power().await;
            };
            let write = write(&bench, &array, written, 2, Fua::Yes);
            join(write, cut).await.0.unwrap();
        });
        disks.iter().for_each(|disk| control.revive(*disk));
        after_power(&mut sim, &disks, &[0, 1, 2], async move |bench, array| {
            bench.settled(&array).await;
            let report = array.scrub(false).await.unwrap();
            assert_eq!(report.mismatches, 0, "seed {seed}, {written:?}");
        });
    }
}

#[test]
fn a_part_written_durably_is_not_undone_by_the_whole_stripe_after_it() {
    for seed in 0..TRIES {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let part = write(&bench, &array, (3, 20), 2, Fua::Yes).await;
            part.unwrap();
            bench.write(&array, 0, 128, 3).await.unwrap();
            bench.cut_power().await;
        });
        after_power(&mut sim, &disks, &[0, 1, 2], async move |bench, array| {
            let data = bench.read(&array, 3, 20).await.unwrap();
            assert!(data.iter().all(|byte| [2, 3].contains(byte)), "seed {seed}");
        });
    }
}

#[test]
fn lost_sectors_stay_lost_until_what_is_written_to_them_is_durable() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        for seed in 0..TRIES {
            let (mut sim, disks) = run(seed, 1, &vec![8; members + 1], async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.create(level, &roles, &[]).await.unwrap();
                bench.write(&array, 0, 2048, 7).await.unwrap();
                array.close().await.unwrap();
            });
            let control = sim.world().control();
            spoil_data(&mut sim, disks[0], level, block::Sectors(8));
            drive(&mut sim, &disks, async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.assemble(&roles).await.unwrap();
                array.fail(1).await.unwrap();
                let fresh = bench.candidate(members);
                array.replace(1, fresh, bench.uuid(), false).await.unwrap();
                bench.settled(&array).await;
                array.flush().await.unwrap();
                let bad = array.report().bad;
                assert!(!bad.is_empty(), "{level:?}");
                for bad in bad {
                    let written = bench.write(&array, bad.start.0, bad.len.0, 9).await;
                    written.unwrap();
                }
                assert!(array.report().bad.is_empty());
                bench.cut_power().await;
            });
            control.power_on(Domain(0));
            drive(&mut sim, &disks, async move |bench| {
                bench.sleep(1).await;
                let others = (0..=members).filter(|disk| *disk != 1);
                let array = bench.assemble(&others.collect::<Vec<_>>()).await.unwrap();
                for at in (0..256).step_by(8) {
                    match bench.read(&array, at, 8).await {
                        Ok(data) => assert!(
                            data.iter().all(|byte| [7, 9].contains(byte)),
                            "{level:?}, seed {seed}: zeroes that nobody wrote at {at}"
                        ),
                        Err(error) => assert_eq!(error.kind(), IoErrorKind::Media),
                    }
                }
            });
        }
    }
}

#[test]
fn a_read_that_waited_while_sectors_were_given_up_does_not_take_their_zeroes() {
    let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 7).await.unwrap();
        bench.write(&array, 4096, 4096, 7).await.unwrap();
        array.close().await.unwrap();
    });
    spoil_data(&mut sim, disks[0], Level::Raid5, block::Sectors(64));
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        array.fail(1).await.unwrap();
        let fresh = bench.candidate(3);
        array.replace(1, fresh, bench.uuid(), false).await.unwrap();
        let reader = async |at| {
            while !array.is_settled() {
                match bench.read(&array, at, 64).await {
                    Ok(data) => assert!(data.iter().all(|byte| *byte == 7), "zeroes at {at}"),
                    Err(_) => bench.sleep(1).await,
                }
            }
        };
        join_all((4096..4608).step_by(64).map(reader)).await;
        assert!(!array.report().bad.is_empty(), "nothing was lost");
    });
}

#[test]
fn sectors_that_two_members_cannot_give_are_unreadable_not_gone() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        for seed in 0..TRIES {
            let (mut sim, disks) = run(seed, 1, &vec![8; members], async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.create(level, &roles, &[]).await.unwrap();
                bench.write(&array, 0, 4096, 7).await.unwrap();
                bench.write(&array, 4096, 4096, 7).await.unwrap();
                array.close().await.unwrap();
            });
            spoil_data(&mut sim, disks[0], level, block::Sectors(64));
            drive(&mut sim, &disks, async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.assemble(&roles).await.unwrap();
                // So that either leg may come first.
                for _ in 0..seed % 4 {
                    bench.read(&array, 8000, 1).await.unwrap();
                }
                bench.control.kill(bench.disks[1]);
                let mut unreadable = 0;
                for at in (0..8192).step_by(64) {
                    if let Err(error) = bench.read(&array, at, 64).await {
                        assert_eq!(error.kind(), IoErrorKind::Media, "{level:?}: {error}");
                        unreadable += 1;
                    }
                }
                assert!((1..=2).contains(&unreadable), "{level:?}: {unreadable}");
                assert!(array.report().down.is_none());
            });
        }
    }
}

/// The sectors being written when the power went cannot be read, on any disk. Sectors that a member
/// could not read and that were rewritten are durable before their source is written to.
#[test]
fn what_was_durable_outlives_a_cut_that_spoils_all_that_was_being_written() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        for (cut, reads) in (0..40).flat_map(|cut| [(cut * 25, true), (cut * 25, false)]) {
            let roles: Vec<_> = (0..members).collect();
            let all = roles.clone();
            let (mut sim, disks) = run(1, 1, &vec![8; members], async move |bench| {
                let array = bench.create(level, &all, &[]).await.unwrap();
                bench.write(&array, 0, 1024, 7).await.unwrap();
                array.flush().await.unwrap();
                let cut = async {
                    bench.env.timer.sleep(Nanos::from_micros(20)).await;
                    bench.cut_power().await;
                };
                let _ = join(bench.write(&array, 512, 64, 8), cut).await;
            });
            let latent = Extent::new(Lba(inside(level)), Sectors(8));
            let plan = FaultPlan {
                latent: vec![(disks[0], latent)],
                spoiled: 1.0,
                ..FaultPlan::default()
            };
            sim.world_mut().set_plan(plan).unwrap();
            after_power(&mut sim, &disks, &roles, async move |bench, array| {
                let read = async {
                    if reads {
                        assert!(bench.holds(&array, 0, 8, 7).await);
                    }
                    bench.sleep(1000).await;
                };
                let cut = async {
                    bench.env.timer.sleep(Nanos::from_micros(cut)).await;
                    bench.cut_power().await;
                };
                join(read, cut).await;
            });
            after_power(&mut sim, &disks, &roles, async move |bench, array| {
                let read = bench.read(&array, 0, 8).await;
                let read = read.unwrap_or_else(|error| panic!("{level:?}, {cut} us: {error}"));
                assert!(read.iter().all(|b| *b == 7), "{level:?}, {cut} us");
            });
        }
    }
}

/// A stripe that was written whole, and that no flush has covered, outlives a loss of power once a
/// member is missing: one that failed after the write, or while the write waited for it, or for
/// another.
#[test]
fn a_whole_stripe_outlives_power_once_the_array_runs_without_a_member() {
    let tries = (0..TRIES).flat_map(|seed| (0..3).map(move |lost| (seed, lost)));
    for ((seed, lost), during) in tries.flat_map(|try_| (0..3).map(move |during| (try_, during))) {
        let (mut sim, disks) = run(seed, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            let old = write(&bench, &array, (0, 128), 1, Fua::No).await;
            old.and(array.close().await).unwrap();
        });
        let rule = |role: usize, effect| FaultRule {
            disk: disks[role],
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(4096), Sectors(4096))),
            when: When::Always,
            effect,
        };
        let hangs = FaultEffect::Delay(Nanos::from_secs(5));
        let takes = FaultEffect::Delay(Nanos::from_millis(5));
        strike(
            &mut sim,
            match during {
                0 => Vec::new(),
                1 => vec![rule(lost, hangs)],
                _ => vec![rule((lost + 1) % 3, takes)],
            },
        );
        drive(&mut sim, &disks, async move |bench| {
            let options = Options {
                timeout: Some(Nanos::from_millis(10)),
                ..options()
            };
            let candidates = bench.candidates(&[0, 1, 2]);
            let array = bench.assemble_with(candidates, options).await.unwrap();
            let written = write(&bench, &array, (0, 128), 2, Fua::No);
            let failed = async {
                bench.sleep(2).await;
                if during != 1 {
                    array.fail(lost).await.unwrap();
                }
            };
            let (written, ()) = join(written, failed).await;
            written.unwrap();
            bench.cut_power().await;
        });
        strike(&mut sim, Vec::new());
        let left: Vec<_> = (0..3).filter(|disk| *disk != lost).collect();
        after_power(&mut sim, &disks, &left, async move |bench, array| {
            let read = bench.read(&array, 0, 128).await;
            let read =
                read.unwrap_or_else(|error| panic!("seed {seed}, {lost}, {during}: {error}"));
            for (sector, bytes) in (0..).zip(read.chunks(512)) {
                let is_new = bytes.iter().all(|b| *b == byte(sector, 2));
                assert!(
                    is_new,
                    "seed {seed}, disk {lost}, {during}, sector {sector}"
                );
            }
        });
    }
}
