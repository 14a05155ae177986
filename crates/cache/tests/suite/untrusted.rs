//! Contents of a pool's devices that must not be trusted, or not be needed.

use crate::place::{LINE, Place, Rig, cut_off};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors};
use cache::{CacheMode, Counter, DeviceFindings, NewPoolDevice};
use futures_util::future::join;
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, RunOutcome, When};
use std::cell::Cell;
use std::rc::Rc;

#[test]
fn a_device_that_missed_writes_is_not_trusted() {
    for all in [vec![0, 1], vec![0]] {
        for crash in [false, true] {
            let mut place = Place::new(4, 2);
            let away = all.clone();
            let outcome = place.run(&all, move |rig| async move {
                rig.fill().await;
                rig.sleep(100).await;
                // The lines are on the first device, which is filled first.
                rig.control.kill(rig.pool[0]);
                for line in 0..16 {
                    rig.write(line * LINE, 8, 5).await;
                }
                rig.volume.flush().await.unwrap();
                if crash {
                    rig.cut().await;
                }
                rig.end().await;
            });
            if crash {
                cut_off(&mut place, outcome);
            }
            let first = place.pool[0];
            // The device comes back, alone or with the others.
            place.sim.world().control().revive(first);
            place.done(&away, |rig| async move {
                let found = rig.opened.devices[0].found;
                assert!(matches!(found, DeviceFindings::Unusable(_)), "{found:?}");
                rig.expect(0, 8, 5).await;
                rig.agrees().await;
            });
        }
    }
}

#[test]
fn a_device_left_out_of_a_run_is_not_trusted() {
    let mut place = Place::filled(5);
    place.done(&[], |rig| async move {
        assert_eq!(rig.opened.missing.len(), 1);
        rig.write(0, LINE, 3).await;
        rig.end().await;
    });
    place.done(&[0], |rig| async move {
        assert!(matches!(
            rig.opened.devices[0].found,
            DeviceFindings::Unusable(_)
        ));
        rig.expect(0, LINE, 3).await;
    });
}

#[test]
fn a_power_cut_at_any_moment_of_the_first_opening_leaves_a_pool_that_opens() {
    let mut cuts = 0;
    // The remains of a write that is cut off differ from seed to seed.
    for (step, seed) in (1..200).flat_map(|step| (0..16).map(move |seed| (step, seed))) {
        let mut place = Place::new(step * 16 + seed, 2);
        place.cut_after(step);
        if place.run(&[0, 1], |_| async {}) == RunOutcome::Done {
            break;
        }
        cuts = step;
        cut_off(&mut place, RunOutcome::PowerCut);
        let again = place.run(&[0, 1], |rig| async move {
            rig.fill().await;
            rig.expect(0, LINE, 0).await;
        });
        assert_eq!(again, RunOutcome::Done, "step {step}, seed {seed}");
    }
    assert!((10..199).contains(&cuts), "{cuts}");
}

#[test]
fn lines_of_an_invalidated_volume_are_discarded_beside_new_ones() {
    for crash in [false, true] {
        let mut place = Place::new(11, 2);
        place.live(&[0, 1], crash, async move |rig| {
            rig.fill().await;
            rig.volume.invalidate().await.unwrap();
            rig.write(0, LINE, 7).await;
            rig.fill().await;
            rig.cache.check();
            rig.sleep(1000).await;
            assert_eq!(rig.count(Counter::LinesTrimmed), 16);
            assert_eq!(rig.cache.lines().0, 16);
            rig.fill().await;
            assert_eq!(rig.count(Counter::ReadsMissed), 32 - 1);
            rig.cache.check();
            rig.agrees().await;
        });
        place.done(&[0, 1], |rig| async move {
            rig.agrees().await;
            rig.end().await;
        });
    }
}

#[test]
fn lines_that_a_client_discards_are_discarded_on_their_device_and_give_up_their_slots() {
    for crash in [false, true] {
        let mut place = Place::new(12, 2);
        place.live(&[0, 1], crash, async move |rig| {
            rig.fill().await;
            // Half of the last line stays.
            let most = Extent::new(Lba(0), Sectors(7 * LINE + LINE / 2));
            rig.volume.discard(most).await.unwrap();
            rig.cache.check();
            // Clients read and write these lines meanwhile.
            join(rig.read(LINE, LINE), rig.write(2 * LINE, LINE, 7)).await;
            rig.sleep(1000).await;
            let trimmed = rig.count(Counter::LinesTrimmed);
            assert!((5..=7).contains(&trimmed), "{trimmed}");
            rig.expect(2 * LINE, LINE, 7).await;
            rig.fill().await;
            assert_eq!(rig.cache.lines().0, 16);
            rig.cache.check();
            rig.agrees().await;
        });
        place.done(&[0, 1], |rig| async move {
            rig.agrees().await;
            assert_eq!(rig.count(Counter::BlocksCorrupt), 0);
            rig.end().await;
        });
    }
}

