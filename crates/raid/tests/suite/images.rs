//! Members that are older than they should be: restored from a copy, or outdated by starts that
//! were cut short.

use crate::common::{Bench, drive, refused, run, strike};
use block::{Device, Extent, Fua, Lba, Sectors};
use raid::{Array, ArrayStart, Level, MemberState, examine};

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

/// Makes a mirror with a member that failed in the end. The superblocks of the member are restored
/// from before a write that is marked no more.
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
    // A sum must differ from a product here.
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
        bench.end(array).await;
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
        bench.end(array).await;
        restore(&bench, 1, 0, &old).await;
        restore(&bench, 1, 8192, &[9; 4096]).await;
        let array = bench.assemble(&[0, 1]).await.unwrap();
        assert_ne!(array.report().members[1].state, MemberState::InSync);
        is_filled_whole(&bench, &array).await;
    });
}

/// A start writes to one member only, again and again: the other has missed no write for all that.
#[test]
fn starts_that_are_cut_short_leave_no_member_behind() {
    run(24, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.end(array).await;
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

/// Of a member that returns, one copy of the superblock is damaged, and the first write to the
/// other is torn: the member is recognised all the same.
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
            bench.end(array).await;
            restore(&bench, 1, damaged * 8, &[0; 4096]).await;
        });
        let torn = sim::FaultRule {
            disk: disks[1],
            ops: sim::OpFilter::Writes,
            within: Some(Extent::new(Lba((1 - damaged) * 8), Sectors(8))),
            when: sim::When::Nth(1),
            effect: sim::FaultEffect::Ruin,
        };
        strike(&mut sim, vec![torn]);
        drive(&mut sim, &disks, async |bench| {
            // The member may have to be evicted again.
            let array = bench.assemble(&[0, 1]).await.unwrap();
            bench.sleep(5000).await;
            drop(array);
            events(&bench, 1).await;
        });
    }
}

const LEVELS: [(Level, usize); 3] = [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)];

/// Copies all of a disk to another of its size.
async fn copy(bench: &Bench, from: usize, to: usize) {
    let (from, to) = (bench.candidate(from).device, bench.candidate(to).device);
    for at in (0..from.geometry().sectors.0).step_by(128) {
        let buf = bench.env.pool.get(65536).await;
        let (buf, result) = from.read(Lba(at), buf).await;
        result.unwrap();
        to.write(Lba(at), buf.share(), Fua::Yes).await.unwrap();
    }
}

/// Makes an array with bits that are cleared again. Its member 1 is copied to the last disk while
/// the array runs: before or after the latest writes are marked.
async fn imaged(bench: &Bench, level: Level, members: usize, marked: bool) -> Array {
    let roles: Vec<_> = (0..members).collect();
    let array = bench.create(level, &roles, &[]).await.unwrap();
    bench.write(&array, 0, 2048, 1).await.unwrap();
    array.flush().await.unwrap();
    if !marked {
        bench.sleep(3000).await;
    }
    copy(bench, 1, members).await;
    bench.write(&array, 0, 2048, 2).await.unwrap();
    array.flush().await.unwrap();
    bench.sleep(3000).await;
    array
}

/// True if the latest data can be read without member 0.
async fn is_right(bench: &Bench, array: &Array) -> bool {
    bench.settled(array).await;
    let mismatches = array.scrub(false).await.unwrap().mismatches;
    array.fail(0).await.unwrap();
    bench.holds(array, 0, 2048, 2).await && mismatches == 0
}

/// No member was lost and no array started since the image: only the maps show the regions that
/// were cleared since.
#[test]
fn an_image_of_the_same_event_that_is_put_back_is_filled() {
    for marked in [false, true] {
        for (level, members) in LEVELS {
            run(20, 1, &vec![8; members + 1], async move |bench| {
                let array = imaged(&bench, level, members, marked).await;
                array.close().await.unwrap();
                drop(array);
                copy(&bench, members, 1).await;
                let roles: Vec<_> = (0..members).collect();
                let array = bench.assemble(&roles).await.unwrap();
                assert!(is_right(&bench, &array).await, "{level:?}, marked {marked}");
            });
        }
    }
}

