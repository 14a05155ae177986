//! Assembling arrays, and refusing devices that make none.

use crate::common::{Bench, drive, options, read_copy, refused, run, run_on, write_copy};
use block::{Device, Lba, Sectors};
use raid::{Array, ArrayStart, Level, MemberState, assemble};

#[test]
fn the_order_of_the_devices_does_not_matter() {
    for level in Level::ALL {
        run(1, 8, &[8, 8, 9, 8], async move |bench| {
            let count = level.members().1.min(4);
            let roles: Vec<_> = (0..count).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            let sectors = array.geometry().sectors.0;
            bench.write(&array, 0, 512, 3).await.unwrap();
            bench.write(&array, sectors - 512, 512, 4).await.unwrap();
            array.close().await.unwrap();
            drop(array);
            let reversed: Vec<_> = roles.into_iter().rev().collect();
            let array = bench.assemble(&reversed).await.unwrap();
            assert_eq!(array.geometry().sectors.0, sectors);
            assert!(bench.holds(&array, 0, 512, 3).await, "{level:?}");
            assert!(bench.holds(&array, sectors - 512, 512, 4).await);
            assert!(array.is_settled());
        });
    }
}

#[test]
fn foreign_and_blank_members_count_as_absent_and_duplicates_are_refused() {
    run(2, 1, &[8; 5], async |bench| {
        let one = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let other = bench.create(Level::Raid1, &[2, 3], &[]).await.unwrap();
        drop((one, other));
        let array = bench.assemble(&[0, 1, 2, 4]).await.unwrap();
        assert!(reports(&array, "disk-2 belongs to another array"));
        assert!(reports(&array, "disk-4 belongs to no array"));
        array.close().await.unwrap();
        drop(array);
        let message = refused(bench.assemble(&[0, 2]).await);
        assert!(message.contains("belong to two arrays"), "{message}");
        let message = refused(bench.assemble(&[4]).await);
        assert!(
            message.contains("no member that is here belongs"),
            "{message}"
        );
        let candidates = bench.candidates(&[0, 1]);
        let start = ArrayStart::default();
        let fresh = bench.uuid();
        let started = assemble(&bench.env, Some("b"), fresh, candidates, start, options());
        let message = refused(started.await);
        assert!(
            message.contains("belong to array array, not b"),
            "{message}"
        );
        copy(&bench, 0, 4).await;
        let message = refused(bench.assemble(&[0, 1, 4]).await);
        assert!(message.contains("is a copy of another member"), "{message}");
        let message = refused(bench.create(Level::Raid1, &[0, 1], &[]).await);
        assert!(
            message.contains("confirm that it may be overwritten"),
            "{message}"
        );
    });
}

#[test]
fn an_older_copy_of_a_member_is_left_out_and_one_that_diverged_is_refused() {
    run(2, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
        drop(array);
        copy(&bench, 1, 2).await;
        for order in [[0, 1, 2], [2, 1, 0]] {
            let array = bench.assemble(&[0, 1]).await.unwrap();
            bench.write(&array, 0, 8, 1).await.unwrap();
            array.close().await.unwrap();
            drop(array);
            let array = bench.assemble(&order).await.unwrap();
            assert!(reports(
                &array,
                "disk-2 is an older copy of disk-1 (role 1)"
            ));
            assert!(bench.holds(&array, 0, 8, 1).await);
            array.close().await.unwrap();
        }
        // The same device by another path would be such a copy.
        let array = bench.assemble(&[0, 1]).await.unwrap();
        copy(&bench, 1, 2).await;
        let message = refused(array.add(bench.candidate(2), bench.uuid(), true).await);
        assert!(message.contains("is a copy of member 1"), "{message}");
        array.close().await.unwrap();
        drop(array);
        let array = bench.assemble(&[0, 1]).await.unwrap();
        let message = refused(array.add(bench.candidate(2), bench.uuid(), false).await);
        assert!(message.contains("is a copy of member 1"), "{message}");
        array
            .add(bench.candidate(2), bench.uuid(), true)
            .await
            .unwrap();
        assert!(reports(&array, "disk-2 is a spare"));
        array.close().await.unwrap();
        drop(array);
        // Both diverged.
        let degraded = ArrayStart::Degraded;
        copy(&bench, 1, 2).await;
        for alone in [1, 2] {
            let array = bench.start(&[alone], degraded).await.unwrap();
            bench.write(&array, 0, 8, 1).await.unwrap();
            array.close().await.unwrap();
        }
        let message = refused(bench.assemble(&[1, 2]).await);
        assert!(message.contains("is a copy of another member"), "{message}");
    });
}

