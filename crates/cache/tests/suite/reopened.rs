//! A pool that is opened again after an event that a single run does not see. Such events are an
//! older image, an origin that was left to others, changed ids and sizes, and a member that lacks
//! writes of the others.

use crate::place::{LINE, Place, Rig, cut_off};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use cache::{CacheMode, Counter, DeviceFindings};
use layout::LayoutPlan as Areas;
use sim::{FaultEffect, FaultPlan, FaultRule, OpFilter, RunOutcome, When};

/// Places of the metadata on a pool's device.
fn areas() -> Areas {
    Areas::new(Sectors::from_mib(8), LINE as u32 / 8).unwrap()
}

fn line_of(byte: u8) -> Vec<u8> {
    vec![byte; (LINE * 512) as usize]
}

#[test]
fn a_device_restored_from_an_older_image_is_not_trusted() {
    for crash in [false, true] {
        let mut place = Place::filled(1);
        let disk = place.pool[0];
        let image = place.image(disk);
        place.live(&[0], crash, async |rig| {
            rig.cache.warmed().await;
            for line in 0..16 {
                rig.write(line * LINE, LINE, 2).await;
            }
            rig.volume.flush().await.unwrap();
        });
        place.patch(disk, Lba::ZERO, image);
        place.done(&[0], |rig| async move {
            let found = rig.opened.devices[0].found;
            assert!(
                matches!(found, DeviceFindings::Unusable(why) if why.contains("back in time")),
                "{found:?}"
            );
            rig.cache.warmed().await;
            rig.expect(0, LINE, 2).await;
            rig.agrees().await;
        });
    }
}

/// Of two incarnations one was cut short, and its state is put back after the other.
#[test]
fn no_two_incarnations_give_their_superblocks_one_sequence_number() {
    let mut cut_short = 0;
    for step in 1.. {
        let mut place = Place::filled(step);
        let disk = place.pool[0];
        let before = place.image(disk);
        place.cut_after(step);
        let outcome = place.run(&[0], |rig| async move {
            rig.cache.warmed().await;
        });
        if outcome == RunOutcome::Done {
            break;
        }
        cut_off(&mut place, outcome);
        cut_short += 1;
        let image = place.image(disk);
        place.patch(disk, Lba::ZERO, before);
        place.cut(&[0], async |rig: Rig| {
            rig.cache.warmed().await;
            for line in 0..16 {
                rig.write(line * LINE, LINE, 2).await;
            }
            rig.cut().await;
        });
        place.patch(disk, Lba::ZERO, image);
        place.done(&[0], |rig| async move {
            rig.cache.warmed().await;
            rig.expect(0, LINE, 2).await;
            rig.agrees().await;
        });
    }
    assert!(cut_short > 10, "{cut_short}");
}

#[test]
fn what_was_cached_of_a_volume_that_ended_quiesced_is_forgotten() {
    for crash in [false, true] {
        let mut place = Place::new(2, 1);
        place.live(&[0], crash, async |rig| {
            rig.fill().await;
            rig.sleep(100).await;
            rig.volume.quiesce().await.unwrap();
        });
        place.patch(place.origin, Lba::ZERO, line_of(9));
        place.done(&[0], |rig| async move {
            assert_eq!(rig.opened.quiesced, ["volume"]);
            rig.cache.warmed().await;
            assert_eq!(rig.count(Counter::LinesRestored), 0);
            rig.expect(0, LINE, 9).await;
            rig.cache.settle().await;
            rig.end().await;
        });
        // The volume is no longer quiesced.
        place.done(&[0], |rig| async move {
            assert!(rig.opened.quiesced.is_empty());
            rig.cache.warmed().await;
            assert_eq!(rig.count(Counter::LinesRestored), 1);
        });
    }
}

#[test]
fn a_volume_that_was_resumed_has_its_lines_back() {
    let mut place = Place::new(3, 1);
    place.cut(&[0], async |rig: Rig| {
        rig.fill().await;
        rig.volume.quiesce().await.unwrap();
        rig.volume.resume().unwrap();
        rig.sleep(500).await;
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        assert!(rig.opened.quiesced.is_empty());
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 16);
    });
}

