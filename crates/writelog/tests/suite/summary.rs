//! Openings from summaries: the reads saved, and no later record overlooked.

use crate::rig::{Leaf, Rig, Tapped, config, run};
use block::{Device, Fua, Lba};
use layout::{BLOCK_BYTES, LOG_NUMBER, SEGMENT_BLOCKS, Segment, SegmentCopy, Uuid};
use writelog::CopyArea;

/// Blocks of a write: two such records fill a segment.
const BLOCKS: u64 = 100;
/// Segments for all records below half of the log, where nothing presses.
const SEGMENTS: u32 = 16;
/// Block of the first record in the first segment, after its fence.
const FIRST: u32 = 2;

async fn write(rig: &Rig, log: &impl Device, nth: u64, blocks: u64, byte: u8) {
    let data = rig.data(blocks as usize, byte).await;
    let at = Lba(nth * BLOCKS * 8);
    log.write(at, data, Fua::No).await.unwrap();
}

fn at(slot: u32, block: u32) -> Lba {
    Lba(u64::from(slot * SEGMENT_BLOCKS + block) * 8)
}

/// Overwrites a block of a segment on a copy.
async fn put(rig: &Rig, copy: usize, slot: u32, block: u32, bytes: &[u8]) {
    let mut buf = rig.local.env().pool.get(BLOCK_BYTES).await;
    buf.copy_from_slice(bytes);
    let leaf = rig.leaf(1 + copy);
    let written = leaf.write(at(slot, block), buf.share(), Fua::Yes);
    written.await.unwrap();
}

/// Moves a block of a segment to another slot of a copy.
async fn relocate(rig: &Rig, copy: usize, block: u32, from: u32, to: u32) {
    let buf = rig.local.env().pool.get(BLOCK_BYTES).await;
    let (buf, read) = rig.leaf(1 + copy).read(at(from, block), buf).await;
    read.unwrap();
    put(rig, copy, to, block, &buf).await;
    wipe(rig, copy, from, block).await;
}

async fn wipe(rig: &Rig, copy: usize, slot: u32, block: u32) {
    put(rig, copy, slot, block, &[0; BLOCK_BYTES]).await;
}

fn both(rig: &Rig) -> [Option<CopyArea<Leaf>>; 2] {
    rig.areas(SEGMENTS, |leaf| leaf)
}

fn without(rig: &Rig, copy: usize) -> [Option<CopyArea<Leaf>>; 2] {
    let mut areas = both(rig);
    areas[copy] = None;
    areas
}

fn untrusted(rig: &Rig, copy: usize) -> [Option<CopyArea<Leaf>>; 2] {
    let mut areas = both(rig);
    areas[copy].as_mut().unwrap().trusted = false;
    areas
}

/// Writes three segments of two records each, and a fourth with a header and one record.
async fn filled(rig: &Rig, flushed: bool) {
    let log = rig.open(1, both(rig)).await.unwrap();
    for nth in 0..6 {
        write(rig, &log, nth, BLOCKS, 1 + nth as u8).await;
    }
    if flushed {
        log.flush().await.unwrap();
    }
    write(rig, &log, 6, BLOCKS, 7).await;
    log.close().await;
}

#[test]
fn headers_of_durable_records_are_not_read() {
    run(|rig| async move {
        filled(&rig, true).await;
        for copy in [0, 1] {
            wipe(&rig, copy, 0, FIRST).await;
            wipe(&rig, copy, 1, 1).await;
            wipe(&rig, copy, 2, 1 + 1 + BLOCKS as u32).await;
        }
        let log = rig.open(2, both(&rig)).await.unwrap();
        for nth in 0..7 {
            let byte = 1 + nth as u8;
            rig.expect(&log, nth * BLOCKS, BLOCKS as usize, byte).await;
        }
        log.close().await;
    });
}

#[test]
fn records_that_may_not_be_durable_are_verified() {
    run(|rig| async move {
        filled(&rig, false).await;
        for copy in [0, 1] {
            wipe(&rig, copy, 1, 7).await;
        }
        let log = rig.open(2, both(&rig)).await.unwrap();
        rig.expect(&log, BLOCKS, BLOCKS as usize, 2).await;
        // The first hole ends the log.
        rig.expect(&log, 2 * BLOCKS, BLOCKS as usize, 0).await;
        rig.expect(&log, 6 * BLOCKS, BLOCKS as usize, 0).await;
        log.close().await;
    });
}