#[test]
fn an_image_of_the_same_event_that_is_given_for_a_lost_member_is_filled() {
    for marked in [false, true] {
        for (level, members) in LEVELS {
            run(21, 1, &vec![8; members + 1], async move |bench| {
                let array = imaged(&bench, level, members, marked).await;
                array.fail(1).await.unwrap();
                let image = bench.candidate(members);
                array.add(image, bench.uuid(), false).await.unwrap();
                assert!(is_right(&bench, &array).await, "{level:?}, marked {marked}");
            });
        }
    }
}

/// The member was lost, its image is put back, and the next start finds that.
#[test]
fn an_image_that_is_put_back_while_its_member_is_lost_is_filled() {
    for (level, members) in LEVELS {
        run(22, 1, &vec![8; members + 1], async move |bench| {
            let array = imaged(&bench, level, members, false).await;
            array.fail(1).await.unwrap();
            array.close().await.unwrap();
            drop(array);
            let all = (0..=members).filter(|disk| *disk != 1).collect::<Vec<_>>();
            let array = bench.assemble(&all).await.unwrap();
            assert!(is_right(&bench, &array).await, "{level:?}");
        });
    }
}

/// A member that comes back as it was lost gets the data that it missed, and no more.
#[test]
fn a_member_that_is_as_it_was_lost_gets_what_it_missed_alone() {
    run(23, 1, &[8; 3], async |bench| {
        let array = imaged(&bench, Level::Raid1, 2, false).await;
        array.fail(1).await.unwrap();
        bench.write(&array, 8192, 8, 3).await.unwrap();
        let own = bench.candidate(1);
        array.add(own, bench.uuid(), false).await.unwrap();
        let state = array.report().members[1].state;
        assert_eq!(state, MemberState::Rebuilding { whole: false });
        assert!(is_right(&bench, &array).await);
    });
}

/// A member is lost again amid its filling. It got a write of the map since its return, or none, or
/// one that landed after the loss. The next return does not fill all of it.
#[test]
fn a_member_that_is_lost_while_it_is_filled_gets_what_it_missed_alone() {
    for (is_marked, is_late) in [(true, false), (false, false), (false, true)] {
        run(29, 1, &[8; 2], async move |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
            let write = async |at| bench.write(&array, at, 8, 5).await.unwrap();
            array.fail(1).await.unwrap();
            for at in 0..4 {
                write(at * 1024).await;
            }
            for at in 4..8 {
                let given = array.add(bench.candidate(1), bench.uuid(), false).await;
                given.unwrap();
                let state = array.report().members[1].state;
                assert_eq!(state, MemberState::Rebuilding { whole: false });
                if is_marked {
                    write(at * 1024).await;
                }
                array.fail(1).await.unwrap();
                if is_late {
                    let map = save(&bench, 0, 16, 8).await;
                    restore(&bench, 1, 16, &map).await;
                }
            }
            let given = array.add(bench.candidate(1), bench.uuid(), false).await;
            given.unwrap();
            is_filled_whole(&bench, &array).await;
        });
    }
}

/// The array needs the member that is older: nothing starts, unless by force.
#[test]
fn an_image_that_is_needed_is_refused() {
    run(24, 1, &[8; 4], async |bench| {
        let array = imaged(&bench, Level::Raid5, 3, false).await;
        array.close().await.unwrap();
        drop(array);
        let message = refused(bench.assemble(&[0, 3]).await);
        assert!(message.contains("older images of members"), "{message}");
        assert!(message.contains("disk-3"), "{message}");
        bench.start(&[0, 3], ArrayStart::Degraded).await.unwrap();
    });
}
