//! Each class of disk fault strikes at its place, is seen, and is counted.

use super::hand::{Hand, one_disk, small_disk};
use crate::{
    FaultClass, FaultEffect, FaultPlan, FaultRule, OpFilter, Outage, RunMoment, ServiceSpan,
    ServiceTime, SimHost, Survival, When,
};
use block::{
    DriverOp, Extent, Fua, Geometry, IoErrorKind, IoResult, Lba, Nanos, Sectors, TargetId,
};

fn rule(disk: TargetId, ops: OpFilter, when: When, effect: FaultEffect) -> FaultPlan {
    FaultPlan::of(vec![FaultRule::new(disk, ops, when, effect)])
}

fn with(plan: impl Fn(TargetId) -> FaultPlan) -> (SimHost, TargetId) {
    let (mut world, disk) = one_disk(1);
    world.set_plan(plan(disk)).unwrap();
    (SimHost::new(world), disk)
}

fn kind<T>(result: IoResult<T>) -> Option<IoErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn delay_is_added_to_the_operation_it_strikes() {
    let (mut world, _) = one_disk(1);
    let mut spec = small_disk("slow");
    spec.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos(100)));
    let disk = world.add_disk(spec).unwrap();
    let delay = FaultEffect::Delay(Nanos::from_secs(1));
    world
        .set_plan(rule(disk, OpFilter::Reads, When::Nth(2), delay))
        .unwrap();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let mut times = Vec::new();
    for _ in 0..3 {
        hand.read(disk, 0, 1).unwrap();
        times.push(sim.world().now().0);
    }
    assert_eq!(times, [100, 1_000_000_200, 1_000_000_300]);
    assert_eq!(sim.world().tally().count(FaultClass::Delay), 1);
}

#[test]
fn errors_by_range_by_count_and_by_chance() {
    let (mut sim, disk) = with(|disk| {
        FaultPlan::of(vec![FaultRule {
            disk,
            ops: OpFilter::All,
            within: Some(Extent::new(Lba(8), Sectors(8))),
            when: When::Always,
            effect: FaultEffect::Fail(IoErrorKind::Timeout),
        }])
    });
    let mut hand = Hand::new(&mut sim);
    assert_eq!(kind(hand.read(disk, 0, 8)), None);
    assert_eq!(kind(hand.read(disk, 0, 9)), Some(IoErrorKind::Timeout));
    assert_eq!(kind(hand.write(disk, 15, 1, 1)), Some(IoErrorKind::Timeout));
    assert_eq!(kind(hand.write(disk, 16, 1, 1)), None);
    let landed = sim.world().tally().landed()[1];
    assert_eq!(
        (landed.class, landed.target, landed.place),
        (FaultClass::Error, disk, 15)
    );

    let fail = FaultEffect::Fail(IoErrorKind::Media);
    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Flushes, When::Nth(3), fail));
    let mut hand = Hand::new(&mut sim);
    let failed: Vec<bool> = (0..5).map(|_| hand.flush(disk).is_err()).collect();
    assert_eq!(failed, [false, false, true, false, false]);

    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Writes, When::Chance(0.25), fail));
    let mut hand = Hand::new(&mut sim);
    let failed = (0..1000).filter(|_| hand.write(disk, 0, 1, 1).is_err());
    let failed = failed.count();
    assert!((200..300).contains(&failed), "{failed} of 1000");
    assert_eq!(sim.world().tally().count(FaultClass::Error), failed as u64);
}

#[test]
fn a_write_that_fails_may_land_in_part_if_its_kind_says_so() {
    for (error, may_change) in [(IoErrorKind::Media, true), (IoErrorKind::ReadOnly, false)] {
        let fail = FaultEffect::Fail(error);
        let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Writes, When::Always, fail));
        let mut hand = Hand::new(&mut sim);
        let mut seen = [0; 2];
        for at in (0..400).step_by(8) {
            hand.write(disk, at, 8, 1).unwrap_err();
            for byte in hand.read(disk, at, 8).unwrap() {
                seen[usize::from(byte)] += 1;
            }
        }
        assert_eq!(seen[1] > 0, may_change, "{error:?}");
        assert!(seen[0] > 0, "{error:?}");
    }
}

