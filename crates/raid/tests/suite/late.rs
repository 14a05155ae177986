//! Writes that land long after the array's timeout.

use crate::common::{Bench, drive, options, plan, run, strike};
use crate::faulty::{Op, slow};
use block::{BoxDevice, Extent, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use futures_util::future::join;
use raid::{Array, ArrayStart, Level, MemberCandidate, Options, assemble, create, examine, raw};
use sim::{FaultEffect, FaultRule, OpFilter, When};
use std::cell::Cell;
use std::rc::Rc;

fn with_timeout() -> Options {
    Options {
        timeout: Some(Nanos::from_millis(10)),
        ..options()
    }
}

/// The legs of a mirror: disks, or arrays of two.
const LEGS: [Option<Level>; 3] = [None, Some(Level::Raid0), Some(Level::Raid1)];

async fn leg(bench: &Bench, inner: Option<Level>, pair: [usize; 2]) -> MemberCandidate {
    let Some(_) = inner else {
        return bench.candidate(pair[1]);
    };
    // The members of an inner mirror that alone hold data are waited for.
    let start = ArrayStart::Degraded;
    let found = match inner {
        Some(Level::Raid1) => bench.candidates(&pair[1..]),
        _ => bench.candidates(&pair),
    };
    let made = assemble(&bench.env, None, bench.uuid(), found, start, with_timeout()).await;
    MemberCandidate::new(BoxDevice::new(made.unwrap()), "c")
}

async fn outer(bench: &Bench, legs: Vec<MemberCandidate>) -> Array {
    let made = bench.assemble_with(legs, with_timeout()).await;
    made.unwrap()
}

/// A new mirror of two legs.
async fn mirrored(bench: &Bench, inner: Option<Level>) -> Array {
    let mut legs = Vec::new();
    for pair in [[0usize, 1], [2, 3]] {
        if let Some(level) = inner {
            let mut plan = plan(level);
            plan.name = format!("half{}", pair[0]);
            let half = bench.make(&plan, &pair, &[]).await.unwrap();
            half.close().await.unwrap();
        }
        legs.push(leg(bench, inner, pair).await);
    }
    let mut fresh = || bench.uuid();
    let mirror = plan(Level::Raid1);
    let made = create(&bench.env, &mirror, legs, vec![], &mut fresh, options());
    made.await.unwrap()
}

/// One leg hangs in a write of 2 and is evicted; 3 is written; then the leg is taken back, and only
/// then the write of 2 ends.
#[test]
fn a_write_that_was_given_up_does_not_land_after_its_members_return() {
    for (inner, waits) in LEGS
        .into_iter()
        .flat_map(|inner| [(inner, false), (inner, true)])
    {
        let (mut sim, disks) = run(1, 1, &[8; 4], async move |bench| {
            let array = mirrored(&bench, inner).await;
            bench.write(&array, 0, 4096, 1).await.unwrap();
            array.close().await.unwrap();
        });
        // The write of 2 is the only one of its size.
        let rule = FaultRule {
            disk: disks[3],
            ops: OpFilter::Writes,
            within: Some(Extent::new(Lba(2048 + 64), Sectors(4096))),
            when: When::Nth(1),
            effect: FaultEffect::Stick(None),
        };
        drive(&mut sim, &disks, async move |bench| {
            let legs = vec![
                leg(&bench, inner, [0, 1]).await,
                leg(&bench, inner, [2, 3]).await,
            ];
            outer(&bench, legs).await.close().await.unwrap();
        });
        strike(&mut sim, vec![rule]);
        drive(&mut sim, &disks, async move |bench| {
            let hung = leg(&bench, inner, [2, 3]).await;
            let legs = vec![leg(&bench, inner, [0, 1]).await, hung.clone()];
            let array = outer(&bench, legs).await;
            bench.write(&array, 64, 64, 2).await.unwrap();
            let lost = array.report().members[1].state.is_failed();
            assert!(lost, "{inner:?}: {:#?}", array.report());
            bench.write(&array, 64, 64, 3).await.unwrap();
            let add = || array.add(hung.clone(), bench.uuid(), false);
            if waits {
                let release = async {
                    bench.sleep(5).await;
                    bench.control.release(bench.disks[3]);
                };
                join(add(), release).await.0.unwrap();
            } else {
                let error = add().await.expect_err("its write can still land");
                assert_eq!(error.kind(), IoErrorKind::Timeout, "{inner:?}: {error}");
                bench.control.release(bench.disks[3]);
                bench.sleep(5).await;
                add().await.unwrap();
            }
            bench.settled(&array).await;
            bench.sleep(100).await;
            for _ in 0..4 {
                assert!(bench.holds(&array, 64, 64, 3).await, "{inner:?}, {waits}");
            }
            let found = array.scrub(false).await.unwrap();
            assert_eq!(found.mismatches, 0, "{inner:?}, {waits}");
        });
    }
}

/// A leg is evicted for one write while another, a later one, is still waited for. The first one
/// ends, and the leg is taken back: not before the other has ended too, which is given up
/// meanwhile.
#[test]
fn a_write_that_is_given_up_while_its_member_returns_is_waited_for_too() {
    let (mut sim, disks) = run(1, 1, &[8; 2], async move |bench| {
        let array = bench.make(&plan(Level::Raid1), &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        array.close().await.unwrap();
    });
    let late = |at: u64, span| FaultRule {
        disk: disks[1],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(2048 + at), Sectors(64))),
        when: When::Nth(1),
        effect: FaultEffect::Delay(Nanos::from_millis(span)),
    };
    strike(&mut sim, vec![late(64, 12), late(1024, 100)]);
    drive(&mut sim, &disks, async move |bench| {
        let candidates = bench.candidates(&[0, 1]);
        let array = outer(&bench, candidates).await;
        let first = bench.write(&array, 64, 64, 2);
        let second = async {
            bench.sleep(8).await;
            bench.write(&array, 1024, 64, 2).await.unwrap();
            bench.write(&array, 1024, 64, 3).await.unwrap();
        };
        let back = async {
            while !array.report().members[1].state.is_failed() {
                bench.sleep(1).await;
            }
            let again = bench.candidates(&[1]).remove(0);
            while array.add(again.clone(), bench.uuid(), false).await.is_err() {
                bench.sleep(1).await;
            }
        };
        let (first, _) = join(first, join(second, back)).await;
        first.unwrap();
        bench.settled(&array).await;
        bench.sleep(200).await;
        for _ in 0..4 {
            assert!(bench.holds(&array, 1024, 64, 3).await);
        }
        let found = array.scrub(false).await.unwrap();
        assert_eq!(found.mismatches, 0);
    });
}