/// The operator who adds the device waits, but no client does.
#[test]
fn a_device_that_becomes_unresponsive_while_it_joins_holds_up_nobody() {
    // Each of the operations that add the device may be the last to be answered.
    for answered in 0..20 {
        let mut place = Place::new(1, 2);
        let disk = place.pool[1];
        let unresponsive = FaultRule::new(
            disk,
            OpFilter::All,
            When::Nth(answered + 1),
            FaultEffect::Stick(None),
        );
        let faults = FaultPlan::of(vec![unresponsive]);
        place.sim.world_mut().set_plan(faults).unwrap();
        let outcome = place.run(&[0], move |rig| async move {
            let device = NewPoolDevice::whole(rig.local.disk(disk).unwrap(), "controller");
            let joining = rig.cache.join(device, 7);
            let joining = rig.env.timer.timeout(Nanos::from_secs(60), joining);
            let writing = async {
                rig.env.timer.sleep(Nanos::from_millis(10)).await;
                let write = rig.write(0, LINE, 1);
                let limit = Nanos::from_secs(2);
                let written = rig.env.timer.timeout(limit, write).await;
                assert!(written.is_some(), "a client waits after {answered} answers");
            };
            let (joined, ()) = join(joining, writing).await;
            assert!(joined.is_some(), "{answered} answers, and it waits still");
            rig.control.release(disk);
        });
        assert_eq!(outcome, RunOutcome::Done, "{answered}");
    }
}

/// A power cut in the writing of a superblock leaves one of its copies torn. Another one in the
/// next incarnation must not tear the other. That incarnation forgets a volume that was quiesced,
/// so that it writes another table.
#[test]
fn a_power_cut_while_one_copy_of_a_superblock_is_torn_leaves_the_other() {
    let plan = layout::LayoutPlan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
    let copies = |place: &Place| {
        let witness = [0, layout::SUPERBLOCK_BLOCKS * layout::BLOCK_SECTORS].map(Lba);
        let member = plan.superblocks.map(|area| area.lba(Lba(0), 0));
        let of = |disk, copies: [Lba; 2]| copies.map(|at| (disk, at));
        [of(place.witness, witness), of(place.pool[0], member)].concat()
    };
    for torn in 0..4 {
        let mut cuts = 0;
        // The remains of a write that is cut off differ from seed to seed.
        for (step, seed) in (1..60).flat_map(|step| (0..4).map(move |seed| (step, seed))) {
            let mut place = Place::new(step * 4 + seed, 1);
            place.done(&[0], |rig| async move {
                rig.fill().await;
                let other = rig.add("other", rig.origin, None);
                other.quiesce().await.unwrap();
                rig.cache.close().await;
            });
            // Volumes are in the second block of a superblock.
            let (disk, at) = copies(&place)[torn];
            let second = at + Sectors(layout::BLOCK_SECTORS);
            place.patch(disk, second, vec![0xff; 8 * 512]);
            place.cut_after(step);
            let outcome = place.run(&[0], |rig| async move { rig.sleep(1).await });
            if outcome == RunOutcome::Done {
                break;
            }
            cuts = step;
            cut_off(&mut place, outcome);
            let again = place.run(&[0], |rig| async move {
                let found = rig.opened.devices[0].found;
                assert!(matches!(found, DeviceFindings::Lines { .. }), "{found:?}");
                rig.cache.warmed().await;
                rig.expect(0, LINE, 0).await;
            });
            assert_eq!(
                again,
                RunOutcome::Done,
                "copy {torn}, step {step}, seed {seed}"
            );
        }
        assert!((10..59).contains(&cuts), "{cuts}");
    }
}