#[test]
fn latent_sectors_fail_reads_until_they_are_written() {
    let (mut sim, disk) = with(|disk| FaultPlan {
        latent: vec![(disk, Extent::new(Lba(10), Sectors(4)))],
        ..FaultPlan::default()
    });
    let mut hand = Hand::new(&mut sim);
    let error = hand.read(disk, 8, 4).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Media);
    assert_eq!(error.extent(), Some(Extent::new(Lba(10), Sectors(2))));
    hand.write(disk, 10, 3, 7).unwrap();
    assert_eq!(hand.read(disk, 10, 3).unwrap(), [7, 7, 7]);
    assert_eq!(kind(hand.read(disk, 13, 1)), Some(IoErrorKind::Media));
    let (result, _) = hand.run(disk, DriverOp::Zero(Extent::new(Lba(13), Sectors(1))));
    result.unwrap();
    assert_eq!(hand.read(disk, 13, 1).unwrap(), [0]);
    assert_eq!(sim.world().tally().count(FaultClass::LatentSector), 2);
}

#[test]
fn a_ruined_write_leaves_sectors_that_cannot_be_read() {
    let (mut sim, disk) =
        with(|disk| rule(disk, OpFilter::Writes, When::Nth(2), FaultEffect::Ruin));
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 8, 1).unwrap();
    assert_eq!(kind(hand.write(disk, 2, 2, 2)), Some(IoErrorKind::Media));
    assert_eq!(kind(hand.read(disk, 0, 8)), Some(IoErrorKind::Media));
    assert_eq!(hand.read(disk, 4, 4).unwrap(), [1; 4]);
    hand.write(disk, 2, 2, 3).unwrap();
    assert_eq!(hand.read(disk, 0, 5).unwrap(), [1, 1, 3, 3, 1]);
}

#[test]
fn bit_flips_change_one_bit_of_what_is_read_or_stored() {
    for (ops, stays) in [(OpFilter::Reads, false), (OpFilter::Writes, true)] {
        let (mut sim, disk) = with(|disk| rule(disk, ops, When::Nth(1), FaultEffect::FlipBit));
        let mut hand = Hand::new(&mut sim);
        hand.write(disk, 0, 4, 0).unwrap();
        let mut bits = || {
            let buf = hand.buf(2048);
            let (result, payload) = hand.run(disk, DriverOp::Read(Lba(0), buf));
            result.unwrap();
            let block::Payload::Buf(buf) = payload else {
                panic!("a read gives its buffer back")
            };
            buf.iter().map(|b| b.count_ones()).sum::<u32>()
        };
        assert_eq!(bits(), 1, "{ops:?}");
        assert_eq!(bits(), u32::from(stays), "{ops:?}");
        assert_eq!(sim.world().tally().count(FaultClass::BitFlip), 1);
    }
}

#[test]
fn misdirected_and_dropped_writes_leave_the_old_bytes() {
    for (effect, class) in [
        (FaultEffect::Misdirect, FaultClass::Misdirected),
        (FaultEffect::Drop, FaultClass::Dropped),
    ] {
        let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Writes, When::Nth(2), effect));
        let mut hand = Hand::new(&mut sim);
        hand.write(disk, 64, 2, 1).unwrap();
        hand.write(disk, 64, 2, 2).unwrap();
        let all = hand.read(disk, 0, 2048).unwrap();
        let landed: Vec<usize> = (0..2048).filter(|i| all[*i] == 2).collect();
        let world = sim.world();
        assert_eq!(world.tally().count(class), 1);
        if class == FaultClass::Misdirected {
            let place = world.tally().landed()[0].place as usize;
            assert_eq!(landed, [place, place + 1]);
            assert_ne!(place, 64);
        } else {
            assert!(landed.is_empty());
            assert_eq!(all[64..66], [1, 1]);
        }
    }
}

#[test]
fn stuck_operations_wait_for_their_time_or_for_release() {
    let until = Nanos::from_secs(3);
    let stick = FaultEffect::Stick(Some(until));
    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Writes, When::Nth(1), stick));
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    assert_eq!(sim.world().now(), until);

    let stick = FaultEffect::Stick(None);
    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Writes, When::Nth(1), stick));
    let mut hand = Hand::new(&mut sim);
    let data = hand.filled(512, 1);
    let stuck = hand.start(disk, DriverOp::Write(Lba(0), data, Fua::Yes));
    hand.sleep(Nanos::from_secs(10));
    assert_eq!(hand.read(disk, 0, 1).unwrap().len(), 1, "others go on");
    sim.world().control().release(disk);
    hand.wait(stuck).0.unwrap();
    assert_eq!(hand.read(disk, 0, 1).unwrap(), [1]);
    assert_eq!(sim.world().tally().count(FaultClass::Stuck), 1);
}

