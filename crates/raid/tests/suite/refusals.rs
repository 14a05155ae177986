//! Writes that a member refuses, and that the array cannot do without it.

use crate::common::{Bench, after_power, drive, options, run, strike};
use crate::faulty::{Op, faulty};
use block::{Device, Extent, Fua, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use futures_util::future::join;
use raid::{Array, ArraySuperblock, Level, MemberState};
use sim::{FaultEffect, FaultRule, OpFilter, SimHost, When};
use std::cell::RefCell;
use std::rc::Rc;

/// Beginning of the data on a member.
const DATA_AT: [u64; 2] = [2048, 6144];

/// Creates an array, then runs `test` on it while `disk` refuses writes to `sectors` of its data
/// from `from` on.
fn refusing(
    level: Level,
    members: usize,
    (disk, from, sectors): (usize, u64, u64),
    test: impl AsyncFn(Bench, Array) + Clone + 'static,
) -> (SimHost, Vec<TargetId>) {
    let all: Vec<usize> = (0..members).collect();
    let roles = all.clone();
    let (mut sim, disks) = run(10, 1, &vec![8; members + 1], async move |bench| {
        let array = bench.create(level, &roles, &[]).await.unwrap();
        let sectors = array.geometry().sectors.0;
        for at in (0..sectors).step_by(64) {
            bench.write(&array, at, 64, 1).await.unwrap();
        }
        array.close().await.unwrap();
    });
    let data_at = DATA_AT[usize::from(level == Level::Raid5)];
    let rules = vec![FaultRule {
        disk: disks[disk],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(data_at + from), Sectors(sectors))),
        when: When::Always,
        effect: FaultEffect::Fail(IoErrorKind::Media),
    }];
    strike(&mut sim, rules);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&all).await.unwrap();
        test(bench, array).await;
    });
    (sim, disks)
}

/// Reads the first byte of a sector, if it can be read.
async fn first_byte(bench: &Bench, array: &Array, at: u64) -> Option<u8> {
    bench.read(array, at, 1).await.ok().map(|buf| buf[0])
}

/// Data that is copied already may differ from the remains of a refused write.
#[test]
fn what_a_refused_write_left_amid_a_rebuild_is_copied_again() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 4)] {
        let refused = (0, 0, 8);
        refusing(level, members, refused, async move |bench, array| {
            array.fail(1).await.unwrap();
            let (spare, fresh) = (bench.candidate(members), bench.uuid());
            array.replace(1, spare, fresh, false).await.unwrap();
            while array.report().progress.is_none_or(|p| p.done.0 < 2048) {
                bench.sleep(1).await;
            }
            let written = bench.write(&array, 0, 8, 2).await;
            assert!(written.is_err(), "{level:?}");
            assert!(array.report().progress.is_some(), "too late");
            bench.settled(&array).await;
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{level:?}");
        });
    }
}

/// A member has been filled and does not count as in sync yet, for the write-intent bitmap is still
/// being written. A write that another one refuses then would leave that one's sectors with a
/// parity that does not fit them.
#[test]
fn nothing_is_written_while_a_filled_member_becomes_one_in_sync() {
    let (mut sim, disks) = run(1, 1, &[8; 4], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        array.close().await.unwrap();
    });
    let rule = |from, when, effect| FaultRule {
        disk: disks[0],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(from), Sectors(8))),
        when,
        effect,
    };
    // The first one marks a region.
    let hangs = rule(16, When::Nth(2), FaultEffect::Stick(None));
    // Three members have shorter journals than four.
    let refused = rule(4096, When::Always, FaultEffect::Fail(IoErrorKind::Other));
    strike(&mut sim, vec![hangs, refused]);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        array.fail(1).await.unwrap();
        bench.write(&array, 32, 8, 2).await.unwrap();
        let (new, fresh) = (bench.candidate(3), bench.uuid());
        array.replace(1, new, fresh, false).await.unwrap();
        bench.sleep(20_000).await;
        let state = array.report().members[1].state;
        assert_eq!(state, MemberState::Rebuilding { whole: true });
        let release = async {
            bench.sleep(100).await;
            bench.control.release(bench.disks[0]);
        };
        let (written, ()) = join(bench.write(&array, 0, 8, 3), release).await;
        bench.sleep(1000).await;
        let state = array.report().members[1].state;
        assert_eq!(state, MemberState::InSync);
        let found = array.scrub(false).await.unwrap();
        assert_eq!(found.mismatches, 0, "{written:?}");
        // The write waited, and the array could then do without the member that refused it.
        written.unwrap();
        assert!(array.report().members[0].state.is_failed());
        assert!(bench.holds(&array, 0, 8, 3).await);
    });
}