/// Superblocks have no room for these volumes: the rest of them is in the table areas.
#[test]
fn a_power_cut_amid_the_writing_of_many_volumes_leaves_the_old_or_the_new() {
    const VOLUMES: u32 = 40;
    let name = |number: u32| format!("volume {number}");
    let record = move |rig: &Rig, byte: u8| {
        for number in 0..VOLUMES {
            rig.add(&name(number), rig.origin, Some(Sectors(8)));
            assert!(rig.cache.set_origin_record(&name(number), &[byte; 2048]));
        }
    };
    let mut cuts = 0;
    for (step, seed) in (1..200).flat_map(|step| (0..4).map(move |seed| (step, seed))) {
        let mut place = Place::new(step * 4 + seed, 1);
        place.done(&[0], move |rig| async move {
            rig.fill().await;
            record(&rig, 1);
            rig.end().await;
        });
        let before = place.sim.world().steps();
        place.cut_after(step);
        let outcome = place.run(&[0], move |rig| async move {
            record(&rig, 2);
            rig.cache.remember().await;
            // Writes that are not durable by now are lost.
            rig.cut().await;
        });
        assert_eq!(outcome, RunOutcome::PowerCut);
        let is_past = place.sim.world().steps() - before < step;
        cut_off(&mut place, outcome);
        let again = place.run(&[0], move |rig| async move {
            let found = rig.opened.devices[0].found;
            assert!(matches!(found, DeviceFindings::Lines { .. }), "{found:?}");
            let all = (0..VOLUMES).map(|number| rig.cache.origin_record(&name(number)));
            let all: Vec<_> = all.collect();
            assert!([1, 2].map(|byte| vec![byte; 2048]).contains(&all[0]));
            assert!(
                all.iter().all(|one| *one == all[0]),
                "some are old, some new"
            );
            rig.expect(0, LINE, 0).await;
        });
        assert_eq!(again, RunOutcome::Done, "step {step}, seed {seed}");
        if is_past {
            break;
        }
        cuts = step;
    }
    assert!((20..200).contains(&cuts), "{cuts}");
}

/// Its first write has two blocks, for there are volumes to be recorded.
#[test]
fn a_power_cut_while_a_lost_witness_is_recreated_leaves_a_pool_that_opens() {
    let mut cuts = 0;
    for (step, seed) in (1..200).flat_map(|step| (0..40).map(move |seed| (step, seed))) {
        let mut place = Place::new(step * 100 + seed, 1);
        let witness = place.witness;
        place.done(&[0], move |rig| async move {
            rig.fill().await;
            rig.end().await;
            let witness = rig.local.disk(witness).unwrap();
            witness.zero(witness.geometry().extent()).await.unwrap();
            witness.flush().await.unwrap();
        });
        place.cut_after(step);
        let outcome = place.run(&[0], |rig| async move {
            rig.sleep(1).await;
        });
        if outcome == RunOutcome::Done {
            break;
        }
        cuts = step;
        cut_off(&mut place, outcome);
        let again = place.run(&[0], |rig| async move {
            rig.expect(0, LINE, 0).await;
        });
        assert_eq!(again, RunOutcome::Done, "step {step}, seed {seed}");
    }
    assert!((10..199).contains(&cuts), "{cuts}");
}

#[test]
fn one_unreadable_sector_of_metadata_costs_lines_at_most() {
    let plan = layout::LayoutPlan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
    for (name, area) in plan.areas() {
        let mut place = Place::new(5, 1);
        place.done(&[0], |rig| async move {
            rig.fill().await;
            rig.write(0, 8, 7).await;
            rig.end().await;
        });
        let bad = FaultRule {
            disk: place.pool[0],
            ops: OpFilter::Reads,
            within: Some(Extent::new(area.lba(Lba(0), 0), Sectors(8))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Media),
        };
        let faults = FaultPlan::of(vec![bad]);
        place.sim.world_mut().set_plan(faults).unwrap();
        let again = place.run(&[0], |rig| async move {
            rig.cache.warmed().await;
            rig.agrees().await;
            rig.cache.check();
        });
        assert_eq!(again, RunOutcome::Done, "{name}");
    }
}

#[test]
fn a_device_of_incarnations_that_were_cut_short_is_not_trusted() {
    let mut place = Place::filled(8);
    let disk = place.pool[0];
    place.done(&[], move |rig| async move {
        rig.write(0, LINE, 3).await;
        rig.end().await;
        // Openings with this device alone raised its epoch, and never came to the witness.
        let device = rig.local.disk(disk).unwrap();
        let sectors = layout::SUPERBLOCK_BLOCKS * layout::BLOCK_SECTORS;
        let (buf, result) = device.read(Lba(0), rig.buf(sectors).await).await;
        result.unwrap();
        let mut superblock = layout::PoolSuperblock::decode(&buf, &[]).unwrap();
        superblock.epoch += 5;
        for area in superblock.plan().unwrap().superblocks {
            let mut buf = rig.buf(sectors).await;
            superblock.encode(&mut buf);
            let at = area.lba(Lba(0), 0);
            device.write(at, buf.share(), Fua::Yes).await.unwrap();
        }
    });
    place.done(&[0], |rig| async move {
        let found = rig.opened.devices[0].found;
        assert!(matches!(found, DeviceFindings::Unusable(_)), "{found:?}");
        rig.expect(0, LINE, 3).await;
    });
}