#[test]
fn a_disk_that_hangs_answers_nothing_until_it_is_released() {
    let (mut sim, disk) = with(|_| FaultPlan::default());
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 7).unwrap();
    let data = hand.filled(512, 8);
    let before = hand.start(disk, DriverOp::Write(Lba(0), data, Fua::No));
    sim.world().control().hang(disk);
    let after = hand.start(disk, DriverOp::Flush);
    hand.sleep(Nanos::from_secs(3600));
    assert!(hand.park(Nanos::ZERO).is_empty());
    sim.world().control().release(disk);
    hand.wait(before).0.unwrap();
    hand.wait(after).0.unwrap();
    assert_eq!(hand.read(disk, 0, 1).unwrap(), [8]);
    assert_eq!(sim.world().tally().count(FaultClass::Stuck), 2);
}

#[test]
fn discards_can_be_refused_alone() {
    let refused = FaultEffect::Fail(IoErrorKind::Unsupported);
    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Discards, When::Always, refused));
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 7).unwrap();
    let whole = Extent::new(Lba(0), Sectors(1));
    let (result, _) = hand.run(disk, DriverOp::Discard(whole));
    assert_eq!(kind(result), Some(IoErrorKind::Unsupported));
    assert_eq!(hand.read(disk, 0, 1).unwrap(), [7]);
    hand.run(disk, DriverOp::Zero(whole)).0.unwrap();
}

#[test]
fn what_a_cut_takes_may_be_unreadable_until_it_is_written() {
    let survival = Some(Survival {
        kept: 0.0,
        torn: 0.0,
    });
    let (mut sim, disk) = with(|_| FaultPlan {
        survival,
        spoiled: 1.0,
        ..FaultPlan::default()
    });
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 4, 7).unwrap();
    hand.flush(disk).unwrap();
    hand.write(disk, 1, 2, 8).unwrap();
    sim.world().control().cut_power(None);
    let mut hand = Hand::new(&mut sim);
    assert_eq!(kind(hand.read(disk, 1, 1)), Some(IoErrorKind::Media));
    assert_eq!(kind(hand.read(disk, 2, 1)), Some(IoErrorKind::Media));
    assert_eq!(hand.read(disk, 0, 1).unwrap(), [7]);
    assert_eq!(hand.read(disk, 3, 1).unwrap(), [7]);
    hand.write(disk, 1, 2, 9).unwrap();
    assert_eq!(hand.read(disk, 0, 4).unwrap(), [7, 9, 9, 7]);
    assert_eq!(sim.world().tally().count(FaultClass::CutSpoiled), 2);
}

#[test]
fn a_disk_comes_back_with_another_shape_and_the_bytes_it_had() {
    let (mut sim, disk) = with(|_| FaultPlan::default());
    Hand::new(&mut sim).write(disk, 8, 8, 7).unwrap();
    sim.world_mut().reshape(disk, Sectors(1024), Sectors(8));
    let mut hand = Hand::new(&mut sim);
    assert_eq!(kind(hand.read(disk, 9, 1)), Some(IoErrorKind::Invalid));
    assert_eq!(
        kind(hand.write(disk, 1024, 8, 1)),
        Some(IoErrorKind::Invalid)
    );
    assert_eq!(hand.read(disk, 8, 8).unwrap(), [7; 8]);
}

#[test]
fn a_disk_that_goes_fails_everything_and_comes_back_with_what_was_durable() {
    let (mut sim, disk) = with(|disk| FaultPlan {
        outages: vec![Outage {
            disk,
            gone: RunMoment::At(Nanos::from_secs(1)),
            back: Some(RunMoment::At(Nanos::from_secs(2))),
        }],
        survival: Some(crate::Survival {
            kept: 0.0,
            torn: 0.0,
        }),
        ..FaultPlan::default()
    });
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    hand.flush(disk).unwrap();
    hand.write(disk, 0, 2, 2).unwrap();
    hand.sleep(Nanos::from_secs(1));
    assert_eq!(kind(hand.read(disk, 0, 1)), Some(IoErrorKind::Gone));
    assert_eq!(kind(hand.flush(disk)), Some(IoErrorKind::Gone));
    hand.sleep(Nanos::from_secs(1));
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [1, 0]);
    let tally = sim.world().tally().clone();
    for class in [
        FaultClass::DeviceGone,
        FaultClass::DeviceBack,
        FaultClass::CutLost,
    ] {
        assert_eq!(tally.count(class), 1, "{class:?}");
    }
}

