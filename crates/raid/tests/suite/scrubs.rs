//! Findings of a scrub, and the bytes that a repair trusts.

use crate::common::{Bench, drive, options, refused, run, spoil, strike};
use crate::faulty::{Op, faulty, slow};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Level, ScrubReport, Scrubbed};
use sim::{FaultEffect, FaultRule, OpFilter, When};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Returns the beginning of the data on a member, of three with a journal.
fn data_at(level: Level) -> u64 {
    if level == Level::Raid5 { 4096 } else { 2048 }
}

/// Fills `sectors` of a disk's data from `from` on with `byte`, behind its array.
async fn corrupt(bench: &Bench, level: Level, disk: usize, (from, sectors): (u64, u64), byte: u8) {
    let mut buf = bench.env.pool.get(sectors as usize * 512).await;
    buf.fill(byte);
    let at = Lba(data_at(level) + from);
    let device = bench.candidate(disk).device;
    device.write(at, buf.share(), Fua::No).await.unwrap();
}

#[test]
fn a_scrub_counts_mismatches_and_a_repair_trusts_most_copies_or_the_data() {
    // The bytes of the first wrong sector in the end.
    for (level, members, disk, right) in [
        (Level::Raid1, 2, 1, 1),
        // Of two the first is trusted, right or not.
        (Level::Raid1, 2, 0, 9),
        (Level::Raid1, 3, 0, 1),
        (Level::Raid1, 3, 2, 1),
        (Level::Raid10, 4, 3, 1),
        // Parity, and data, which is trusted: nothing shows that the data is wrong.
        (Level::Raid5, 3, 0, 1),
        (Level::Raid5, 3, 0, 9),
    ] {
        run(1, 1, &vec![8; members], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 1024, 1).await.unwrap();
            let sectors = array.geometry().sectors.0;
            let stripe = array.shape().stripe(0);
            let disk = match level {
                Level::Raid5 if right == 1 => stripe.parity,
                Level::Raid5 => stripe.data(0),
                _ => disk,
            };
            // Two places, apart from each other.
            for from in [3, 300] {
                corrupt(&bench, level, disk, (from, 2), 9).await;
            }
            let clean = ScrubReport {
                sectors,
                ..ScrubReport::default()
            };
            let found = ScrubReport {
                mismatches: 2,
                ..clean
            };
            let what = format!("{level:?} of {members}, disk {disk}");
            assert_eq!(array.scrub(false).await.unwrap(), found, "{what}");
            let repaired = ScrubReport {
                repaired: 2,
                ..found
            };
            assert_eq!(array.scrub(true).await.unwrap(), repaired, "{what}");
            assert_eq!(array.scrub(false).await.unwrap(), clean, "{what}");
            assert!(array.is_settled());
            let at = if level == Level::Raid10 { 64 + 3 } else { 3 };
            assert!(bench.holds(&array, at, 2, right).await, "{what}");
            assert!(bench.holds(&array, 5, 40, 1).await, "{what}");
        });
    }
}

#[test]
fn what_a_scrub_cannot_read_is_written_again() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let (mut sim, disks) = run(2, 1, &vec![8; members], async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.create(level, &roles, &[]).await.unwrap();
            bench.write(&array, 0, 1024, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let sectors = |from| Extent::new(Lba(data_at(level) + from), Sectors(4));
        // Two of them lie in one step of the comparison.
        let latent = [(0, 10), (1, 20), (1, 310)];
        let latent = latent
            .map(|(disk, from): (usize, u64)| (disks[disk], sectors(from)))
            .to_vec();
        spoil(&mut sim, latent);
        drive(&mut sim, &disks, async move |bench| {
            let roles: Vec<_> = (0..members).collect();
            let array = bench.assemble(&roles).await.unwrap();
            let found = array.scrub(false).await.unwrap();
            assert_eq!((found.unreadable, found.mismatches), (4, 0), "{level:?}");
            let found = array.scrub(false).await.unwrap();
            assert_eq!((found.unreadable, found.mismatches), (0, 0), "{level:?}");
            assert!(array.is_settled());
            assert!(bench.holds(&array, 0, 1024, 1).await, "{level:?}");
            array.fail(1).await.unwrap();
            assert!(bench.holds(&array, 0, 1024, 1).await, "{level:?}");
        });
    }
}

/// The bytes of a record that a start would not read are written again too.
#[test]
fn a_scrub_writes_the_body_of_a_free_slot_of_a_journal() {
    const SLOT: u64 = 8 + 3 * 64;
    let (mut sim, disks) = run(3, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 64, 1).await.unwrap();
        array.close().await.unwrap();
    });
    let body = Extent::new(Lba(32 + 5 * SLOT + 150), Sectors(1));
    spoil(&mut sim, vec![(disks[1], body)]);
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        for unreadable in [1, 0] {
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.unreadable, unreadable);
        }
        assert!(bench.holds(&array, 0, 64, 1).await);
    });
}

#[test]
fn an_array_without_redundancy_is_not_scrubbed() {
    run(3, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid0, &[0, 1], &[]).await.unwrap();
        let message = refused(array.scrub(false).await);
        assert!(message.contains("raid0 has no redundancy"), "{message}");
    });
}