/// A filled member is in sync, and the others do not know that yet. Until then the array needs each
/// of them. A write that one refuses has failed, and its parity does not fit the data.
#[test]
fn nothing_is_computed_from_a_parity_that_a_refused_write_left() {
    for is_known in [true, false] {
        run(16, 1, &[8; 3], async move |bench| {
            let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            bench.end(array).await;
            let superblocks = Extent::new(Lba(0), Sectors(16));
            let chunk = Extent::new(Lba(4096), Sectors(64));
            let refused: Rc<RefCell<Vec<Extent>>> = Rc::default();
            let refuses = refused.clone();
            let first = faulty(&bench, 0, move |op| {
                let within = |at| refuses.borrow().iter().any(|of| of.overlaps(at));
                matches!(op, Op::Write(at) if within(at))
            });
            let mut all = bench.candidates(&[1, 2]);
            all.push(first);
            let array = bench.assemble_with(all, options()).await.unwrap();
            bench.settled(&array).await;
            array.fail(1).await.unwrap();
            // Marks the region.
            bench.write(&array, 0, 8, 1).await.unwrap();
            let (back, fresh) = (bench.candidate(1), bench.uuid());
            array.add(back, fresh, false).await.unwrap();
            *refused.borrow_mut() = vec![superblocks];
            while array.report().members[1].state != MemberState::InSync {
                bench.sleep(1).await;
            }
            assert!(!array.report().committed);
            *refused.borrow_mut() = match is_known {
                true => vec![chunk],
                false => vec![chunk, superblocks],
            };
            bench.write(&array, 0, 8, 2).await.unwrap_err();
            refused.borrow_mut().clear();
            if !is_known {
                bench.settled(&array).await;
            }
            assert!(bench.holds(&array, 0, 8, 1).await);
            array.fail(0).await.unwrap();
            assert!(bench.holds(&array, 0, 8, 1).await, "{is_known}");
        });
    }
}

/// With three members in pairs and one missing, the array needs both others, although they hold the
/// same chunk.
#[test]
fn copies_agree_after_a_write_that_one_of_them_refused() {
    refusing(Level::Raid10, 3, (2, 0, 1024), async |bench, array| {
        array.fail(0).await.unwrap();
        let mut refused = Vec::new();
        for at in (0..1024).step_by(64) {
            if bench.write(&array, at, 8, 2).await.is_err() {
                refused.push(at);
            }
        }
        assert!(refused.len() > 8, "{refused:?}");
        for at in refused {
            let first = bench.read(&array, at, 8).await;
            for _ in 0..4 {
                match (&first, bench.read(&array, at, 8).await) {
                    (Ok(first), Ok(again)) => assert!(first[..] == again[..], "sector {at}"),
                    // Sectors that cannot be brought into agreement are not returned.
                    (first, again) => assert!(first.is_err() && again.is_err()),
                }
            }
        }
    });
}