#[test]
fn a_volume_of_another_size_has_none_of_its_lines() {
    let mut place = Place::new(4, 2);
    let other = place.pool[1];
    place.done(&[0], move |rig| async move {
        let volume = rig.add("other", other, Some(Sectors::from_mib(4)));
        assert_eq!(rig.first(&volume).await, 0);
        rig.cache.settle().await;
        volume.close().await;
        rig.end().await;
    });
    place.patch(other, Lba::ZERO, line_of(7));
    place.done(&[0], move |rig| async move {
        let volume = rig.add("other", other, Some(Sectors::from_mib(8)));
        rig.cache.warmed().await;
        assert_eq!(rig.first(&volume).await, 7);
    });
}

#[test]
fn an_id_is_not_given_again_after_reopening() {
    let mut place = Place::new(5, 2);
    let (first, second) = (place.origin, place.pool[1]);
    place.patch(second, Lba::ZERO, line_of(7));
    place.done(&[0], move |rig| async move {
        let volume = rig.add("first", first, None);
        rig.first(&volume).await;
        rig.fill().await;
        volume.close().await;
        rig.end().await;
    });
    for forgotten in [false, true] {
        place.done(&[0], move |rig| async move {
            if forgotten {
                rig.cache.forget("first");
            }
            let volume = rig.add(&format!("second-{forgotten}"), second, None);
            rig.cache.warmed().await;
            assert_eq!(rig.first(&volume).await, 7);
            volume.close().await;
            rig.end().await;
        });
    }
}

#[test]
fn a_volume_that_was_forgotten_stays_forgotten() {
    let mut place = Place::new(12, 2);
    let other = place.pool[1];
    place.done(&[0], move |rig| async move {
        let volume = rig.add("other", other, None);
        rig.first(&volume).await;
        rig.cache.settle().await;
        volume.close().await;
        rig.end().await;
    });
    place.cut(&[0], async |rig: Rig| {
        rig.cache.warmed().await;
        rig.sleep(100).await;
        rig.cache.forget("other");
        rig.cache.remember().await;
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        assert!(
            rig.cache
                .remembered()
                .iter()
                .all(|(name, _)| name != "other")
        );
    });
}

/// Writes of a disk's extent take so long.
fn slow(disk: TargetId, within: Extent, ms: u64) -> FaultRule {
    FaultRule {
        disk,
        ops: OpFilter::Writes,
        within: Some(within),
        when: When::Always,
        effect: FaultEffect::Delay(Nanos::from_millis(ms)),
    }
}

#[test]
fn the_log_names_no_id_that_the_superblocks_have_not_given() {
    // A write in flight at the power cut may be there or not.
    for seed in 0..8 {
        let mut place = Place::new(seed, 2);
        let (pool, other) = (place.pool[0], place.pool[1]);
        place.patch(other, Lba::ZERO, line_of(7));
        place.done(&[0], |rig| async move { rig.end().await });
        // From the second opening on, which is slow too.
        let superblocks = areas().superblocks;
        let superblocks =
            superblocks.map(|h| Extent::new(h.lba(Lba::ZERO, 0), Sectors(h.blocks * 8)));
        let plan = FaultPlan::of(superblocks.map(|copy| slow(pool, copy, 700)).to_vec());
        place.sim.world_mut().set_plan(plan).unwrap();
        place.cut(&[0], async |rig: Rig| {
            rig.cache.warmed().await;
            // The id changes; the superblock with that change is in flight when a line is logged.
            let forget = rig.volume.invalidate();
            let read = async {
                rig.sleep(100).await;
                for line in 0..4 {
                    rig.read(line * LINE, LINE).await;
                }
                rig.cache.settle().await;
                rig.sleep(300).await;
            };
            let first = futures_util::future::select(Box::pin(forget), Box::pin(read)).await;
            let early = matches!(first, futures_util::future::Either::Right(_));
            assert!(early, "the superblock was not slow");
            drop(first);
            rig.cut().await;
        });
        place
            .sim
            .world_mut()
            .set_plan(FaultPlan::default())
            .unwrap();
        place.done(&[0], move |rig| async move {
            let volume = rig.add("other", other, None);
            rig.cache.warmed().await;
            assert_eq!(rig.first(&volume).await, 7);
        });
    }
}