/// Blocks that nothing reads until a start needs them.
#[test]
fn a_scrub_writes_again_what_rotted_beside_the_data() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        let all: Vec<usize> = (0..members).collect();
        let (roles, spare) = (all.clone(), members);
        let (mut sim, disks) = run(1, 1, &vec![8; members + 1], async move |bench| {
            let array = bench.create(level, &roles, &[spare]).await.unwrap();
            bench.write(&array, 0, 256, 1).await.unwrap();
            array.close().await.unwrap();
        });
        let places = [(0, 8), (1, 16), (members, 0)];
        if level == Level::Raid5 {
            // The slot of a record that a start does not read, for there is none.
            let rule = FaultRule {
                disk: disks[2],
                ops: OpFilter::Reads,
                within: Some(Extent::new(Lba(2048), Sectors(1))),
                when: When::Nth(1),
                effect: FaultEffect::Fail(IoErrorKind::Media),
            };
            strike(&mut sim, vec![rule]);
        }
        let found = places.len() as u64 + u64::from(level == Level::Raid5);
        drive(&mut sim, &disks, async move |bench| {
            let mut all = all.clone();
            all.push(spare);
            let array = bench.assemble(&all).await.unwrap();
            for (disk, at) in places {
                let mut buf = bench.env.pool.get(4096).await;
                buf.fill(0x5a);
                let device = bench.candidate(disk).device;
                device.write(Lba(at), buf.share(), Fua::Yes).await.unwrap();
            }
            let first = array.scrub(false).await.unwrap();
            let seen = (first.unreadable, first.mismatches);
            assert_eq!(seen, (found, 0), "{level:?}");
            for (disk, at) in places {
                let buf = bench.env.pool.get(4096).await;
                let device = bench.candidate(disk).device;
                let (buf, result) = device.read(Lba(at), buf).await;
                result.unwrap();
                assert!(buf[..8] != [0x5a; 8], "{level:?}, disk {disk}");
            }
            let second = array.scrub(false).await.unwrap();
            assert_eq!(second.unreadable, 0, "{level:?}");
            assert!(bench.holds(&array, 0, 256, 1).await);
            array.close().await.unwrap();
            drop(array);
            let array = bench.assemble(&all).await.unwrap();
            assert!(array.is_settled() || level == Level::Raid5);
        });
    }
}

/// A member of an array that was closed may be another's.
#[test]
fn a_scrub_ends_with_its_array_and_asks_nothing_of_members_afterwards() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        for is_closed in [true, false] {
            run(1, 1, &vec![16; members], async move |bench| {
                let roles: Vec<_> = (0..members).collect();
                let array = bench.create(level, &roles, &[]).await.unwrap();
                bench.write(&array, 0, 256, 1).await.unwrap();
                let ended = Rc::new(RefCell::new(None));
                let (scrubbed, seen) = (array.clone(), ended.clone());
                bench.env.spawn.spawn(async move {
                    *seen.borrow_mut() = Some(scrubbed.scrub(false).await);
                });
                bench.sleep(20).await;
                assert!(ended.borrow().is_none(), "{level:?}: it goes on");
                let began = bench.env.timer.now();
                match is_closed {
                    true => array.close().await.unwrap(),
                    false => array.release().await,
                }
                assert!(bench.env.timer.now() - began < Nanos::from_millis(50));
                let reads = || -> Vec<u64> {
                    let members = array.report().members;
                    members.iter().map(|m| m.counts.reads).collect()
                };
                let asked = reads();
                bench.sleep(2000).await;
                assert_eq!(reads(), asked, "{level:?}");
                let message = refused(ended.take().expect("it has ended"));
                assert!(
                    message.contains("closed before its scrub ended"),
                    "{message}"
                );
                let now = Scrubbed {
                    since: 1,
                    ended: true,
                };
                assert!(array.set_scrubbed(now).await.is_err(), "nor written");
            });
        }
    }
}

/// Where two members cannot be read a stripe is compared block by block. The loss of a third
/// meanwhile ends that, and nothing else.
#[test]
fn a_member_that_is_lost_while_blocks_are_looked_at_ends_no_more_than_that() {
    run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.end(array).await;
        let data = Extent::new(Lba(data_at(Level::Raid5)), Sectors(1024));
        let is_block =
            move |op: Op| matches!(op, Op::Read(of) if of.len == Sectors(1)) && op.reads(data);
        let held = Rc::new(Cell::new(true));
        let holds = held.clone();
        let all = vec![
            faulty(&bench, 0, move |op| op.reads(data)),
            faulty(&bench, 1, move |op| op.reads(data)),
            slow(&bench, 2, move |op| holds.get() && is_block(op), |_| false),
        ];
        let array = bench.assemble_with(all, options()).await.unwrap();
        let losing = async {
            bench.sleep(100).await;
            array.fail(2).await.unwrap();
            held.set(false);
        };
        let (found, ()) = join(array.scrub(false), losing).await;
        assert!(found.unwrap().skipped > 0);
    });
}
