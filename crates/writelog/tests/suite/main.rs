//! Write-back: refusals, the places of blocks, and the loss of a copy.
//!
//! Not here: crashes, which are the laboratory's (`proof::writeback`).

mod damage;
mod join;
mod journal;
mod opening;
mod pace;
mod refusal;
mod rig;
mod standing;
mod summary;
mod unusable;

use block::{Content, Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::join;
use layout::{
    BLOCK_BYTES, Became, LOG_NUMBER, LogRecord, RecordExtent, SEGMENT_BLOCKS, Segment, SegmentCopy,
    Uuid,
};
use rig::{Leaf, Rig, Tapped, config, run};
use writelog::CopyArea;

async fn refused(rig: &Rig, areas: [Option<CopyArea<Leaf>>; 2]) -> String {
    let error = rig.open(1, areas).await.err().expect("it is refused");
    assert_eq!(error.kind(), IoErrorKind::Invalid);
    let (buf, read) = rig
        .leaf(1)
        .read(Lba(0), rig.local.env().pool.get(1 << 20).await)
        .await;
    read.unwrap();
    assert!(buf.iter().all(|byte| *byte == 0), "something was written");
    error.to_string()
}

#[test]
fn two_devices_of_one_controller_are_refused() {
    run(|rig| async move {
        let areas = [Some(rig.area(0, "pcie0")), Some(rig.area(1, "pcie0"))];
        let what = "write-back needs two controllers; ssd0 and ssd1 have pcie0";
        assert_eq!(refused(&rig, areas).await, what);
    });
}

#[test]
fn a_log_of_which_nothing_is_true_or_that_is_too_small_is_refused() {
    run(|rig| async move {
        let mut areas = rig.both();
        areas
            .iter_mut()
            .flatten()
            .for_each(|area| area.trusted = false);
        let what = refused(&rig, areas).await;
        assert!(what.contains("may hold dirty data"), "{what}");
        assert!(
            refused(&rig, [None, None])
                .await
                .contains("may hold dirty data")
        );
        let mut areas = rig.both();
        areas[1].as_mut().unwrap().segments = 7;
        assert_eq!(
            refused(&rig, areas).await,
            "ssd1: a write-back log needs 8 MiB"
        );
    });
}

#[test]
fn writes_go_at_the_pools_speed_and_reach_the_origin_later() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        let begin = rig.now();
        log.write(Lba(80), rig.data(2, 7).await, Fua::No)
            .await
            .unwrap();
        assert_eq!(rig.now() - begin, Nanos::from_micros(100));
        log.write(Lba(88), rig.data(1, 8).await, Fua::Yes)
            .await
            .unwrap();
        assert!(
            rig.now() - begin <= Nanos::from_micros(300),
            "forced, and flushed"
        );
        rig.expect(&log, 10, 1, 7).await;
        rig.expect(&log, 11, 1, 8).await;
        rig.expect(&log, 12, 1, 0).await;
        rig.expect(&rig.leaf(0), 10, 2, 0).await;
        assert_eq!(log.status().dirty_bytes, 2 * 4096);
        log.drain().await.unwrap();
        rig.expect(&rig.leaf(0), 10, 1, 7).await;
        rig.expect(&rig.leaf(0), 11, 1, 8).await;
        assert_eq!(
            (log.status().dirty_bytes, log.status().lag),
            (0, Nanos::ZERO)
        );
        rig.expect(&log, 10, 1, 7).await;
        log.close().await;
    });
}

/// Opens a log once more, with the known blank parts of its devices. Returns the reads of the
/// opening.
async fn reads_of(rig: &Rig, incarnation: u32, holes: &[Extent]) -> u64 {
    let mut areas = rig.areas(8, Tapped::new);
    let mut reads = Vec::new();
    for area in areas.iter_mut().flatten() {
        area.holes = holes.to_vec();
        reads.push(area.device.reads.clone());
    }
    let log = rig.open_before(rig.leaf(0), config(incarnation), areas, None);
    let log = log.await.unwrap();
    let taken = reads.iter().map(|reads| reads.get()).sum();
    for block in 0..3 * 100 {
        rig.expect(&log, block, 1, 1 + block as u8 / 2).await;
    }
    log.close().await;
    taken
}