#[test]
fn the_log_names_a_line_only_once_its_bytes_are_durable() {
    // A write that was not flushed may outlive the power cut.
    for seed in 0..8 {
        let mut place = Place::new(seed, 1);
        place.patch(place.origin, Lba::ZERO, line_of(7).repeat(32));
        place.cut(&[0], async |rig: Rig| {
            rig.fill().await;
            // Until no superblock is due, whose write flushes too.
            rig.sleep(500).await;
            for line in 16..32 {
                rig.read(line * LINE, LINE).await;
            }
            rig.cache.settle().await;
            rig.sleep(50).await;
            rig.cut().await;
        });
        place.done(&[0], move |rig| async move {
            rig.cache.warmed().await;
            assert_eq!(rig.count(Counter::LinesRestored), 32);
            rig.agrees().await;
            assert_eq!(rig.count(Counter::BlocksCorrupt), 0, "{seed}");
        });
    }
}

#[test]
fn a_change_amid_a_checkpoint_is_in_the_log_after_it() {
    let mut place = Place::filled(13);
    let pool = place.pool[0];
    let maps = areas().maps;
    let maps = maps.map(|map| Extent::new(map.lba(Lba::ZERO, 0), Sectors(map.blocks * 8)));
    let plan = FaultPlan::of(maps.map(|map| slow(pool, map, 200)).to_vec());
    place.sim.world_mut().set_plan(plan).unwrap();
    place.cut(&[0], async |rig: Rig| {
        rig.cache.warmed().await;
        let before = rig.count(Counter::Checkpoints);
        // Each commit writes a block of the log.
        for byte in 0.. {
            if rig.count(Counter::Checkpoints) > before {
                break;
            }
            rig.write(LINE, LINE, byte).await;
            rig.sleep(10).await;
        }
        rig.volume.set_mode(CacheMode::WriteAround);
        rig.write(0, LINE, 9).await;
        rig.volume.flush().await.unwrap();
        // Until the checkpoint has ended and the bits are cleared.
        rig.sleep(2000).await;
        assert_eq!(rig.count(Counter::Checkpoints), before + 1);
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        rig.cache.warmed().await;
        rig.expect(0, LINE, 9).await;
        rig.agrees().await;
    });
}

#[test]
fn a_volume_is_not_written_under_an_id_that_the_superblocks_have_not_given() {
    let mut place = Place::new(7, 2);
    let other = place.pool[1];
    place.done(&[0], move |rig| async move {
        let volume = rig.add("other", other, None);
        rig.first(&volume).await;
        rig.cache.settle().await;
        volume.close().await;
        rig.end().await;
    });
    place.cut(&[0], move |rig: Rig| async move {
        rig.cache.forget("other");
        let volume = rig.add("other", other, None);
        let mut buf = rig.buf(LINE).await;
        buf.fill(7);
        volume.write(Lba(0), buf.share(), Fua::Yes).await.unwrap();
        rig.cut().await;
    });
    place.done(&[0], move |rig| async move {
        let volume = rig.add("other", other, None);
        rig.cache.warmed().await;
        assert_eq!(rig.first(&volume).await, 7);
    });
}

#[test]
fn a_write_that_forces_unit_access_is_durable() {
    for seed in 0..8 {
        let mut place = Place::new(seed, 1);
        place.cut(&[0], async |rig: Rig| {
            for line in 0..16 {
                let mut buf = rig.buf(LINE).await;
                buf.fill(3);
                let write = rig.volume.write(Lba(line * LINE), buf.share(), Fua::Yes);
                write.await.unwrap();
            }
            rig.cut().await;
        });
        let held = place.image(place.origin);
        assert!(held[..16 * (LINE * 512) as usize].iter().all(|b| *b == 3));
    }
}

#[test]
fn the_bitmap_of_every_member_counts() {
    let mut place = Place::new(8, 2);
    place.cut(&[1], async |rig: Rig| {
        rig.fill().await;
        rig.sleep(100).await;
        rig.volume.set_mode(CacheMode::WriteAround);
        rig.write(0, LINE, 5).await;
        rig.volume.flush().await.unwrap();
        rig.cut().await;
    });
    place.done(&[0, 1], |rig| async move {
        assert_eq!(rig.opened.devices[0].found, DeviceFindings::Nothing);
        assert_eq!(
            rig.opened.devices[1].found,
            DeviceFindings::Lines { clean: false }
        );
        rig.cache.warmed().await;
        rig.expect(0, LINE, 5).await;
        rig.agrees().await;
    });
}