/// A leg hangs in a write of 2 and another device takes its place. The hanging device is then to
/// replace the other leg, which is copied to it at once: not before its write of 2 has ended.
#[test]
fn a_device_whose_write_was_given_up_is_copied_to_only_once_that_has_ended() {
    let (mut sim, disks) = run(1, 1, &[8; 3], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.write(&array, 0, 4096, 1).await.unwrap();
        array.close().await.unwrap();
    });
    let rule = FaultRule {
        disk: disks[1],
        ops: OpFilter::Writes,
        within: Some(Extent::new(Lba(2048 + 64), Sectors(64))),
        when: When::Nth(1),
        effect: FaultEffect::Stick(None),
    };
    strike(&mut sim, vec![rule]);
    drive(&mut sim, &disks, async |bench| {
        let array = outer(&bench, bench.candidates(&[0, 1])).await;
        bench.write(&array, 64, 64, 2).await.unwrap();
        bench.write(&array, 64, 64, 3).await.unwrap();
        let put = async |role, disk| {
            let device = bench.candidate(disk);
            array.replace(role, device, bench.uuid(), true).await
        };
        put(1, 2).await.unwrap();
        bench.settled(&array).await;
        let error = put(0, 1).await.expect_err("its write can still land");
        assert_eq!(error.kind(), IoErrorKind::Timeout, "{error}");
        bench.control.release(bench.disks[1]);
        bench.sleep(5).await;
        put(0, 1).await.unwrap();
        bench.settled(&array).await;
        for _ in 0..4 {
            assert!(bench.holds(&array, 64, 64, 3).await);
        }
        let found = array.scrub(false).await.unwrap();
        assert_eq!(found.mismatches, 0);
    });
}

/// The only member that holds some data hangs in a write of 2, and its array is given up. The array
/// is reassembled, 3 is written, and only then the write of 2 ends.
#[test]
fn a_write_that_was_given_up_does_not_land_after_its_array_is_reassembled() {
    for level in [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid5] {
        let members: &[usize] = if level == Level::Raid5 {
            &[0, 1, 2]
        } else {
            &[0, 1]
        };
        let hung = usize::from(level != Level::Linear);
        let data_at = Rc::new(Cell::new(Lba(0)));
        let noted = data_at.clone();
        let (mut sim, disks) = run(1, 1, &[8; 3], async move |bench| {
            let array = bench.create(level, members, &[]).await.unwrap();
            bench.write(&array, 0, 1024, 1).await.unwrap();
            if level.is_redundant() {
                array.fail(0).await.unwrap();
            }
            array.close().await.unwrap();
            let superblock = examine(&bench.env, &bench.candidate(1).device).await;
            noted.set(Lba(superblock.unwrap().unwrap().data_at.0));
        });
        let stuck = FaultRule {
            disk: disks[hung],
            ops: OpFilter::Writes,
            within: Some(Extent::new(data_at.get(), Sectors(64))),
            when: When::Nth(1),
            effect: FaultEffect::Stick(None),
        };
        strike(&mut sim, vec![stuck]);
        drive(&mut sim, &disks, async move |bench| {
            let present = if level.is_redundant() {
                &members[1..]
            } else {
                members
            };
            let start = || {
                let candidates = bench.candidates(present);
                bench.assemble_with(candidates, with_timeout())
            };
            let array = start().await.unwrap();
            let written = Box::pin(bench.write(&array, 0, 128, 2));
            let limit = Nanos::from_millis(100);
            let ended = bench.env.timer.timeout(limit, written).await;
            assert!(ended.is_none(), "{level:?}");
            array.release().await;
            // The start waits for the write that hangs, or is refused.
            let soon = Nanos::from_millis(5);
            let array = match bench.env.timer.timeout(soon, Box::pin(start())).await {
                Some(Ok(array)) => array,
                _ => {
                    bench.control.release(bench.disks[hung]);
                    start().await.unwrap()
                }
            };
            bench.write(&array, 0, 128, 3).await.unwrap();
            bench.control.release(bench.disks[hung]);
            bench.sleep(100).await;
            assert!(bench.holds(&array, 0, 128, 3).await, "{level:?}");
        });
    }
}