/// A record of the journal that was not done with would do the write again.
#[test]
fn what_was_read_after_a_refused_write_stays_over_a_loss_of_power() {
    for missing in 0..4 {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let message = seen.clone();
        let refused = ((missing + 1) % 4, 0, 1024);
        let (mut sim, disks) = refusing(Level::Raid5, 4, refused, async move |bench, array| {
            array.fail(missing).await.unwrap();
            for at in (0..2048).step_by(64) {
                let written = bench.write(&array, at, 8, 2).await;
                for at in (at..at + 8).filter(|_| written.is_err()) {
                    let byte = first_byte(&bench, &array, at).await;
                    message.borrow_mut().push((at, byte));
                }
            }
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        assert!(seen.borrow().len() > 32, "{missing}");
        strike(&mut sim, Vec::new());
        after_power(
            &mut sim,
            &disks,
            &[0, 1, 2, 3],
            async move |bench, array| {
                for (at, byte) in seen.take() {
                    let now = first_byte(&bench, &array, at).await;
                    assert_eq!(now, byte, "sector {at}");
                }
            },
        );
    }
}

/// Nor may older records of the same stripe, whether a flush has covered them or not.
#[test]
fn what_was_written_before_a_refused_write_is_not_done_again_after_it() {
    for (missing, disk, flushed) in (0..4)
        .flat_map(|missing| (0..4).map(move |disk| (missing, disk)))
        .filter(|(missing, disk)| missing != disk)
        .flat_map(|(missing, disk)| [(missing, disk, true), (missing, disk, false)])
    {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let message = seen.clone();
        let refused = (disk, 0, 8);
        let (mut sim, disks) = refusing(Level::Raid5, 4, refused, async move |bench, array| {
            for column in 0..3 {
                bench.write(&array, column * 64 + 8, 8, 2).await.unwrap();
            }
            if flushed {
                array.flush().await.unwrap();
            }
            array.fail(missing).await.unwrap();
            assert!(bench.write(&array, 0, 192, 3).await.is_err());
            for at in 0..192 {
                let byte = first_byte(&bench, &array, at).await;
                message.borrow_mut().push(byte);
            }
            array.flush().await.unwrap();
            bench.cut_power().await;
        });
        assert!(seen.borrow().contains(&Some(3)));
        strike(&mut sim, Vec::new());
        after_power(
            &mut sim,
            &disks,
            &[0, 1, 2, 3],
            async move |bench, array| {
                for (at, byte) in (0..).zip(seen.take()) {
                    let now = first_byte(&bench, &array, at).await;
                    assert_eq!(now, byte, "sector {at} of {missing} {disk} {flushed}");
                }
                bench.settled(&array).await;
                let found = array.scrub(false).await.unwrap();
                assert_eq!(found.mismatches, 0, "{missing} {disk} {flushed}");
            },
        );
    }
}

/// The loss of a member may tear a copy of its superblock. That would be the only copy left if the
/// power went while the other is written.
#[test]
fn a_member_that_returns_has_two_whole_superblocks() {
    for torn in [0, 8] {
        run(12, 1, &[8; 2], async move |bench| {
            let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
            array.fail(1).await.unwrap();
            let disk = bench.candidate(1).device;
            let mut buf = bench.env.pool.get(512).await;
            buf.fill(7);
            disk.write(Lba(torn), buf.share(), Fua::Yes).await.unwrap();
            let (back, fresh) = (bench.candidate(1), bench.uuid());
            array.add(back, fresh, false).await.unwrap();
            for copy in [0, 8] {
                let buf = bench.env.pool.get(4096).await;
                let (buf, result) = disk.read(Lba(copy), buf).await;
                result.unwrap();
                assert!(
                    ArraySuperblock::decode(&buf).is_some(),
                    "{copy} with {torn} torn"
                );
            }
        });
    }
}

/// Makes `disk` refuse `ops` from here on.
fn refuse(sim: &mut SimHost, disk: TargetId, ops: OpFilter, within: Option<Extent>, when: When) {
    let rule = FaultRule {
        disk,
        ops,
        within,
        when,
        effect: FaultEffect::Fail(IoErrorKind::Other),
    };
    strike(sim, vec![rule]);
}

/// Refused operations that concern all of an array: flushes, and writes of the bitmap.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Refused {
    Flush,
    Map,
}

/// Such a refusal is reported to clients, unless the array can do without that member.
#[test]
fn what_is_refused_is_reported_or_its_member_left_behind() {
    for (refused, level, members, needed) in [
        (Refused::Flush, Level::Linear, 2, true),
        (Refused::Flush, Level::Raid0, 2, true),
        (Refused::Flush, Level::Raid1, 2, false),
        (Refused::Flush, Level::Raid1, 2, true),
        (Refused::Flush, Level::Raid5, 3, false),
        (Refused::Map, Level::Raid1, 2, false),
        (Refused::Map, Level::Raid1, 2, true),
        (Refused::Map, Level::Raid5, 3, false),
    ] {
        let roles: Vec<usize> = (0..members).collect();
        let all = roles.clone();
        let (mut sim, disks) = run(11, 1, &vec![8; members], async move |bench| {
            let array = bench.create(level, &roles, &[]).await.unwrap();
            array.close().await.unwrap();
        });
        let (ops, within) = match refused {
            Refused::Flush => (OpFilter::Flushes, None),
            Refused::Map => (OpFilter::Writes, Some(Extent::new(Lba(16), Sectors(8)))),
        };
        refuse(&mut sim, disks[0], ops, within, When::Always);
        drive(&mut sim, &disks, async move |bench| {
            let array = bench.assemble(&all).await.unwrap();
            if needed && level.is_redundant() {
                array.fail(1).await.unwrap();
            }
            let mut answer = bench.write(&array, 0, 8, 5).await;
            if refused == Refused::Flush {
                answer.unwrap();
                answer = array.flush().await;
            }
            assert_eq!(answer.is_err(), needed, "{refused:?} {level:?}: {answer:?}");
            let member = &array.report().members[0];
            let lost = member.state.is_failed();
            assert_eq!(lost, !needed, "{refused:?} {level:?}");
            assert_ne!(member.counts.write_errors, 0);
        });
    }
}

/// A flush that is slow.
const SLOW_FLUSH: Nanos = Nanos::from_secs(1);

/// Runs `test` on a RAID 5 with the fewest records. Flushes of its first member are slow, `when`.
fn slow_flushes(when: When, test: impl AsyncFnOnce(Bench, Array) + 'static) {
    let (mut sim, disks) = run(13, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid5, &[0, 1, 2], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let slow = FaultRule {
        disk: disks[0],
        ops: OpFilter::Flushes,
        within: None,
        when,
        effect: FaultEffect::Delay(SLOW_FLUSH),
    };
    strike(&mut sim, vec![slow]);
    drive(&mut sim, &disks, async move |bench| {
        let array = bench.assemble(&[0, 1, 2]).await.unwrap();
        test(bench, array).await;
    });
}

/// A record's slot is used again only once a flush has covered the record's writes.
#[test]
fn a_full_journal_waits_for_a_flush() {
    slow_flushes(When::Always, async |bench, array| {
        let began = bench.env.timer.now();
        // Sixteen records: the start left one, that older ones count no more.
        for at in 0..15 {
            bench.write(&array, at, 1, 1).await.unwrap();
        }
        let took = bench.env.timer.now() - began;
        assert!(
            took < Nanos(SLOW_FLUSH.0 / 2),
            "a write waited for a flush: {took}"
        );
        bench.write(&array, 15, 1, 1).await.unwrap();
        let took = bench.env.timer.now() - began;
        assert!(took >= SLOW_FLUSH, "the journal was not flushed: {took}");
        for at in 16..100 {
            bench.write(&array, at, 1, 1).await.unwrap();
        }
        assert!(bench.holds(&array, 0, 100, 1).await);
    });
}

/// The members of a closed array may be in other use next.
#[test]
fn an_array_is_closed_once_its_flush_for_room_has_ended() {
    // The start flushes twice.
    slow_flushes(When::Nth(3), async |bench, array| {
        for at in 0..10 {
            bench.write(&array, at, 1, 1).await.unwrap();
        }
        let began = bench.env.timer.now();
        array.close().await.unwrap();
        let took = bench.env.timer.now() - began;
        assert!(took > Nanos(SLOW_FLUSH.0 / 2), "{took}");
    });
}

/// Members of an unused array get no operations.
#[test]
fn an_array_that_is_not_used_leaves_its_members_alone() {
    let (mut sim, disks) = run(12, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 8, 5).await.unwrap();
        array.close().await.unwrap();
    });
    refuse(&mut sim, disks[0], OpFilter::Flushes, None, When::Always);
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1]).await.unwrap();
        bench.sleep(20_000).await;
        assert!(array.is_settled(), "{:?}", array.events());
    });
}

