//! The contents of a pool come back, and no stale block does.

use crate::place::{LINE, Place};
use block::Device;
use cache::{Counter, DeviceFindings};
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn lines_come_back_after_an_orderly_end() {
    let mut place = Place::new(1, 2);
    place.done(&[0, 1], |rig| async move {
        assert!(
            rig.opened
                .devices
                .iter()
                .all(|d| d.found == DeviceFindings::Nothing)
        );
        rig.fill().await;
        rig.write(0, 8, 7).await;
        rig.end().await;
    });
    place.done(&[0, 1], |rig| async move {
        let lines = DeviceFindings::Lines { clean: true };
        assert!(
            rig.opened.devices.iter().all(|d| d.found == lines),
            "{:?}",
            rig.opened
        );
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 16);
        rig.expect(0, 8, 7).await;
        for line in 1..16 {
            rig.expect(line * LINE, LINE, 0).await;
        }
        assert_eq!(rig.count(Counter::ReadsMissed), 0);
        rig.agrees().await;
        rig.cache.check();
    });
}

#[test]
fn after_a_power_cut_committed_lines_hit_and_written_regions_do_not() {
    let mut place = Place::new(2, 1);
    place.cut(&[0], |rig| async move {
        rig.fill().await;
        // One line beyond the first marked region.
        rig.read(32 << 11, LINE).await;
        rig.cache.settle().await;
        rig.sleep(100).await;
        rig.write(0, 8, 9).await;
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        assert_eq!(
            rig.opened.devices[0].found,
            DeviceFindings::Lines { clean: false }
        );
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 1);
        assert_eq!(rig.count(Counter::LinesSuspect), 16);
        rig.expect(32 << 11, LINE, 0).await;
        assert_eq!(rig.count(Counter::ReadsHit), 1);
        rig.agrees().await;
    });
}

#[test]
fn a_region_left_alone_is_trusted_again() {
    let mut place = Place::new(3, 1);
    place.cut(&[0], |rig| async move {
        rig.fill().await;
        rig.write(0, 8, 9).await;
        rig.sleep(500).await;
        rig.cut().await;
    });
    place.done(&[0], |rig| async move {
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), 16);
        rig.expect(0, 8, 9).await;
        assert_eq!(rig.count(Counter::ReadsHit), 1);
        rig.agrees().await;
    });
}

#[test]
fn the_log_wraps_and_checkpoints_follow() {
    let mut place = Place::new(6, 1);
    let counts = Rc::new(RefCell::new((0, 0)));
    let seen = counts.clone();
    place.cut(&[0], move |rig| {
        let seen = seen.clone();
        async move {
            // More than the pool holds, a commit every few lines.
            for round in 0..3 {
                for line in 0..150 {
                    rig.read((line + 50 * round) * LINE, LINE).await;
                    if line % 4 == 0 {
                        rig.sleep(25).await;
                    }
                }
            }
            rig.cache.settle().await;
            rig.sleep(100).await;
            *seen.borrow_mut() = (rig.count(Counter::Checkpoints), rig.cache.lines().0);
            rig.cut().await;
        }
    });
    let (checkpoints, lines) = *counts.borrow();
    assert!(checkpoints >= 3, "{checkpoints}");
    place.done(&[0], move |rig| async move {
        rig.cache.warmed().await;
        assert_eq!(rig.count(Counter::LinesRestored), u64::from(lines));
        assert_eq!(rig.count(Counter::MapsDamaged), 0);
        rig.cache.check();
        rig.agrees().await;
        assert_eq!(rig.count(Counter::BlocksCorrupt), 0);
    });
}

/// A figure of docs/failure-model.md: extra operations of the pool for the bitmap
/// of small random writes, and metadata for each byte promoted.
#[test]
fn marks_and_map_cost_little() {
    let mut place = Place::new(7, 1);
    place.period_ms = 1000;
    place.done(&[0], |rig| async move {
        let mut x = 1u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % (64 << 8) * 8
        };
        let superblocks = rig.count(Counter::MetadataBytes);
        for _ in 0..10_000 {
            rig.read(next(), 8).await;
        }
        rig.cache.settle().await;
        rig.sleep(3000).await;
        let promoted = rig.count(Counter::BlocksPromoted) * 4096;
        let metadata = rig.count(Counter::MetadataBytes) - superblocks;
        let each = 1.0 + metadata as f64 / promoted as f64;
        println!("{each:.4} bytes written to the pool for each that was promoted");
        assert!(promoted > 9 << 22 && each < 1.10, "{each}");
        let before = rig.count(Counter::BitmapCommits);
        for n in 1..=9_600 {
            rig.write(next(), 8, 1).await;
            if n % 32 == 0 {
                rig.volume.flush().await.unwrap();
            }
        }
        let bitmap = rig.count(Counter::BitmapCommits) - before;
        println!("{bitmap} bitmap commits for 9600 random writes of 4 KiB with 300 flushes");
        assert!(bitmap <= 30, "{bitmap}");
    });
}

#[test]
fn a_pool_ends_though_one_of_its_devices_never_answers() {
    let mut place = Place::new(9, 2);
    place.done(&[0, 1], |rig| async move {
        rig.write(0, LINE, 1).await;
        rig.cache.settle().await;
        rig.control.hang(rig.pool[0]);
        // A promotion that is never done.
        rig.read(LINE, LINE).await;
        assert!(rig.cache.filling() > 0);
        rig.volume.close().await;
        let limit = block::Nanos::from_secs(10);
        let closed = rig.env.timer.timeout(limit, rig.cache.close()).await;
        assert!(closed.is_some(), "after ten seconds it waits still");
        rig.control.release(rig.pool[0]);
    });
    place.done(&[0, 1], |rig| async move {
        let found: Vec<_> = rig.opened.devices.iter().map(|d| d.found).collect();
        assert!(matches!(
            found[..],
            [
                DeviceFindings::Unusable(_),
                DeviceFindings::Lines { clean: true }
            ]
        ));
        rig.cache.warmed().await;
        rig.agrees().await;
    });
}
