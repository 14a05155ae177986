//! Members as version 1 wrote them: copies of the superblock by turns, without starts or
//! histories.

use crate::common::{Bench, FORCED, all_hold, read_copy, refused, run, write_copy};
use block::{Device, Fua, Lba};
use raid::{Array, Level, MemberState, Superblock};

/// Rewrites a sound copy as version 1 had it, with this event.
fn plain(new: &[u8], event: u64, block: &mut [u8]) {
    block.copy_from_slice(new);
    block[128..2176].fill(0);
    block[8..12].copy_from_slice(&1_u32.to_le_bytes());
    block[48..56].copy_from_slice(&event.to_le_bytes());
    block[86..96].fill(0);
    for i in 0..usize::from(new[83]) {
        let (to, from) = (128 + i * 64, 128 + i * 48);
        block[to..to + 41].copy_from_slice(&new[from..from + 41]);
        let failed_at = u64::from_le_bytes(new[from + 32..from + 40].try_into().unwrap());
        // The event of the loss.
        block[to + 32..to + 40].copy_from_slice(&(failed_at + 1).to_le_bytes());
    }
    block[12..16].fill(0);
    let sum = crc32c::crc32c(block);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Has the superblock of `disk` say what it says now as version 1 did, and one event
/// before in the other copy.
async fn make_plain(bench: &Bench, disk: usize) {
    let copies = [
        read_copy(bench, disk, 0).await,
        read_copy(bench, disk, 1).await,
    ];
    let event = |copy: &[u8]| Superblock::decode(copy).map(|found| found.events);
    let events = copies.each_ref().map(|copy| event(copy));
    let newest = events[0].max(events[1]).expect("a sound copy");
    let new = &copies[usize::from(events[1] == Some(newest))];
    for event in [newest - 1, newest] {
        let mut block = bench.env.pool.get(4096).await;
        plain(new, event, &mut block);
        write_copy(bench, disk, event % 2, block).await;
    }
    uncounted_map(bench, disk).await;
}

/// Makes the map on a disk one of which the writes were not counted.
async fn uncounted_map(bench: &Bench, disk: usize) {
    let device = bench.candidate(disk).device;
    let (mut map, read) = device.read(Lba(16), bench.env.pool.get(4096).await).await;
    read.unwrap();
    for sector in map.chunks_mut(512) {
        sector[28..32].fill(0);
        sector[4..8].fill(0);
        let sum = crc32c::crc32c(sector);
        sector[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    device.write(Lba(16), map.share(), Fua::Yes).await.unwrap();
}

async fn closed(bench: &Bench, array: Array) {
    array.close().await.unwrap();
    drop(array);
    bench.sleep(300).await;
}

fn version(block: &[u8]) -> u8 {
    block[8]
}

#[test]
fn arrays_of_version_1_are_opened_and_upgraded() {
    for (level, members) in [
        (Level::Linear, 2),
        (Level::Raid0, 2),
        (Level::Raid1, 2),
        (Level::Raid10, 4),
        (Level::Raid5, 3),
    ] {
        run(1, 1, &[8; 5], async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let spares: &[usize] = if level.is_redundant() { &[4] } else { &[] };
            let array = bench.create(level, &all, spares).await.unwrap();
            bench.write(&array, 0, 512, 1).await.unwrap();
            closed(&bench, array).await;
            let devices = [&all[..], spares].concat();
            for disk in &devices {
                make_plain(&bench, *disk).await;
            }
            for start in 0..3 {
                let array = bench.assemble(&devices).await.unwrap();
                assert!(
                    array.is_settled(),
                    "{level:?} {start}: {:?}",
                    array.events()
                );
                assert_eq!(array.report().spares.len(), spares.len());
                assert!(bench.holds(&array, 0, 512, 1).await);
                closed(&bench, array).await;
                for (disk, copy) in all.iter().flat_map(|disk| [(*disk, 0), (*disk, 1)]) {
                    let block = read_copy(&bench, disk, copy).await;
                    assert_eq!(version(&block), 3, "{level:?} disk {disk} copy {copy}");
                }
            }
        });
    }
}

/// A leg that was lost in version 1 returns once the other is of version 2.
#[test]
fn a_leg_of_version_1_returns_to_one_of_version_2() {
    run(1, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        bench.sleep(2000).await;
        array.fail(1).await.unwrap();
        bench.write(&array, 0, 64, 2).await.unwrap();
        closed(&bench, array).await;
        make_plain(&bench, 0).await;
        make_plain(&bench, 1).await;
        for start in 0..30 {
            let array = bench.assemble(&[0]).await.unwrap();
            bench.write(&array, 64 * start, 64, 2).await.unwrap();
            closed(&bench, array).await;
        }
        let array = bench.assemble(&[0, 1]).await.unwrap();
        bench.settled(&array).await;
        let written = array.report().members[1].counts.writes;
        assert!(written < 60, "it got more than it had missed: {written}");
        all_hold(&bench, &array, 64 * 30, 2).await;
    });
}

/// Two mirrored disks of version 1 that held 1: the second was lost, and the first holds 2
/// in its first 64 sectors.
async fn diverge_in_version_1(bench: &Bench) {
    let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
    bench.write(&array, 0, 4096, 1).await.unwrap();
    array.flush().await.unwrap();
    bench.sleep(2000).await;
    bench.control.kill(bench.disks[1]);
    bench.write(&array, 0, 64, 2).await.unwrap();
    closed(bench, array).await;
    bench.control.revive(bench.disks[1]);
    bench.sleep(1).await;
    make_plain(bench, 0).await;
    make_plain(bench, 1).await;
}

#[test]
fn legs_of_version_1_that_diverged_are_refused() {
    run(1, 1, &[8; 2], async |bench| {
        diverge_in_version_1(&bench).await;
        let array = bench.start(&[1], FORCED).await.unwrap();
        bench.write(&array, 4000, 64, 3).await.unwrap();
        closed(&bench, array).await;
        // It has been written by version 2, or by version 1.
        for _ in 0..2 {
            let message = refused(bench.assemble(&[0, 1]).await);
            assert!(message.contains("is a split brain"), "{message}");
            make_plain(&bench, 1).await;
        }
    });
}

/// In version 1 the newest copy alone said that a leg was lost: with that gone, the leg
/// that it was on is trusted, and the other filled.
#[test]
fn a_stale_leg_of_version_1_is_not_trusted_when_the_newest_superblock_rots() {
    run(1, 1, &[8; 2], async |bench| {
        diverge_in_version_1(&bench).await;
        // Both are in sync in what is left of the first.
        let stale = read_copy(&bench, 1, 0).await;
        let stale = Superblock::decode(&stale).expect("sound");
        let newest = [0, 1].map(async |copy| read_copy(&bench, 0, copy).await);
        let [a, b] = newest;
        let (a, b) = (a.await, b.await);
        let events = [&a, &b].map(|copy| Superblock::decode(copy).unwrap().events);
        let newest = usize::from(events[1] > events[0]);
        let mut before = bench.env.pool.get(4096).await;
        Superblock {
            member: Superblock::decode(&a).unwrap().member,
            role: 0,
            ..stale.clone()
        }
        .encode(&mut before);
        let mut block = bench.env.pool.get(4096).await;
        plain(&before, stale.events, &mut block);
        write_copy(&bench, 0, 1 - newest as u64, block).await;
        let mut rotten = [a, b].into_iter().nth(newest).unwrap();
        rotten[300] ^= 1;
        write_copy(&bench, 0, newest as u64, rotten).await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        let states = array.report().members;
        assert_eq!(states[0].state, MemberState::InSync);
        assert_ne!(states[1].state, MemberState::InSync);
        all_hold(&bench, &array, 64, 2).await;
    });
}
