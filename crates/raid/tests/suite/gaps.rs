//! Gaps: data that other members cannot read while one is filled.

use crate::common::{Bench, drive, options, plan, run, run_on, spoil};
use crate::faulty::{Op, faulty, switched};
use block::{Device, Extent, IoErrorKind, Lba, Sectors};
use raid::{Array, Level};
use std::cell::Cell;
use std::rc::Rc;

const LEVELS: [(Level, usize); 3] = [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)];

/// Returns the beginning of the data on a member.
fn data_at(level: Level) -> u64 {
    if level == Level::Raid5 { 4096 } else { 2048 }
}

/// Makes an array of the first disks, full of 1.
async fn made(bench: &Bench, level: Level, members: usize) -> Vec<usize> {
    let roles: Vec<_> = (0..members).collect();
    let array = bench.create(level, &roles, &[]).await.unwrap();
    let sectors = array.geometry().sectors.0;
    for at in (0..sectors).step_by(64) {
        bench
            .write(&array, at, 64.min(sectors - at), 1)
            .await
            .unwrap();
    }
    bench.end(array).await;
    roles
}

async fn is_sound(bench: &Bench, array: &Array) -> bool {
    let sectors = array.geometry().sectors.0;
    let mut sound = true;
    for at in (0..sectors).step_by(64) {
        sound &= bench.holds(array, at, 64.min(sectors - at), 1).await;
    }
    sound
}

/// However long no other member can be read at all, the rebuild waits, and nothing is lost.
#[test]
fn a_moment_in_which_nothing_can_be_read_loses_nothing() {
    for (level, members) in LEVELS {
        for moment in [100, 1000, 20_000] {
            run(1, 1, &vec![8; members + 1], async move |bench| {
                let roles = made(&bench, level, members).await;
                let (first, fails) = switched(&bench, 0, |op| !op.changes());
                let mut all = vec![first];
                all.extend(bench.candidates(&roles[1..]));
                let array = bench.assemble_with(all, options()).await.unwrap();
                bench.settled(&array).await;
                array.fail(1).await.unwrap();
                let spare = bench.candidate(members);
                array.replace(1, spare, bench.uuid(), true).await.unwrap();
                bench.sleep(30).await;
                fails.set(true);
                bench.sleep(moment).await;
                fails.set(false);
                bench.settled(&array).await;
                assert!(array.report().bad.is_empty(), "{level:?} {moment}");
                assert!(is_sound(&bench, &array).await, "{level:?} {moment}");
            });
        }
    }
}

/// Reads that fail now and then are tried again until they succeed.
#[test]
fn reads_that_fail_one_time_in_ten_lose_nothing() {
    for (level, members) in LEVELS {
        run(2, 1, &vec![8; members + 1], async move |bench| {
            let roles = made(&bench, level, members).await;
            let flaky = |disk: usize| {
                let state = Cell::new(disk as u64);
                faulty(&bench, disk, move |op| {
                    let next = state.get().wrapping_mul(6_364_136_223_846_793_005);
                    state.set(next.wrapping_add(1_442_695_040_888_963_407));
                    let is_data = op.reads(Extent::new(Lba(4096), Sectors(1 << 20)));
                    is_data && (state.get() >> 33).is_multiple_of(10)
                })
            };
            let all = roles.iter().map(|role| flaky(*role)).collect();
            let array = bench.assemble_with(all, options()).await.unwrap();
            array.fail(1).await.unwrap();
            let spare = bench.candidate(members);
            array.replace(1, spare, bench.uuid(), true).await.unwrap();
            bench.settled(&array).await;
            let lost: u64 = array.report().bad.iter().map(|run| run.len.0).sum();
            assert!(lost < 10, "{level:?}: {lost}");
            // The few blocks that were left out all the same are read soon.
            bench.sleep(300_000).await;
            assert!(array.report().bad.is_empty(), "{level:?}");
        });
    }
}

/// Data that no other member can read is left out and listed. The member that could not be read
/// keeps its data; once it can be read, the array is complete again, by a read or by itself.
#[test]
fn what_was_left_out_is_read_where_it_still_is() {
    for by_itself in [false, true] {
        for (level, members) in LEVELS {
            run(3, 1, &vec![8; members + 1], async move |bench| {
                let roles = made(&bench, level, members).await;
                let there = Extent::new(Lba(data_at(level) + 8), Sectors(3));
                let wrote = Rc::new(Cell::new(false));
                let writes = wrote.clone();
                let (first, fails) = switched(&bench, 0, move |op| {
                    let over = matches!(op, Op::Write(of) if of.overlaps(there));
                    writes.set(writes.get() || over);
                    op.reads(there)
                });
                let mut all = vec![first];
                all.extend(bench.candidates(&roles[1..]));
                let array = bench.assemble_with(all, options()).await.unwrap();
                bench.settled(&array).await;
                array.fail(1).await.unwrap();
                fails.set(true);
                let spare = bench.candidate(members);
                array.replace(1, spare, bench.uuid(), true).await.unwrap();
                bench.settled(&array).await;
                let bad = array.report().bad;
                assert_eq!(bad.iter().map(|run| run.len.0).sum::<u64>(), 3, "{level:?}");
                let error = bench.read(&array, bad[0].start.0, 3).await;
                assert_eq!(
                    error.map(drop).unwrap_err().kind(),
                    IoErrorKind::Media,
                    "{level:?}"
                );
                assert!(!wrote.get(), "{level:?}: the only copy was written over");
                array.close().await.unwrap();
                drop(array);
                // The gap is remembered.
                let (first, fails) = switched(&bench, 0, move |op| op.reads(there));
                fails.set(true);
                let mut all = vec![first, bench.candidate(members)];
                all.extend(bench.candidates(&roles[2..]));
                let array = bench.assemble_with(all, options()).await.unwrap();
                assert_eq!(array.report().bad, bad, "{level:?}");
                fails.set(false);
                if by_itself {
                    bench.sleep(60_000).await;
                } else {
                    assert!(bench.holds(&array, bad[0].start.0, 3, 1).await, "{level:?}");
                    bench.sleep(1000).await;
                }
                assert!(array.report().bad.is_empty(), "{level:?}");
                array.fail(0).await.unwrap();
                assert!(is_sound(&bench, &array).await, "{level:?}");
            });
        }
    }
}