async fn copy(bench: &Bench, from: usize, to: usize) {
    let (from, to) = (bench.candidate(from).device, bench.candidate(to).device);
    let buf = bench.env.pool.get(16 * 512).await;
    let (buf, result) = from.read(Lba(0), buf).await;
    result.unwrap();
    to.write(Lba(0), buf.share(), block::Fua::No).await.unwrap();
}

#[test]
fn an_array_does_not_start_on_members_that_may_be_old() {
    run(3, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 8, 1).await.unwrap();
        drop(array);
        let message = refused(bench.assemble(&[0]).await);
        assert!(message.contains("may have continued without"), "{message}");
        let candidates = bench.candidates(&[0]);
        let start = ArrayStart::WithoutAbsent;
        let array = assemble(&bench.env, None, bench.uuid(), candidates, start, options())
            .await
            .unwrap();
        bench.write(&array, 0, 8, 2).await.unwrap();
        drop(array);
        bench.sleep(300).await;
        // The evicted member knows nothing of that: it may not start alone,
        let message = refused(bench.assemble(&[1]).await);
        assert!(message.contains("may have continued without"), "{message}");
        // and with the other it is filled with the data that it missed.
        let array = bench.assemble(&[1, 0]).await.unwrap();
        assert_ne!(array.report().members[1].state, MemberState::InSync);
        assert!(bench.holds(&array, 0, 8, 2).await);
        bench.settled(&array).await;
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        // A member that is known to be lost is not waited for.
        array.fail(0).await.unwrap();
        drop(array);
        bench.sleep(300).await;
        bench.assemble(&[1]).await.unwrap();
    });
}

#[test]
fn members_that_diverged_are_refused() {
    run(4, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        drop(array);
        for index in [0, 1] {
            let start = [ArrayStart::WithoutAbsent, ArrayStart::Degraded][index];
            let candidates = bench.candidates(&[index]);
            let array = assemble(&bench.env, None, bench.uuid(), candidates, start, options())
                .await
                .unwrap();
            bench.write(&array, 0, 8, index as u8).await.unwrap();
            drop(array);
            bench.sleep(300).await;
        }
        let message = refused(bench.assemble(&[0, 1]).await);
        assert!(message.contains("is a split brain"), "{message}");
        // Added by hand the other member is overwritten.
        let array = bench.assemble(&[0]).await.unwrap();
        let message = refused(array.add(bench.candidate(1), bench.uuid(), false).await);
        assert!(message.contains("used apart"), "{message}");
    });
}

#[test]
fn missing_members_are_named() {
    run(5, 1, &[8; 4], async |bench| {
        let array = bench
            .create(Level::Raid5, &[0, 1, 2, 3], &[])
            .await
            .unwrap();
        bench.write(&array, 0, 700, 6).await.unwrap();
        drop(array);
        let message = refused(bench.assemble(&[0, 2]).await);
        assert!(
            message.contains("too many members are missing (roles 1, 3)"),
            "{message}"
        );
        // Three of four are more than the fourth could have diverged with.
        let array = bench.assemble(&[3, 0, 2]).await.unwrap();
        assert!(bench.holds(&array, 0, 700, 6).await);
    });
}

#[test]
fn sizes_differ_and_a_spare_may_be_too_small() {
    run(6, 1, &[8, 10, 9, 4], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        assert_eq!(array.geometry().sectors, Sectors::from_mib(7));
        let message = refused(array.add(bench.candidate(3), bench.uuid(), false).await);
        assert!(
            message.contains("disk-3 has 4 MiB, a member needs 8 MiB"),
            "{message}"
        );
        array
            .add(bench.candidate(2), bench.uuid(), false)
            .await
            .unwrap();
        let message = refused(array.add(bench.candidate(2), bench.uuid(), false).await);
        assert!(message.contains("is in this array already"), "{message}");
        assert_eq!(array.report().spares.len(), 1);
    });
}

#[test]
fn a_spare_may_have_blocks_that_are_too_large() {
    run_on(6, &[(8, 1), (8, 1), (8, 8)], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let message = refused(array.add(bench.candidate(2), bench.uuid(), true).await);
        assert!(
            message.contains("disk-2 has larger logical blocks"),
            "{message}"
        );
        assert!(array.report().spares.is_empty());
    });
    run_on(6, &[(8, 8), (8, 8), (8, 1)], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let given = array.add(bench.candidate(2), bench.uuid(), false).await;
        given.unwrap();
    });
}