/// A device reports once that it lost writes: also if the array itself asked for the flush.
#[test]
fn a_flush_that_failed_for_the_array_itself_is_reported_to_its_user() {
    let (mut sim, disks) = run(14, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let fails = |disk: &TargetId| FaultRule {
        disk: *disk,
        ops: OpFilter::Flushes,
        within: None,
        // The start flushes once.
        when: When::Nth(2),
        effect: FaultEffect::Fail(IoErrorKind::Media),
    };
    strike(&mut sim, disks.iter().map(fails).collect());
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1]).await.unwrap();
        bench.write(&array, 0, 8, 5).await.unwrap();
        // Until the bits are to be cleared, which needs a flush.
        bench.sleep(20_000).await;
        assert!(array.report().members[0].state.is_failed());
        array.flush().await.unwrap_err();
        array.flush().await.unwrap();
    });
}

/// A member that can be read alone is given back again and again, as a daemon does. Its filling and
/// its failure are logged once, and again after it was whole.
#[test]
fn a_member_that_takes_no_write_is_reported_once() {
    let (mut sim, disks) = run(15, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        array.close().await.unwrap();
    });
    let superblocks = Some(Extent::new(Lba(0), Sectors(16)));
    refuse(
        &mut sim,
        disks[1],
        OpFilter::Writes,
        superblocks,
        When::Always,
    );
    drive(&mut sim, &disks, async |bench| {
        let array = bench.assemble(&[0, 1]).await.unwrap();
        let message = |what: &str| {
            let events = array.events().0;
            events.iter().filter(|e| e.what.contains(what)).count()
        };
        for _ in 0..20 {
            assert!(array.report().members[1].state.is_failed());
            let back = bench.candidate(1);
            let _ = array.add(back, bench.uuid(), false).await;
            bench.sleep(200).await;
        }
        assert_eq!(
            message("member 1 is being filled"),
            1,
            "{:?}",
            array.events().0
        );
        // Either copy of its superblock.
        assert!((1..=2).contains(&message("member 1 has failed")));
    });
}
