//! Members that are older than they should be: restored from a copy, or left behind
//! by starts that were cut short.

use crate::common::{Bench, drive, run, strike};
use block::{Device, Extent, Fua, Lba, Sectors};
use raid::{Array, Level, MemberState, examine};

/// The first sectors of a disk: superblocks and bitmap.
const META: u64 = 32;

async fn save(bench: &Bench, disk: usize, from: u64, sectors: u64) -> Vec<u8> {
    let device = bench.candidate(disk).device;
    let buf = bench.env.pool.get(sectors as usize * 512).await;
    let (buf, result) = device.read(Lba(from), buf).await;
    result.unwrap();
    buf.to_vec()
}

async fn restore(bench: &Bench, disk: usize, from: u64, bytes: &[u8]) {
    let mut buf = bench.env.pool.get(bytes.len()).await;
    buf.copy_from_slice(bytes);
    let device = bench.candidate(disk).device;
    let written = device.write(Lba(from), buf.share(), Fua::Yes).await;
    written.unwrap();
}

async fn events(bench: &Bench, disk: usize) -> u64 {
    let found = examine(&bench.env, &bench.candidate(disk).device).await;
    found.unwrap().expect("a superblock").events
}

/// Takes member 1 out and gives it back, and waits until it is whole.
async fn out_and_in(bench: &Bench, array: &Array) {
    array.fail(1).await.unwrap();
    let given = array.add(bench.candidate(1), bench.uuid(), false).await;
    given.unwrap();
    bench.settled(array).await;
    // Bits are cleared once nothing is written any more.
    bench.sleep(2000).await;
}

/// A mirror with a member that failed in the end, of which the superblocks are
/// restored from before a write that is marked no more.
async fn restored(bench: &Bench) -> Array {
    let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
    for _ in 0..3 {
        out_and_in(bench, &array).await;
    }
    let old = save(bench, 1, 0, META).await;
    let before = events(bench, 1).await;
    out_and_in(bench, &array).await;
    array.fail(1).await.unwrap();
    let failed_at = events(bench, 0).await;
    // What distinguishes a sum from a product.
    assert!(before + 2 < failed_at && before * 2 >= failed_at);
    restore(bench, 1, 0, &old).await;
    // Sectors that no bit covers are old too.
    restore(bench, 1, 8192, &[9; 4096]).await;
    array
}

async fn is_filled_whole(bench: &Bench, array: &Array) {
    bench.settled(array).await;
    assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
}

#[test]
fn a_member_that_is_a_copy_of_old_is_filled_whole_when_it_returns() {
    run(21, 1, &[8; 2], async |bench| {
        let array = restored(&bench).await;
        let given = array.add(bench.candidate(1), bench.uuid(), false).await;
        given.unwrap();
        is_filled_whole(&bench, &array).await;
    });
}

#[test]
fn a_member_that_is_a_copy_of_old_is_filled_whole_at_a_start() {
    run(22, 1, &[8; 2], async |bench| {
        let array = restored(&bench).await;
        array.close().await.unwrap();
        drop(array);
        bench.sleep(300).await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        is_filled_whole(&bench, &array).await;
    });
}

/// A copy of a member that has not failed since.
#[test]
fn a_member_that_is_older_than_the_others_is_filled_whole() {
    run(23, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let old = save(&bench, 1, 0, META).await;
        out_and_in(&bench, &array).await;
        array.close().await.unwrap();
        drop(array);
        bench.sleep(300).await;
        restore(&bench, 1, 0, &old).await;
        restore(&bench, 1, 8192, &[9; 4096]).await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        assert_ne!(array.report().members[1].state, MemberState::InSync);
        is_filled_whole(&bench, &array).await;
    });
}

/// A start writes to one member only, again and again: the other has missed no
/// write for all that.
#[test]
fn starts_that_are_cut_short_leave_no_member_behind() {
    run(24, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
        drop(array);
        bench.sleep(300).await;
        for start in 0..5 {
            let before = save(&bench, 1, 0, 16).await;
            let array = bench.assemble(&[0, 1]).await.unwrap();
            let state = array.report().members[1].state;
            assert_eq!(state, MemberState::InSync, "start {start}");
            drop(array);
            bench.sleep(300).await;
            // The copy that is written last did not reach the member.
            let copy = events(&bench, 0).await % 2 * 8;
            let bytes = &before[copy as usize * 512..][..4096];
            restore(&bench, 1, copy, bytes).await;
        }
    });
}

/// Of a member that returns, one copy of the superblock is damaged, and the first
/// write to the other is torn: it is known all the same.
#[test]
fn a_damaged_superblock_is_mended_before_the_other_is_written() {
    for (damaged, before) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (mut sim, disks) = run(25, 1, &[8; 2], async move |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
            // Each time another copy is written next.
            for _ in 0..before {
                out_and_in(&bench, &array).await;
            }
            array.fail(1).await.unwrap();
            array.close().await.unwrap();
            drop(array);
            bench.sleep(300).await;
            restore(&bench, 1, damaged * 8, &[0; 4096]).await;
        });
        let torn = sim::Rule {
            disk: disks[1],
            ops: sim::Ops::Writes,
            within: Some(Extent::new(Lba((1 - damaged) * 8), Sectors(8))),
            when: sim::When::Nth(1),
            effect: sim::Effect::Ruin,
        };
        strike(&mut sim, vec![torn]);
        let control = sim.world().control();
        drive(&mut sim, &control, &disks, async |bench| {
            // It may have to be left behind again.
            let array = bench.assemble(&[0, 1]).await.unwrap();
            bench.sleep(5000).await;
            drop(array);
            events(&bench, 1).await;
        });
    }
}