/// A device that is reinitialised has lost its bitmap before its next superblock is written.
#[test]
fn a_power_cut_while_a_device_is_initialised_leaves_nothing_of_before_to_trust() {
    let mut cuts = 0;
    for step in 1..200 {
        let mut place = Place::new(step, 2);
        let other = place.pool[1];
        place.cut(&[0], move |rig| async move {
            rig.fill().await;
            rig.sleep(100).await;
            // Another one has an epoch of an incarnation that never came to the witness.
            let sectors = layout::SUPERBLOCK_BLOCKS * layout::BLOCK_SECTORS;
            let disk = rig.local.disk(rig.pool[0]).unwrap();
            let (buf, result) = disk.read(Lba(0), rig.buf(sectors).await).await;
            result.unwrap();
            let mut superblock = layout::PoolSuperblock::decode(&buf, &[]).unwrap();
            (superblock.device, superblock.epoch) = (layout::Uuid(7), superblock.epoch + 5);
            for area in superblock.plan().unwrap().superblocks {
                let mut buf = rig.buf(sectors).await;
                superblock.encode(&mut buf);
                let to = rig.local.disk(other).unwrap();
                let written = to.write(area.lba(Lba(0), 0), buf.share(), Fua::Yes).await;
                written.unwrap();
            }
            // The lines are stale from here on, which nothing but the bitmap shows.
            rig.volume.set_mode(CacheMode::PassThrough);
            for line in 0..16 {
                rig.write(line * LINE, 8, 5).await;
            }
            rig.volume.flush().await.unwrap();
            rig.cut().await;
        });
        place.cut_after(step);
        let outcome = place.run(&[0, 1], |_| async {});
        if outcome == RunOutcome::Done {
            break;
        }
        cuts += 1;
        cut_off(&mut place, outcome);
        let again = place.run(&[0], |rig| async move {
            rig.cache.warmed().await;
            rig.agrees().await;
        });
        assert_eq!(again, RunOutcome::Done, "step {step}");
    }
    assert!((10..199).contains(&cuts), "{cuts}");
}

/// A bit that flips in one read of map or log, and not in the next.
#[test]
fn what_could_not_be_read_once_is_not_trusted_later() {
    let mut fewer = 0;
    let plan = layout::LayoutPlan::new(Sectors::from_mib(8), (LINE / 8) as u32).unwrap();
    // As many as make one checkpoint, and then a few.
    let lines = plan.log.blocks / 2 + 5;
    let areas = plan.areas().into_iter();
    let read_back = areas.filter(|(name, _)| ["log", "map"].iter().any(|n| name.contains(n)));
    for (name, area) in read_back {
        for seed in 0..40 {
            let mut place = Place::new(100 + seed, 1);
            place.cut(&[0], move |rig| async move {
                // A commit for each, in no order that would seem sequential.
                for i in 0..lines {
                    rig.read(i * 37 % lines * LINE, LINE).await;
                    rig.cache.settle().await;
                    rig.sleep(25).await;
                }
                rig.sleep(100).await;
                rig.cut().await;
            });
            let flip = FaultRule {
                disk: place.pool[0],
                ops: OpFilter::Reads,
                within: Some(Extent::new(area.lba(Lba(0), 0), Sectors(8))),
                when: When::Nth(1),
                effect: FaultEffect::FlipBit,
            };
            let faults = FaultPlan::of(vec![flip]);
            place.sim.world_mut().set_plan(faults).unwrap();
            let restored = Rc::new(Cell::new(0));
            let seen = restored.clone();
            place.cut(&[0], move |rig| {
                let seen = seen.clone();
                async move {
                    rig.cache.warmed().await;
                    seen.set(rig.count(Counter::LinesRestored));
                    rig.volume.set_mode(CacheMode::WriteAround);
                    for line in 0..lines {
                        rig.write(line * LINE, 8, 9).await;
                    }
                    rig.volume.flush().await.unwrap();
                    // Until the bits are cleared.
                    rig.sleep(400).await;
                    rig.cut().await;
                }
            });
            fewer += u32::from(restored.get() < lines);
            let again = place.run(&[0], move |rig| async move {
                rig.cache.warmed().await;
                for line in 0..lines {
                    rig.expect(line * LINE, 8, 9).await;
                }
                rig.agrees().await;
            });
            assert_eq!(again, RunOutcome::Done, "{name}, seed {seed}");
        }
    }
    assert!(fewer > 9, "{fewer} flips were where they matter");
}