/// The same of an array without superblocks.
#[test]
fn nor_does_it_on_an_array_without_superblocks() {
    let (mut sim, disks) = run(1, 1, &[8; 2], async |bench| {
        raw_array(&bench).await.unwrap();
    });
    let stuck = FaultRule::new(
        disks[1],
        OpFilter::Writes,
        When::Nth(1),
        FaultEffect::Stick(None),
    );
    strike(&mut sim, vec![stuck]);
    drive(&mut sim, &disks, async |bench| {
        let array = raw_array(&bench).await.unwrap();
        let written = Box::pin(bench.write(&array, 0, 128, 2));
        let limit = Nanos::from_millis(100);
        let ended = bench.env.timer.timeout(limit, written).await;
        assert!(ended.is_none());
        array.release().await;
        let refused = raw_array(&bench).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::Timeout, "{refused}");
        bench.control.release(bench.disks[1]);
        let array = raw_array(&bench).await.unwrap();
        bench.write(&array, 0, 128, 3).await.unwrap();
        bench.sleep(100).await;
        assert!(bench.holds(&array, 0, 128, 3).await);
    });
}

async fn raw_array(bench: &Bench) -> IoResult<Array> {
    let members = bench.candidates(&[0, 1]);
    raw(
        &bench.env,
        "raw",
        Level::Raid0,
        members,
        Sectors(64),
        with_timeout(),
    )
    .await
}

/// A leg that hangs in a write is taken out and a spare takes its place. Then the write fails: the
/// spare is not blamed.
#[test]
fn an_error_of_a_device_that_was_left_behind_is_not_its_successors() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3)] {
        run(1, 1, &vec![8; members + 1], async move |bench| {
            let all: Vec<_> = (0..members).collect();
            let array = bench.create(level, &all, &[]).await.unwrap();
            bench.write(&array, 0, 4096, 1).await.unwrap();
            bench.control.hang(bench.disks[1]);
            let hung = bench.write(&array, 0, 64, 2);
            let other = async {
                bench.sleep(1).await;
                let spare = bench.candidate(members);
                array.add(spare, bench.uuid(), false).await.unwrap();
                array.fail(1).await.unwrap();
                let is_filled = || !array.report().members[1].state.is_failed();
                while !is_filled() {
                    bench.sleep(1).await;
                }
                bench.control.kill(bench.disks[1]);
                bench.sleep(1).await;
                assert!(is_filled(), "{level:?}: {:#?}", array.events().0);
            };
            join(hung, other).await.0.unwrap();
            bench.settled(&array).await;
            assert!(bench.holds(&array, 0, 64, 2).await, "{level:?}");
            assert_eq!(array.scrub(false).await.unwrap().mismatches, 0);
        });
    }
}

/// The map is being cleared in the background. Its write would land on a device that may be in other
/// use by then.
#[test]
fn an_array_is_closed_once_no_write_of_its_map_can_land() {
    run(30, 1, &[8; 2], async |bench| {
        let array = bench.create(Level::Raid1, &[0, 1], &[]).await.unwrap();
        bench.end(array).await;
        let holds = Rc::new(Cell::new(false));
        let held = holds.clone();
        let map = Extent::new(Lba(16), Sectors(8));
        let is_held = move |op| held.get() && matches!(op, Op::Write(at) if at.overlaps(map));
        let members = vec![bench.candidate(0), slow(&bench, 1, is_held, |_| false)];
        let array = bench.assemble_with(members, options()).await.unwrap();
        bench.write(&array, 0, 8, 5).await.unwrap();
        holds.set(true);
        bench.sleep(2000).await;
        let is_closed = Cell::new(false);
        let close = async {
            array.close().await.unwrap();
            is_closed.set(true);
        };
        let release = async {
            bench.sleep(1000).await;
            assert!(!is_closed.get());
            holds.set(false);
        };
        join(close, release).await;
    });
}