#[test]
fn headers_in_holes_are_not_read_and_all_dirty_data_is_there() {
    run(|rig| async move {
        rig.control.kill(rig.disks[0]);
        let log = rig.open(1, rig.both()).await.unwrap();
        for block in 0..3 * 100 {
            let data = rig.data(1, 1 + block as u8 / 2).await;
            log.write(Lba(block * 8), data, Fua::No).await.unwrap();
        }
        log.flush().await.unwrap();
        log.close().await;
        rig.control.revive(rig.disks[0]);
        let mut holes = Vec::new();
        for slot in 0..8 {
            let at = Lba(slot * u64::from(SEGMENT_BLOCKS) * 8);
            let buf = rig.local.env().pool.get(BLOCK_BYTES).await;
            let (header, read) = rig.leaf(1).read(at, buf).await;
            read.unwrap();
            if header.iter().all(|byte| *byte == 0) {
                holes.push(Extent::new(at, Sectors(8)));
            }
        }
        assert!((3..8).contains(&holes.len()), "{holes:?}");
        let with = reads_of(&rig, 2, &holes).await;
        let without = reads_of(&rig, 3, &[]).await;
        assert!(
            with + 2 * holes.len() as u64 <= without,
            "{with} of {without}"
        );
    });
}

#[test]
fn extents_show_what_the_origin_does_not_have_yet() {
    run(|rig| async move {
        let origin = Tapped {
            hollow: true,
            ..Tapped::new(rig.leaf(0))
        };
        let log = rig.open_before(origin, config(1), rig.both(), None);
        let log = log.await.unwrap();
        log.write(Lba(80), rig.data(2, 7).await, Fua::No)
            .await
            .unwrap();
        log.zero(Extent::new(Lba(88), Sectors(16))).await.unwrap();
        let mut found = Vec::new();
        log.extents(Extent::new(Lba(72), Sectors(40)), &mut found)
            .await
            .unwrap();
        let run = |block: u64, blocks: u64| Extent::new(Lba(block * 8), Sectors(blocks * 8));
        let dirty = [(run(10, 1), Content::Data), (run(11, 2), Content::Zero)];
        let hole = |block, blocks| (run(block, blocks), Content::Hole);
        assert_eq!(found, [&[hole(9, 1)][..], &dirty, &[hole(13, 1)]].concat());
        log.close().await;
    });
}

#[test]
fn without_one_copy_writes_are_answered_by_the_origin_and_the_loss_is_durable_first() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        log.write(Lba(0), rig.data(4, 1).await, Fua::No)
            .await
            .unwrap();
        rig.reported.stuck.set(true);
        rig.control.kill(rig.disks[2]);
        let (timer, begin) = (rig.local.env().timer, rig.now());
        let write = log.write(Lba(8), rig.data(1, 2).await, Fua::No);
        let answered = timer.timeout(Nanos::from_secs(5), write).await;
        assert!(answered.is_none(), "before the loss was durable");
        // The lost copy is trusted until then, and may lack the write.
        rig.expect(&rig.leaf(0), 0, 1, 0).await;
        rig.reported.stuck.set(false);
        log.write(Lba(16), rig.data(1, 3).await, Fua::No)
            .await
            .unwrap();
        assert_eq!(*rig.reported.lost.borrow(), [1]);
        assert!(rig.now() - begin > Nanos::from_secs(5));
        for (block, byte) in [(0, 1), (1, 2), (2, 3), (3, 1)] {
            rig.expect(&rig.leaf(0), block, 1, byte).await;
            rig.expect(&log, block, 1, byte).await;
        }
        assert_eq!((log.status().copies, log.status().dirty_bytes), (1, 0));
        log.flush().await.unwrap();
        log.close().await;
    });
}

#[test]
fn an_origin_that_forgets_what_it_was_given_gets_all_of_it_again() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        // More writes than are in flight to the origin at once.
        for block in 0..5 {
            let data = rig.data(1, 1 + block as u8).await;
            log.write(Lba(block * 16), data, Fua::No).await.unwrap();
        }
        let timer = rig.local.env().timer;
        let (drained, ()) = join(log.drain(), async {
            timer.sleep(Nanos::from_millis(8)).await;
            // Four writes have ended, the fifth is in flight.
            rig.control.forget(rig.disks[0]);
        })
        .await;
        drained.unwrap();
        for block in 0..5 {
            rig.expect(&rig.leaf(0), block * 2, 1, 1 + block as u8)
                .await;
        }
        log.close().await;
    });
}