#[test]
fn a_copy_is_made_whole_though_summaries_have_all_dirty_data() {
    run(|rig| async move {
        filled(&rig, true).await;
        for slot in 0..4 {
            for block in 0..SEGMENT_BLOCKS {
                wipe(&rig, 0, slot, block).await;
            }
        }
        rig.open(2, untrusted(&rig, 0)).await.unwrap().close().await;
        let log = rig.open(3, without(&rig, 1)).await.unwrap();
        for nth in 0..7 {
            let byte = 1 + nth as u8;
            rig.expect(&log, nth * BLOCKS, BLOCKS as usize, byte).await;
        }
        log.close().await;
    });
}

/// Two records are durable, and a power cut took all but the header of the next segment.
async fn turned(rig: &Rig) {
    let log = rig.open(1, both(rig)).await.unwrap();
    write(rig, &log, 0, BLOCKS, 1).await;
    write(rig, &log, 1, BLOCKS, 2).await;
    log.flush().await.unwrap();
    write(rig, &log, 2, BLOCKS, 3).await;
    log.close().await;
    for copy in [0, 1] {
        wipe(rig, copy, 1, 1).await;
    }
}

#[test]
fn what_follows_a_segment_that_has_a_summary_is_not_overlooked() {
    run(|rig| async move {
        turned(&rig).await;
        let log = rig.open(2, both(&rig)).await.unwrap();
        // The first segment would have room for it.
        write(&rig, &log, 3, 10, 4).await;
        log.flush().await.unwrap();
        log.close().await;
        let log = rig.open(3, both(&rig)).await.unwrap();
        rig.expect(&log, BLOCKS, BLOCKS as usize, 2).await;
        rig.expect(&log, 2 * BLOCKS, BLOCKS as usize, 0).await;
        rig.expect(&log, 3 * BLOCKS, 10, 4).await;
        log.close().await;
    });
}

#[test]
fn nor_is_it_if_a_copy_that_was_away_has_the_summary() {
    run(|rig| async move {
        turned(&rig).await;
        // In a slot that is not used again soon.
        relocate(&rig, 0, 0, 1, 5).await;
        wipe(&rig, 1, 1, 0).await;
        rig.open(2, without(&rig, 0)).await.unwrap().close().await;
        let log = rig.open(3, untrusted(&rig, 0)).await.unwrap();
        write(&rig, &log, 3, 10, 4).await;
        log.flush().await.unwrap();
        log.close().await;
        let log = rig.open(4, both(&rig)).await.unwrap();
        rig.expect(&log, BLOCKS, BLOCKS as usize, 2).await;
        rig.expect(&log, 3 * BLOCKS, 10, 4).await;
        log.close().await;
    });
}

#[test]
fn nor_is_it_if_a_copy_could_not_read_the_summary_for_once() {
    run(|rig| async move {
        turned(&rig).await;
        wipe(&rig, 1, 1, 0).await;
        let spoiled = |leaf| Tapped {
            unreadable: Some(at(1, 0)),
            ..Tapped::new(leaf)
        };
        let areas = rig.areas(SEGMENTS, spoiled);
        let log = rig.open_before(rig.leaf(0), config(2), areas, None);
        let log = log.await.unwrap();
        write(&rig, &log, 3, 10, 4).await;
        log.flush().await.unwrap();
        let log = rig.open(3, both(&rig)).await.unwrap();
        rig.expect(&log, 3 * BLOCKS, 10, 4).await;
        log.close().await;
    });
}

/// A segment that only one copy began, and that a later incarnation began again without that copy.
#[test]
fn of_two_segments_with_one_number_the_later_holds() {
    // The stale segment is scanned first, and last.
    for (newer, stale) in [(5, 1), (1, 5)] {
        run(move |rig| async move {
            turned(&rig).await;
            for copy in [0, 1] {
                wipe(&rig, copy, 1, 0).await;
            }
            let log = rig.open(2, both(&rig)).await.unwrap();
            write(&rig, &log, 2, BLOCKS, 4).await;
            log.flush().await.unwrap();
            log.close().await;
            if newer != 1 {
                for (copy, block) in (0..SEGMENT_BLOCKS).flat_map(|block| [(0, block), (1, block)])
                {
                    relocate(&rig, copy, block, 1, newer).await;
                }
            }
            let header = Segment {
                number: 1,
                incarnation: 1,
                log: LOG_NUMBER,
                copies: [0, 1].map(|member| SegmentCopy { member, slot: 1 }),
                summary: None,
            };
            let mut block = [0; BLOCK_BYTES];
            header.encode(Uuid(1), &mut block);
            put(&rig, 0, stale, 0, &block).await;
            let log = rig.open(3, both(&rig)).await.unwrap();
            rig.expect(&log, 2 * BLOCKS, BLOCKS as usize, 4).await;
            log.close().await;
        });
    }
}