#[test]
fn a_member_that_failed_to_take_its_superblock_is_lost_to_the_pool() {
    for copy in 0..2 {
        let mut place = Place::new(9, 2);
        place.done(&[0, 1], |rig| async move {
            rig.fill().await;
            rig.end().await;
        });
        let superblock = areas().superblocks[copy];
        let fails = FaultRule {
            disk: place.pool[0],
            ops: OpFilter::Writes,
            within: Some(Extent::new(
                superblock.lba(Lba::ZERO, 0),
                Sectors(superblock.blocks * 8),
            )),
            // The opening writes the block once.
            when: When::Nth(2),
            effect: FaultEffect::Fail(IoErrorKind::Gone),
        };
        let plan = FaultPlan::of(vec![fails]);
        place.sim.world_mut().set_plan(plan).unwrap();
        place.cut(&[0, 1], async |rig: Rig| {
            rig.cache.warmed().await;
            assert!(rig.cache.set_origin_record("volume", b"record"));
            rig.cache.remember().await;
            assert_eq!(rig.count(Counter::DevicesEjected), 1);
            for line in 0..16 {
                rig.write(line * LINE, LINE, 5).await;
            }
            rig.volume.flush().await.unwrap();
            rig.cut().await;
        });
        place.done(&[0, 1], |rig| async move {
            let found = rig.opened.devices[0].found;
            assert!(matches!(found, DeviceFindings::Unusable(_)), "{found:?}");
            rig.cache.warmed().await;
            rig.expect(0, LINE, 5).await;
            rig.agrees().await;
        });
    }
}

#[test]
fn a_bitmap_that_a_member_failed_to_take_is_not_taken() {
    let mut place = Place::new(10, 2);
    place.done(&[0, 1], |rig| async move {
        rig.fill().await;
        rig.end().await;
    });
    let bitmap = areas().bitmap;
    let fails = FaultRule {
        disk: place.pool[0],
        ops: OpFilter::Writes,
        within: Some(Extent::new(
            bitmap.lba(Lba::ZERO, 0),
            Sectors(bitmap.blocks * 8),
        )),
        when: When::Nth(1),
        effect: FaultEffect::Fail(IoErrorKind::Gone),
    };
    let whole = Extent::new(Lba::ZERO, Sectors::from_mib(1));
    let plan = FaultPlan::of(vec![fails, slow(place.witness, whole, 500)]);
    place.sim.world_mut().set_plan(plan).unwrap();
    place.cut(&[0, 1], async |rig: Rig| {
        rig.cache.warmed().await;
        let mut buf = rig.buf(LINE).await;
        buf.fill(5);
        // The loss of the member is not known yet: the write waits.
        let write = rig.volume.write(Lba(0), buf.share(), Fua::Yes);
        let limit = Nanos::from_millis(300);
        let written = rig.env.timer.timeout(limit, write).await;
        assert!(written.is_none(), "{written:?}");
        rig.cut().await;
    });
    place
        .sim
        .world_mut()
        .set_plan(FaultPlan::default())
        .unwrap();
    place.done(&[0, 1], |rig| async move {
        rig.cache.warmed().await;
        rig.agrees().await;
    });
}

#[test]
fn what_an_earlier_incarnation_logged_behind_the_end_is_not_replayed() {
    let mut place = Place::new(11, 1);
    let pool = place.pool[0];
    place.cut(&[0], async |rig: Rig| {
        // Three blocks of the log.
        for lines in [0..8, 8..16, 16..24] {
            for line in lines {
                rig.read(line * LINE, LINE).await;
            }
            rig.cache.settle().await;
            rig.sleep(100).await;
        }
        rig.cut().await;
    });
    let log = areas().log;
    let image = place.image(pool);
    let block_at = |n: u64| (log.lba(Lba::ZERO, n % log.blocks).0 * 512) as usize;
    let numbered = |n: &u64| {
        let block = &image[block_at(*n)..];
        block[4..8] == *b"HSLG" && block[16..24] == n.to_le_bytes()
    };
    let last = (1..log.blocks).take_while(numbered).last().unwrap();
    assert!(last >= 3, "{last} blocks");
    // The last but one cannot be read by one opening.
    let damaged = log.lba(Lba::ZERO, (last - 1) % log.blocks);
    place.patch(pool, damaged, vec![0xff; 4096]);
    place.cut(&[0], async |rig: Rig| {
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 8);
        rig.volume.set_mode(CacheMode::WriteAround);
        for line in 16..24 {
            rig.write(line * LINE, LINE, 9).await;
        }
        rig.volume.flush().await.unwrap();
        // Until the bits are cleared.
        rig.sleep(1000).await;
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        rig.cache.warmed().await;
        rig.expect(16 * LINE, 8 * LINE, 9).await;
        rig.agrees().await;
    });
}