#[test]
fn the_last_copy_is_not_given_up_and_dirty_data_is_read_from_it() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        // The origin takes nothing, so that the data stays dirty.
        rig.control.hang(rig.disks[0]);
        log.write(Lba(0), rig.data(1, 1).await, Fua::No)
            .await
            .unwrap();
        rig.control.kill(rig.disks[1]);
        rig.expect(&log, 0, 1, 1).await;
        let timer = rig.local.env().timer;
        let write = log.write(Lba(8), rig.data(1, 2).await, Fua::No);
        assert!(timer.timeout(Nanos::from_secs(1), write).await.is_none());
        assert_eq!(
            *rig.reported.lost.borrow(),
            [0],
            "the other is known to be lost"
        );
        rig.control.release(rig.disks[0]);
        log.drain().await.unwrap();
        rig.expect(&rig.leaf(0), 0, 1, 1).await;
        log.close().await;
    });
}

#[test]
fn the_last_copy_is_never_reported_lost() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        rig.control.hang(rig.disks[0]);
        log.write(Lba(0), rig.data(1, 1).await, Fua::No)
            .await
            .unwrap();
        rig.control.kill(rig.disks[1]);
        rig.control.kill(rig.disks[2]);
        let error = log
            .write(Lba(8), rig.data(1, 2).await, Fua::No)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Gone);
        assert!(log.flush().await.is_err() && log.drain().await.is_err());
        rig.control.release(rig.disks[0]);
        log.close().await;
        let lost = rig.reported.lost.borrow();
        assert!(lost.len() < 2, "one of {lost:?} has what is dirty");
    });
}

/// No client writes to the last copy then: only the cleaner's reads show that the copy is gone.
#[test]
fn writes_fail_once_the_last_copy_cannot_be_read() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        for block in 0..200u64 {
            let data = rig.data(1, 1).await;
            log.write(Lba(block * 16), data, Fua::No).await.unwrap();
        }
        rig.control.kill(rig.disks[1]);
        let timer = rig.local.env().timer;
        let write = async || log.write(Lba(8), rig.data(1, 2).await, Fua::No).await;
        let fails = async {
            let (first, ()) = join(write(), async {
                timer.sleep(Nanos::from_millis(30)).await;
                rig.control.kill(rig.disks[2]);
            })
            .await;
            (first.unwrap_err(), write().await.unwrap_err())
        };
        let failed = timer.timeout(Nanos::from_secs(10), fails).await;
        let (first, second) = failed.expect("the writes hang");
        for error in [first, second] {
            assert!(
                matches!(error.kind(), IoErrorKind::Corrupt | IoErrorKind::Gone),
                "{error}"
            );
        }
        let drained = timer.timeout(Nanos::from_secs(10), log.drain()).await;
        drained.expect("it waits for ever").unwrap_err();
        assert_eq!(*rig.reported.lost.borrow(), [0]);
        // Once the origin is back, writes succeed there.
        rig.control.revive(rig.disks[2]);
        let again = async {
            while write().await.is_err() {
                timer.sleep(Nanos::from_secs(1)).await;
            }
        };
        let again = timer.timeout(Nanos::from_secs(200), again).await;
        again.expect("the cleaner does not go on");
        rig.expect(&rig.leaf(0), 1, 1, 2).await;
        log.close().await;
    });
}

#[test]
fn dirty_data_comes_back_at_the_next_opening_from_either_copy() {
    run(|rig| async move {
        for (missing, byte) in [(None, 1), (Some(0), 4), (Some(1), 7)] {
            let incarnation = u32::from(byte);
            let log = rig.open(incarnation, rig.both()).await.unwrap();
            log.write(Lba(0), rig.data(200, byte).await, Fua::No)
                .await
                .unwrap();
            log.discard(Extent::new(Lba(8), Sectors(8))).await.unwrap();
            log.close().await;
            let mut areas = rig.both();
            if let Some(copy) = missing {
                areas[copy] = None;
            }
            let log = rig.open(incarnation + 1, areas).await.unwrap();
            rig.expect(&log, 0, 1, byte).await;
            rig.expect(&log, 1, 1, 0).await;
            rig.expect(&log, 2, 198, byte).await;
            log.drain().await.unwrap();
            log.close().await;
            // The copy that was away has no valid data.
            let mut areas = rig.both();
            if let Some(copy) = missing {
                areas[copy].as_mut().unwrap().trusted = false;
            }
            let log = rig.open(incarnation + 2, areas).await.unwrap();
            rig.expect(&log, 2, 198, byte).await;
            assert_eq!((log.status().copies, log.status().dirty_bytes), (2, 0));
            log.close().await;
        }
    });
}

