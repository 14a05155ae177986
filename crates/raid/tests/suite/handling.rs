//! Operations of an administrator, and the reports of an array.

use crate::common::{drive, plan, refused, run, spoil};
use block::{Device, IoErrorKind, Lba, Sectors};
use raid::{ArrayPlan, Level, MemberState};

#[test]
fn events_say_what_happened_the_newest_last() {
    run(1, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        assert_eq!(array.events().1, 0);
        array.fail(1).await.unwrap();
        let (events, count) = array.events();
        let last = events.last().expect("an event").what.clone();
        assert_eq!(last, "array: member 1 has failed: it was taken out by hand");
        assert_eq!(count, events.len() as u64);
        let message = refused(array.fail(2).await);
        assert!(message.contains("it has no member 2"), "{message}");
        let message = refused(array.fail(0).await);
        assert!(
            message.contains("holds data that no other member has"),
            "{message}"
        );
        assert_eq!(array.events().1, count, "what was refused changes nothing");
    });
}

#[test]
fn a_domain_is_pulled_with_its_members_and_no_others() {
    run(2, 1, &[8; 4], async |bench| {
        let roles = [0, 1, 2, 3];
        let array = bench.create(Level::Raid10, &roles, &[]).await.unwrap();
        array.fail_domain("c1").await.unwrap();
        for (role, member) in array.report().members.iter().enumerate() {
            let lost = member.state.is_failed();
            assert_eq!(lost, role % 2 == 1, "role {role}");
        }
        // The copies that are left are all on one controller now.
        let error = array.fail_domain("c0").await.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Gone);
        assert!(error.to_string().contains("writes are refused"), "{error}");
    });
}

#[test]
fn with_one_member_all_that_are_gone_are_missed() {
    run(8, 1, &[8; 4], async |bench| {
        let roles = [0, 1, 2, 3];
        let array = bench.create(Level::Raid10, &roles, &[]).await.unwrap();
        bench.write(&array, 0, 8, 1).await.unwrap();
        bench.control.kill(bench.disks[1]);
        bench.control.kill(bench.disks[3]);
        // Of both copies a read takes one, half of the time the one that is gone.
        for _ in 0..2 {
            assert!(bench.holds(&array, 0, 8, 1).await);
        }
        bench.sleep(10).await;
        let members = array.report().members;
        let lost: Vec<_> = members.iter().map(|m| m.state.is_failed()).collect();
        assert_eq!(lost, [false, true, false, true]);
    });
}

#[test]
fn a_member_is_replaced_unless_it_alone_holds_data() {
    run(3, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 100, 50, 7).await.unwrap();
        let new = bench.candidate(2);
        array.replace(1, new, bench.uuid(), false).await.unwrap();
        let message: Vec<_> = array.events().0.into_iter().map(|e| e.what).collect();
        assert!(
            message
                .iter()
                .any(|t| t.contains("member 1 is copied to disk-2")),
            "{message:?}"
        );
        assert_eq!(array.report().members[1].device.as_deref(), Some("disk-1"));
        assert_eq!(*array.report().spares[0], *"disk-2");
        bench.settled(&array).await;
        assert_eq!(array.report().members[1].device.as_deref(), Some("disk-2"));
        assert!(array.report().spares.is_empty());
        bench.sleep(200).await;
        assert_eq!(array.report().progress, None);
        let events = array.events().0;
        let done = |e: &&raid::ArrayEvent| e.what.contains("replacement done");
        assert_eq!(events.iter().filter(done).count(), 1);
        array.fail(0).await.unwrap();
        let new = bench.candidate(3);
        let message = refused(array.replace(1, new.clone(), bench.uuid(), false).await);
        assert!(
            message.contains("holds data that no other member has"),
            "{message}"
        );
        assert!(array.report().spares.is_empty(), "it changed something");
        // A member that has failed already is replaced as well.
        array.replace(0, new, bench.uuid(), false).await.unwrap();
        bench.settled(&array).await;
        assert_eq!(array.report().members[0].device.as_deref(), Some("disk-3"));
        assert!(bench.holds(&array, 100, 50, 7).await);
        assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        let message = refused(
            array
                .replace(2, bench.candidate(0), bench.uuid(), true)
                .await,
        );
        assert!(message.contains("it has no member 2"), "{message}");
    });
}

#[test]
fn what_belongs_to_an_array_becomes_a_spare_only_if_it_may_be_overwritten() {
    run(4, 1, &[8; 4], async |bench| {
        let other = bench.create(Level::Raid1, &[2, 3], &[]).await.unwrap();
        drop(other);
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        let message = refused(array.add(bench.candidate(2), bench.uuid(), false).await);
        assert!(
            message.contains("belongs to array array; confirm"),
            "{message}"
        );
        assert!(array.report().spares.is_empty());
        let given = array.add(bench.candidate(2), bench.uuid(), true).await;
        given.unwrap();
        assert_eq!(*array.report().spares[0], *"disk-2");
    });
}

