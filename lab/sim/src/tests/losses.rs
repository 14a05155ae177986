//! Disks that lose writes and continue, that hang, with failed writes that land later, and with
//! bytes changed behind their driver.

use super::hand::{Hand, one_disk};
use crate::{FaultClass, FaultEffect, FaultPlan, FaultRule, OpFilter, SimHost, Survival, When};
use block::{Driver as _, DriverOp, IoErrorKind, Lba, Nanos};

const NOTHING_SURVIVES: Survival = Survival {
    kept: 0.0,
    torn: 0.0,
};

#[test]
fn a_disk_that_forgets_says_so_in_one_flush() {
    let (mut world, disk) = one_disk(1);
    let survival = Some(NOTHING_SURVIVES);
    let plan = FaultPlan {
        survival,
        ..FaultPlan::default()
    };
    world.set_plan(plan).unwrap();
    let control = world.control();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    hand.flush(disk).unwrap();
    control.forget(disk);
    hand.flush(disk).unwrap();
    hand.write(disk, 0, 1, 2).unwrap();
    control.forget(disk);
    assert_eq!(hand.read(disk, 0, 1).unwrap(), [1]);
    hand.write(disk, 1, 1, 3).unwrap();
    assert_eq!(hand.flush(disk).unwrap_err().kind(), IoErrorKind::Gone);
    hand.flush(disk).unwrap();
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [1, 3]);
    assert_eq!(sim.world().tally().count(FaultClass::Forgotten), 2);
    assert_eq!(sim.world().tally().count(FaultClass::LossReported), 1);
}

#[test]
fn a_flush_in_flight_does_not_cover_what_was_forgotten_meanwhile() {
    let (world, disk) = one_disk(1);
    let control = world.control();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    let flush = hand.start(disk, DriverOp::Flush);
    control.forget(disk);
    assert!(hand.wait(flush).0.is_err());
    hand.flush(disk).unwrap();
}

#[test]
fn a_write_that_timed_out_lands_over_a_newer_one() {
    let (mut world, disk) = one_disk(1);
    let rule = FaultRule::new(
        disk,
        OpFilter::Writes,
        When::Nth(1),
        FaultEffect::Late(Nanos::from_millis(5)),
    );
    let plan = FaultPlan::of(vec![rule]);
    world.set_plan(plan).unwrap();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let error = hand.write(disk, 0, 1, 1).unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::Timeout);
    hand.write(disk, 0, 2, 2).unwrap();
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [2, 2]);
    hand.sleep(Nanos::from_millis(6));
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [1, 2]);
    assert_eq!(sim.world().overlaps(disk), 0);
    assert_eq!(sim.world().tally().count(FaultClass::LateWrite), 1);
}

#[test]
fn a_disk_that_hangs_answers_nothing_until_it_is_released() {
    let (world, disk) = one_disk(1);
    let control = world.control();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let before = hand.start(disk, DriverOp::Flush);
    control.hang(disk);
    let after = hand.start(disk, DriverOp::Flush);
    let hour = Nanos::from_secs(3600);
    assert!(hand.park(hour).is_empty());
    control.release(disk);
    for token in [before, after] {
        hand.wait(token).0.unwrap();
    }
    hand.flush(disk).unwrap();
}

#[test]
fn what_is_behind_a_disk_can_be_looked_at_saved_and_put_back() {
    let (world, disk) = one_disk(1);
    let medium = world.medium(disk).unwrap();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 1, 1).unwrap();
    let first = |durable: bool| {
        let mut bytes = [0; 512];
        match durable {
            true => medium.durable(Lba(0), &mut bytes),
            false => medium.latest(Lba(0), &mut bytes),
        }
        bytes[0]
    };
    assert_eq!((first(false), first(true)), (1, 0));
    let saved = medium.save();
    hand.write(disk, 0, 1, 2).unwrap();
    medium.write(Lba(1), &[7; 512]);
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [2, 7]);
    medium.restore(&saved);
    assert_eq!((first(false), first(true)), (1, 1));
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [1, 0]);
}

#[test]
fn while_the_process_is_paused_the_clock_runs_and_threads_do_not() {
    let (world, disk) = one_disk(1);
    let control = world.control();
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    let pause = Nanos::from_secs(40);
    let flushes: Vec<_> = (0..64).map(|_| hand.start(disk, DriverOp::Flush)).collect();
    control.pause(pause);
    hand.sleep(Nanos(1));
    assert_eq!(hand.driver.now(), pause, "it was paused for that long");
    let noticed = hand.park(pause).len();
    assert!(noticed > 10 && noticed < 54, "{noticed} ended meanwhile");
    for _ in noticed..flushes.len() {
        let ended = hand.park(pause + Nanos::from_secs(1));
        assert!(!ended.is_empty(), "the others end soon after");
    }
    assert_eq!(sim.world().tally().count(FaultClass::Paused), 1);
}