/// The log of a daemon that was killed, and of one after it that had just opened the log. Record n
/// zeroes block n. Records of the first daemon from `fence` on are void.
fn left_behind(fence: u64) -> Vec<(u32, Vec<u8>)> {
    let block = |encode: &dyn Fn(&mut [u8])| {
        let mut bytes = vec![0; BLOCK_BYTES];
        encode(&mut bytes);
        bytes
    };
    let header = |number: u64, slot: u32| {
        let segment = Segment {
            number,
            incarnation: 1,
            log: LOG_NUMBER,
            copies: [0, 1].map(|member| SegmentCopy { member, slot }),
            summary: None,
        };
        block(&|out| segment.encode(Uuid(1), out))
    };
    let record = |number: u64, segment: u64, incarnation: u32, fence: u64, blocks: u32| {
        let zeroes = (blocks > 0).then_some(RecordExtent {
            block: number,
            count: blocks,
            became: Became::Zero,
        });
        let record = LogRecord {
            number,
            incarnation,
            segment,
            interval: 0,
            written_back_to: 0,
            fence,
            written_at: 0,
            durable_to: 0,
            complete_to: 0,
            log: LOG_NUMBER,
            extents: zeroes.into_iter().collect(),
            crcs: Vec::new(),
        };
        block(&|out| record.encode(Uuid(1), out))
    };
    let next = SEGMENT_BLOCKS;
    vec![
        (0, header(0, 0)),
        (1, record(0, 0, 1, 0, 1)),
        (2, record(1, 0, 2, fence, 0)),
        (next, header(1, 1)),
        (next + 1, record(2, 1, 1, 0, 1)),
        (next + 2, record(3, 1, 1, 0, 1)),
    ]
}

#[test]
fn records_past_the_fence_of_a_later_incarnation_are_void() {
    for fence in 1..=4 {
        run(move |rig| async move {
            let before = rig.data(4, 9).await;
            rig.leaf(0).write(Lba(0), before, Fua::Yes).await.unwrap();
            for (at, bytes) in left_behind(fence) {
                for copy in [1, 2] {
                    let mut buf = rig.local.env().pool.get(BLOCK_BYTES).await;
                    buf.copy_from_slice(&bytes);
                    let lba = Lba(u64::from(at) * 8);
                    let leaf = rig.leaf(copy);
                    leaf.write(lba, buf.share(), Fua::Yes).await.unwrap();
                }
            }
            let log = rig.open(3, rig.both()).await.unwrap();
            let holds = |record: u64| record == 0 || (2..fence).contains(&record);
            for record in 0..4 {
                let byte = if holds(record) { 0 } else { 9 };
                rig.expect(&log, record, 1, byte).await;
            }
            log.close().await;
        });
    }
}

#[test]
fn a_log_that_is_full_waits_and_goes_round() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        for round in 0..40u64 {
            let data = rig.data(128, round as u8 + 1).await;
            log.write(Lba(round % 16 * 1024), data, Fua::No)
                .await
                .unwrap();
        }
        for round in 24..40u64 {
            rig.expect(&log, round % 16 * 128, 128, round as u8 + 1)
                .await;
        }
        log.drain().await.unwrap();
        rig.expect(&rig.leaf(0), 0, 128, 33).await;
        log.close().await;
    });
}

/// Each forced write is a batch of its own, with a note of its own: clients leave the notes room.
#[test]
fn a_log_that_is_full_of_forced_writes_goes_round() {
    run(|rig| async move {
        let log = rig.open(1, rig.both()).await.unwrap();
        // More clients than pacing stops: pacing lets no write wait for over a second.
        let clients = (0..400u64).map(|client| {
            let (rig, log) = (rig.clone(), log.clone());
            async move {
                for round in 0..8u64 {
                    let data = rig.data(1, round as u8 + 1).await;
                    let at = Lba((client * 8 + round % 8) * 8);
                    log.write(at, data, Fua::Yes).await.unwrap();
                }
            }
        });
        futures_util::future::join_all(clients).await;
        rig.expect(&log, 5, 1, 6).await;
        log.drain().await.unwrap();
        log.close().await;
    });
}