#[test]
fn an_outage_can_be_set_by_step_and_fails_what_is_in_flight() {
    let (mut sim, disk) = with(|disk| FaultPlan {
        outages: vec![Outage {
            disk,
            gone: RunMoment::Step(3),
            back: None,
        }],
        ..FaultPlan::default()
    });
    let mut hand = Hand::new(&mut sim);
    let ops: Vec<_> = (0..3)
        .map(|_| {
            let buf = hand.buf(512);
            hand.start(disk, DriverOp::Read(Lba(0), buf))
        })
        .collect();
    for token in ops {
        assert_eq!(kind(hand.wait(token).0), Some(IoErrorKind::Gone));
    }
    assert_eq!(sim.world().steps(), 3);
    sim.world().control().revive(disk);
    assert!(hand.read(disk, 0, 1).is_ok());
    sim.world().control().kill(disk);
    assert_eq!(kind(hand.read(disk, 0, 1)), Some(IoErrorKind::Gone));
}

#[test]
fn an_ignored_flush_is_counted() {
    let lie = FaultEffect::IgnoreFlush;
    let (mut sim, disk) = with(|disk| rule(disk, OpFilter::Flushes, When::Always, lie));
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    hand.flush(disk).unwrap();
    let data = hand.filled(512, 1);
    let (result, _) = hand.run(disk, DriverOp::Write(Lba(1), data, Fua::Yes));
    result.unwrap();
    assert_eq!(sim.world().tally().count(FaultClass::FlushIgnored), 2);
}

#[test]
fn writes_that_overlap_in_flight_are_noticed() {
    let (world, disk) = one_disk(1);
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let mut tokens = Vec::new();
    for at in [0, 8, 7] {
        let data = hand.filled(4096, 1);
        tokens.push(hand.start(disk, DriverOp::Write(Lba(at), data, Fua::No)));
    }
    for token in tokens {
        hand.wait(token).0.unwrap();
    }
    hand.write(disk, 0, 8, 1).unwrap();
    assert_eq!(sim.world().overlaps(disk), 1);
}

#[test]
fn a_read_beside_a_write_sees_old_or_new_sectors() {
    let mut mixed = 0;
    for seed in 0..50 {
        let (world, disk) = one_disk(seed);
        let mut sim = SimHost::new(world);
        let mut hand = Hand::new(&mut sim);
        hand.write(disk, 0, 8, 1).unwrap();
        let data = hand.filled(4096, 2);
        let write = hand.start(disk, DriverOp::Write(Lba(0), data, Fua::No));
        let seen = hand.read(disk, 0, 8).unwrap();
        assert!(seen.iter().all(|b| [1, 2].contains(b)), "{seen:?}");
        mixed += usize::from(seen.contains(&1) && seen.contains(&2));
        hand.wait(write).0.unwrap();
        assert_eq!(hand.read(disk, 0, 8).unwrap(), [2; 8]);
    }
    assert!(mixed > 10, "{mixed}");
}

#[test]
fn a_disk_without_contents_reads_zeroes_and_keeps_its_faults() {
    let (mut world, _) = one_disk(1);
    let shape = Geometry::new("huge", Sectors::from_mib(1 << 24), Sectors(8));
    let mut spec = crate::DiskSpec::new(shape);
    spec.keep = crate::Keep::Nothing;
    let disk = world.add_disk(spec).unwrap();
    let far = Extent::new(Lba(1 << 34), Sectors(8));
    world
        .set_plan(FaultPlan {
            latent: vec![(disk, far)],
            ..FaultPlan::default()
        })
        .unwrap();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 8, 9).unwrap();
    assert_eq!(hand.read(disk, 0, 8).unwrap(), [0; 8]);
    assert_eq!(kind(hand.read(disk, 1 << 34, 8)), Some(IoErrorKind::Media));
    hand.write(disk, 1 << 34, 8, 9).unwrap();
    assert_eq!(kind(hand.read(disk, 1 << 34, 8)), None);
}