#[test]
fn spares_are_found_again_and_replaced_members_are_none() {
    run(8, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2, 3]).await.unwrap();
        array.fail(1).await.unwrap();
        bench.settled(&array).await;
        array.close().await.unwrap();
        drop(array);
        let array = bench.assemble(&[0, 1, 2, 3]).await.unwrap();
        assert!(array.is_settled());
        let [spare] = &array.report().spares[..] else {
            panic!("{:?}", array.report());
        };
        let waited = ["disk-2", "disk-3"]
            .iter()
            .position(|name| **name == **spare);
        let waited = 2 + waited.expect("one of the two has taken the place");
        assert!(reports(&array, "disk-1 was replaced by another member"));
        assert!(!reports(&array, &format!("disk-{waited} was replaced")));
        array.fail(0).await.unwrap();
        bench.settled(&array).await;
        assert!(array.report().spares.is_empty());
    });
}

fn reports(array: &Array, what: &str) -> bool {
    let (events, _) = array.events();
    events.iter().any(|event| event.what.contains(what))
}

/// A member that is being filled lacks data of the array.
#[test]
fn no_array_starts_on_a_member_that_is_being_filled() {
    run(9, 1, &[40; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        array.fail(1).await.unwrap();
        while array.report().progress.is_none() {
            bench.sleep(1).await;
        }
        drop(array);
        bench.sleep(1000).await;
        for degraded in [false, true] {
            let candidates = bench.candidates(&[2]);
            let start = ArrayStart::by_hand(degraded);
            let refusal = refused(
                assemble(&bench.env, None, bench.uuid(), candidates, start, options()).await,
            );
            let missing = "too many members are missing (roles 0)";
            assert!(refusal.contains(missing), "{refusal}");
        }
    });
}

#[test]
fn stripes_that_are_done_again_are_reported() {
    run(10, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        for at in [0, 128, 256] {
            bench.write(&array, at, 8, 1).await.unwrap();
        }
        drop(array);
        bench.sleep(300).await;
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        assert!(reports(
            &array,
            "3 stripes were done again from the journal"
        ));
        bench.end(array).await;
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        assert!(!reports(&array, "done again"), "{:?}", array.events());
    });
}

#[test]
fn a_rebuild_goes_on_after_a_restart() {
    let (mut sim, disks) = run(7, 1, &[40; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        for at in 0..16 {
            bench
                .write(&array, at * 4096, 4096, at as u8 + 1)
                .await
                .unwrap();
        }
        // Bits are cleared once nothing is written any more.
        bench.sleep(1000).await;
        array.fail(1).await.unwrap();
        while array
            .report()
            .progress
            .is_none_or(|p| p.done.0 < p.total.0 * 3 / 4)
        {
            bench.sleep(1).await;
        }
        bench.control.cut_power(None);
        bench.sleep(10).await;
        unreachable!("the power is gone");
    });
    sim.world().control().power_on(sim::Domain(0));
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        let state = array.report().members[1].state;
        assert_eq!(state, MemberState::Rebuilding { whole: true });
        bench.settled(&array).await;
        let regions = array.report().members[1].counts.writes;
        assert!(
            (1..312).contains(&regions),
            "{regions} of 624 were filled again"
        );
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        for at in 0..16 {
            assert!(bench.holds(&array, at * 4096, 4096, at as u8 + 1).await);
        }
    });
}

/// The bits of the data that a member has missed outlive an orderly end.
#[test]
fn a_member_gets_what_it_missed_before_the_array_was_closed() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 4)] {
        run(14, 1, &[8; 4], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 2048, 1).await.unwrap();
            bench.sleep(2000).await;
            array.fail(1).await.unwrap();
            bench.write(&array, 512, 1024, 2).await.unwrap();
            array.close().await.unwrap();
            let array = bench.assemble(&roles).await.unwrap();
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?}");
            assert!(bench.holds(&array, 512, 1024, 2).await, "{level:?}");
        });
    }
}

/// A superblock of another format version is refused with that version, and never overwritten.
#[test]
fn members_of_another_format_are_refused_with_its_version() {
    run(1, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
        drop(array);
        for (disk, copy) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let mut block = read_copy(&bench, disk, copy).await;
            block[8] = 1;
            block[12..16].fill(0);
            let sum = crc32c::crc32c(&block);
            block[12..16].copy_from_slice(&sum.to_le_bytes());
            write_copy(&bench, disk, copy, block).await;
        }
        let why = "its superblock is of array format version 1, which this hotset does not read";
        let message = refused(bench.assemble(&[0, 1]).await);
        assert!(message.contains(why), "{message}");
        let message = refused(bench.create(Level::Raid1, &[0, 1], &[]).await);
        assert!(message.contains(why), "{message}");
    });
}