/// Of RAID 5 the left out chunk may be parity: data that cannot be read elsewhere is then an error,
/// never computed from it.
#[test]
fn parity_that_was_left_out_is_not_computed_with() {
    let (mut sim, disks) = run(4, 1, &[8; 4], async |bench| {
        made(&bench, Level::Raid5, 3).await;
    });
    // The first stripe has its parity on the last member.
    let lost = Extent::new(Lba(data_at(Level::Raid5) + 8), Sectors(1));
    spoil(&mut sim, vec![(disks[0], lost)]);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        array.fail(2).await.unwrap();
        array
            .replace(2, bench.candidate(3), bench.uuid(), true)
            .await
            .unwrap();
        bench.settled(&array).await;
        let error = bench.read(&array, 8, 1).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Media);
        // Sectors beside the gap are written as ever.
        bench.write(&array, 64 + 8, 1, 2).await.unwrap();
        assert!(bench.holds(&array, 64 + 8, 1, 2).await);
        let error = bench.read(&array, 8, 1).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Media);
        bench.write(&array, 8, 1, 3).await.unwrap();
        assert!(bench.holds(&array, 8, 1, 3).await);
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        for gone in [0, 1] {
            array.fail(gone).await.unwrap();
            assert!(bench.holds(&array, 8, 1, 3).await);
            assert!(bench.holds(&array, 64 + 8, 1, 2).await);
            array
                .add(bench.candidate(gone), bench.uuid(), true)
                .await
                .unwrap();
            bench.settled(&array).await;
        }
    });
}

/// Sectors that are lost for good can be written again, and are sound from then on.
#[test]
fn what_was_left_out_can_be_written_again() {
    for (level, members) in LEVELS {
        for fua in [1, 3] {
            let (mut sim, disks) = run(5, 1, &vec![8; members + 1], async move |bench| {
                made(&bench, level, members).await;
            });
            let lost = Extent::new(Lba(data_at(level) + 8), Sectors(fua));
            spoil(&mut sim, vec![(disks[0], lost)]);
            drive(&mut sim, &disks, async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.assemble(&roles).await.unwrap();
                array.fail(1).await.unwrap();
                let spare = bench.candidate(members);
                array.replace(1, spare, bench.uuid(), true).await.unwrap();
                bench.settled(&array).await;
                let bad = array.report().bad;
                for run in &bad {
                    bench
                        .write(&array, run.start.0, run.len.0, 1)
                        .await
                        .unwrap();
                    assert!(bench.holds(&array, run.start.0, run.len.0, 1).await);
                }
                if level == Level::Raid5 {
                    // The other one that could not be read.
                    bench.write(&array, 8, fua, 1).await.unwrap();
                }
                bench.sleep(60_000).await;
                assert!(array.report().bad.is_empty(), "{level:?}");
                assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
                array.fail(0).await.unwrap();
                assert!(is_sound(&bench, &array).await, "{level:?}");
            });
        }
    }
}

/// Rows of an array may be wider than any buffer.
#[test]
fn members_of_wide_rows_are_filled_and_compared() {
    for (members, chunk) in [(4, 8192), (6, 4096), (3, 4096)] {
        let shapes = vec![(24, 1); members + 1];
        run_on(6, &shapes, async move |bench| {
            let mut wide = plan(Level::Raid10);
            wide.chunk = Sectors(chunk);
            let roles: Vec<_> = (0..members).collect();
            let array = bench.make(&wide, &roles, &[]).await.unwrap();
            let sectors = array.geometry().sectors.0;
            for at in (0..sectors).step_by(1024) {
                bench.write(&array, at, 1024, 1).await.unwrap();
            }
            let spare = bench.candidate(members);
            array.fail(1).await.unwrap();
            array.replace(1, spare, bench.uuid(), true).await.unwrap();
            bench.settled(&array).await;
            let own = bench.candidate(1);
            array.replace(1, own, bench.uuid(), true).await.unwrap();
            bench.settled(&array).await;
            array.fail(0).await.unwrap();
            assert!(is_sound(&bench, &array).await);
        });
    }
}