/// A rebuild ends with its array.
#[test]
fn nothing_is_filled_any_more_once_the_array_is_gone() {
    run(5, 1, &[40; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[2]).await.unwrap();
        array.fail(1).await.unwrap();
        while array.report().progress.is_none_or(|p| p.done.0 == 0) {
            bench.sleep(1).await;
        }
        let total = array.report().progress.expect("it goes on").total;
        drop(array);
        bench.sleep(60_000).await;
        let array = bench.assemble(&[0, 2]).await.unwrap();
        let member = &array.report().members[1];
        assert_eq!(member.state, MemberState::Rebuilding { whole: true });
        assert_eq!(total, array.geometry().sectors);
    });
}

#[test]
fn a_device_is_examined_by_what_can_be_read_of_it() {
    let (mut sim, disks) = run(6, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    // Of each disk the second copy of the superblock is lost.
    let second = block::Extent::new(Lba(8), Sectors(8));
    spoil(&mut sim, disks.iter().map(|disk| (*disk, second)).collect());
    drive(&mut sim, &disks, async |bench| {
        for index in [0, 1] {
            let device = bench.candidate(index).device;
            let found = raid::examine(&bench.env, &device).await.unwrap();
            assert_eq!(found.expect("the first is whole").role, index as u16);
        }
        // A disk is not known to be blank if half of it cannot be read.
        let device = bench.candidate(2).device;
        let error = raid::examine(&bench.env, &device).await.unwrap_err();
        assert_eq!(error.kind(), IoErrorKind::Media);
    });
}

#[test]
fn a_device_too_short_for_a_superblock_has_none() {
    for (sectors, room) in [(8, 1), (15, 1), (16, 2)] {
        let mut world = sim::SimWorld::new(7);
        let geometry = block::Geometry::new("disk-0", Sectors(sectors), Sectors(1));
        let disk = world.add_disk(sim::DiskSpec::new(geometry)).unwrap();
        let mut sim = sim::SimHost::new(world);
        drive(&mut sim, &[disk], async move |bench| {
            let device = bench.candidate(0).device;
            assert_eq!(raid::examine(&bench.env, &device).await.unwrap(), None);
            // The last copy with room on the device is read.
            let mut block = bench.env.pool.get(raid::BLOCK_BYTES).await;
            superblock().encode(&mut block);
            let at = Lba(8 * (room - 1));
            let written = device.write(at, block.share(), block::Fua::No).await;
            written.unwrap();
            let found = raid::examine(&bench.env, &device).await.unwrap();
            assert_eq!(found, Some(superblock()), "{sectors} sectors");
        });
    }
}

#[test]
fn names_and_stripes_have_their_limits() {
    run(5, 8, &[200; 3], async |bench| {
        let make = async |plan: ArrayPlan| bench.make(&plan, &[0, 1, 2], &[]).await.map(drop);
        for (len, is_good) in [(0, false), (1, true), (32, true), (33, false)] {
            let plan = ArrayPlan {
                name: "n".repeat(len),
                overwrite: true,
                ..plan(Level::Linear)
            };
            let made = make(plan).await;
            assert_eq!(made.is_ok(), is_good, "{len}");
        }
        for (kib, is_good) in [(1364, true), (1368, false)] {
            let made = make(ArrayPlan {
                chunk: Sectors(kib * 2),
                overwrite: true,
                zeroed: true,
                ..plan(Level::Raid5)
            });
            match is_good {
                true => made.await.unwrap(),
                false => {
                    let message = refused(made.await);
                    assert!(
                        message.contains("a chunk of less than 1364 KiB"),
                        "{message}"
                    );
                }
            }
        }
    });
}

fn superblock() -> raid::ArraySuperblock {
    let entry = raid::MemberEntry {
        uuid: raid::Uuid::from_bytes([2; 16]),
        sectors: Sectors(2048),
        ..raid::MemberEntry::default()
    };
    raid::ArraySuperblock {
        array: raid::Uuid::from_bytes([1; 16]),
        member: entry.uuid,
        role: 0,
        events: 3,
        generation: raid::Uuid::from_bytes([3; 16]),
        history: Vec::new(),
        sealed: 2,
        scrubbed: Default::default(),
        name: "array".into(),
        level: Level::Linear,
        block: Sectors(1),
        chunk: Sectors(64),
        data_at: Sectors(2048),
        region: Sectors(128),
        journal_slots: 0,
        table: vec![entry],
        bad: Vec::new(),
        gaps: Vec::new(),
    }
}
