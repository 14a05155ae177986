//! Shards in one world: determinism, power domains, stalls and budgets.

use super::hand::{Hand, one_disk, small_disk};
use crate::{
    DiskSpec, Domain, FaultClass, FaultEffect, FaultPlan, FaultRule, LinkSpec, OpFilter, PowerCut,
    RunBudget, RunMoment, RunOutcome, ServiceTime, SimDriver, SimHost, SimRng, SimWorld, Survival,
    When,
};
use block::{
    Address, Completion, Driver, DriverOp, Extent, Fua, Geometry, Host, IoErrorKind, Lba, Nanos,
    Sectors, ShardId, ShardTurn, TargetId, Token, TurnProgress,
};
use drives::catalogue::{controller::WRITE_THROUGH, hdd::SAS15K};
use drives::{Controller, Hdd};
use std::sync::{Arc, Mutex};

/// A shard made of a function of its driver and of the completed operations.
struct Script<F> {
    driver: SimDriver,
    done: Vec<Completion>,
    turn: F,
}

impl<F> ShardTurn for Script<F>
where
    F: FnMut(&mut SimDriver, Vec<Completion>) -> TurnProgress,
{
    fn run_once(&mut self) -> TurnProgress {
        (self.turn)(&mut self.driver, std::mem::take(&mut self.done))
    }

    fn park(&mut self, deadline: Nanos) {
        self.driver.park(deadline, &mut self.done);
    }
}

fn script<F>(driver: SimDriver, turn: F) -> Box<dyn ShardTurn>
where
    F: FnMut(&mut SimDriver, Vec<Completion>) -> TurnProgress + 'static,
{
    Box::new(Script {
        driver,
        done: Vec::new(),
        turn,
    })
}

const IDLE: TurnProgress = TurnProgress::Idle(Nanos::MAX);

fn write(driver: &mut SimDriver, disk: TargetId, at: u64, value: u8, fua: Fua) {
    let mut buf = driver.pool().try_get(512).unwrap();
    buf.fill(value);
    let op = DriverOp::Write(Lba(at), buf.share(), fua);
    driver.submit(Token(at), disk, op);
}

/// A shard that keeps eight random operations on a disk in flight.
fn worker(
    shard: ShardId,
    driver: SimDriver,
    disk: TargetId,
    operations: u64,
) -> Box<dyn ShardTurn> {
    let mut rng = SimRng::new(u64::from(shard.0));
    let (mut begun, mut ended) = (0, 0);
    script(driver, move |driver, done| {
        ended += done.len() as u64;
        while begun < operations && begun - ended < 8 {
            let at = Lba(rng.below(2048));
            let op = match rng.below(3) {
                0 => DriverOp::Read(at, driver.pool().try_get(512).unwrap()),
                1 => DriverOp::Flush,
                _ => {
                    write(driver, disk, at.0, rng.bits() as u8, Fua::No);
                    begun += 1;
                    continue;
                }
            };
            driver.submit(Token(begun), disk, op);
            begun += 1;
        }
        if ended == operations {
            TurnProgress::Done
        } else {
            IDLE
        }
    })
}

/// Four shards at work on one disk with faults.
fn busy(seed: u64) -> SimHost {
    let (mut world, disk) = one_disk(seed);
    let rule = |ops, p, effect| FaultRule::new(disk, ops, When::Chance(p), effect);
    world
        .set_plan(FaultPlan::of(vec![
            rule(
                OpFilter::Writes,
                0.05,
                FaultEffect::Fail(IoErrorKind::Media),
            ),
            rule(
                OpFilter::All,
                0.1,
                FaultEffect::Delay(Nanos::from_millis(1)),
            ),
        ]))
        .unwrap();
    let mut sim = SimHost::new(world);
    let outcome = sim.drive(4, |shard, driver| worker(shard, driver, disk, 200));
    assert_eq!(outcome, RunOutcome::Done);
    sim
}

#[test]
fn a_seed_names_one_trace() {
    let hashes: Vec<u64> = (0..20).map(|s| busy(s).world().trace_hash()).collect();
    let again: Vec<u64> = (0..20).map(|s| busy(s).world().trace_hash()).collect();
    assert_eq!(hashes, again);
    let mut distinct = hashes.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 20);
}

#[test]
fn the_log_says_what_happened() {
    let (mut world, disk) = one_disk(1);
    world.keep_log(100);
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 77, 1, 1).unwrap();
    let log = sim.world().log().to_string();
    assert!(log.contains("Write, start: 77, len: 1"), "{log}");
    assert_eq!(log.lines().count() as u64, sim.world().events());
}

/// Runs one shard that submits `op` and waits.
fn wait_for(sim: &mut SimHost, target: TargetId, op: impl Fn() -> DriverOp) -> RunOutcome {
    sim.drive(1, |_, driver| {
        let mut op = Some(op());
        script(driver, move |driver, done| {
            if let Some(op) = op.take() {
                driver.submit(Token(0), target, op);
            }
            if done.is_empty() {
                IDLE
            } else {
                TurnProgress::Done
            }
        })
    })
}

#[test]
fn a_deadlock_names_who_waits_for_what() {
    let (mut world, disk) = one_disk(3);
    let address = Address::Tcp("host:1".into());
    let listener = world.listen(address, LinkSpec::local()).unwrap();
    let stick = FaultRule::new(disk, OpFilter::All, When::Always, FaultEffect::Stick(None));
    world.set_plan(FaultPlan::of(vec![stick])).unwrap();
    let mut sim = SimHost::new(world);
    let zero = || DriverOp::Zero(Extent::new(Lba(24), Sectors(8)));
    for (target, op, expected) in [
        (
            disk,
            &zero as &dyn Fn() -> DriverOp,
            "Zero on disk, sector 24",
        ),
        (listener, &|| DriverOp::Accept, "Accept on Tcp(\"host:1\")"),
    ] {
        let RunOutcome::Deadlock(text) = wait_for(&mut sim, target, op) else {
            panic!("nothing can happen")
        };
        assert!(
            text.contains("seed 3") && text.contains("shard 0"),
            "{text}"
        );
        assert!(text.contains(expected), "{text}");
    }
    let idle = sim.drive(2, |_, driver| script(driver, |_, _| IDLE));
    let RunOutcome::Deadlock(text) = idle else {
        panic!("nothing can happen")
    };
    assert!(text.contains("tasks wait for each other"), "{text}");
}

#[test]
#[should_panic(expected = "seed 9: Deadlock")]
fn a_host_does_not_hide_a_stall() {
    SimHost::new(SimWorld::new(9))
        .run(1, |_, driver| script(driver, |_, _| IDLE))
        .unwrap();
}

#[test]
fn a_shard_that_spins_is_found() {
    let mut sim = SimHost::new(SimWorld::new(1));
    let spin = |_, driver| script(driver, |_, _| TurnProgress::Ready);
    sim.set_budget(RunBudget {
        turns_per_instant_max: 1000,
        ..RunBudget::default()
    });
    assert_eq!(sim.drive(1, spin), RunOutcome::Livelock);
    sim.set_budget(RunBudget {
        turns_max: 10,
        ..RunBudget::default()
    });
    assert_eq!(sim.drive(1, spin), RunOutcome::OutOfTurns);
}

#[test]
fn timers_move_the_clock_and_a_budget_ends_it() {
    let ticks = |_, driver: SimDriver| {
        script(driver, |driver, _| {
            TurnProgress::Idle(driver.now() + Nanos::from_secs(1))
        })
    };
    let mut sim = SimHost::new(SimWorld::new(1));
    sim.set_budget(RunBudget::until(Nanos::from_secs(1000)));
    assert_eq!(sim.drive(1, ticks), RunOutcome::OutOfTime);
    assert_eq!(sim.world().now(), Nanos::from_secs(1000));
}

#[test]
fn a_cut_ends_the_run_and_the_next_boot_finds_what_was_durable() {
    let (mut world, disk) = one_disk(1);
    world
        .set_plan(FaultPlan {
            cuts: vec![PowerCut {
                domain: None,
                at: RunMoment::At(Nanos::from_secs(1)),
            }],
            survival: Some(Survival {
                kept: 0.0,
                torn: 0.0,
            }),
            ..FaultPlan::default()
        })
        .unwrap();
    let mut sim = SimHost::new(world);
    let dropped = Arc::new(());
    let witness = dropped.clone();
    sim.run(1, move |_, driver| {
        let witness = witness.clone();
        let mut begun = false;
        script(driver, move |driver, _| {
            let _ = &witness;
            if !std::mem::replace(&mut begun, true) {
                write(driver, disk, 0, 1, Fua::Yes);
                write(driver, disk, 1, 2, Fua::No);
            }
            IDLE
        })
    })
    .unwrap();
    assert_eq!(sim.outcome(), Some(&RunOutcome::PowerCut));
    assert_eq!(Arc::strong_count(&dropped), 1, "the shards are gone");
    assert_eq!(sim.world().now(), Nanos::from_secs(1));
    let mut hand = Hand::new(&mut sim);
    assert_eq!(hand.read(disk, 0, 2).unwrap(), [1, 0]);
}

#[test]
fn what_a_boot_leaves_in_flight_ends_before_the_next() {
    let (world, disk) = one_disk(1);
    let mut sim = SimHost::new(world);
    let outcome = sim.drive(1, |_, driver| {
        script(driver, move |driver, _| {
            write(driver, disk, 5, 6, Fua::No);
            TurnProgress::Done
        })
    });
    assert_eq!(outcome, RunOutcome::Done);
    let mut hand = Hand::new(&mut sim);
    hand.write(disk, 0, 8, 7).unwrap();
    assert_eq!(hand.read(disk, 0, 8).unwrap(), [7; 8]);
    assert_eq!(sim.world().overlaps(disk), 0);
}

#[test]
fn models_decide_when_operations_end_and_cuts_find_them_in_flight() {
    let (mut world, _) = one_disk(1);
    let drive = |phase| Hdd::new(&SAS15K, phase).unwrap();
    let pair = Controller::new(&WRITE_THROUGH, vec![drive(0.0), drive(0.5)]).unwrap();
    let model = world.add_model(pair);
    let disks = [0, 1].map(|unit| {
        let mut spec = DiskSpec::new(Geometry::new("hdd", SAS15K.capacity(), Sectors(1)));
        spec.service = ServiceTime::Model { model, unit };
        world.add_disk(spec).unwrap()
    });
    let mut sim = SimHost::new(world);
    let mut hand = Hand::new(&mut sim);
    hand.write(disks[0], 0, 1, 1).unwrap();
    hand.write(disks[1], 1 << 28, 1, 2).unwrap();
    assert_eq!(hand.read(disks[1], 1 << 28, 1).unwrap(), [2]);
    let before = sim.world().now();
    hand.read(disks[0], 1 << 28, 1).unwrap();
    let seek = sim.world().now() - before;
    assert!((2_000..20_000).contains(&seek.as_micros()), "{seek}");

    let data = hand.filled(512, 3);
    hand.start(disks[0], DriverOp::Write(Lba(0), data, Fua::Yes));
    sim.world().control().cut_power(None);
    let mut hand = Hand::new(&mut sim);
    let seen = hand.read(disks[0], 0, 1).unwrap()[0];
    assert!(seen <= 3, "old, volatile or in flight: {seen}");
    hand.write(disks[0], 0, 1, 4).unwrap();
    assert_eq!(hand.read(disks[0], 0, 1).unwrap(), [4]);
}

#[test]
fn a_domain_dies_alone() {
    let mut world = SimWorld::new(1);
    let here = world.add_disk(small_disk("here")).unwrap();
    let mut spec = small_disk("there");
    spec.domain = Domain(1);
    let there = world.add_disk(spec).unwrap();
    world.place(ShardId(1), Domain(1));
    world
        .set_plan(FaultPlan {
            cuts: vec![PowerCut {
                domain: Some(Domain(1)),
                at: RunMoment::At(Nanos::from_millis(5)),
            }],
            survival: Some(Survival {
                kept: 0.0,
                torn: 0.0,
            }),
            ..FaultPlan::default()
        })
        .unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut sim = SimHost::new(world);
    let control = sim.world().control();
    let outcome = sim.drive(2, |shard, driver| {
        if shard == ShardId(1) {
            return script(driver, |driver, _| {
                TurnProgress::Idle(driver.now() + Nanos::from_millis(2))
            });
        }
        let (seen, control) = (seen.clone(), control.clone());
        let mut stage = 0;
        script(driver, move |driver, done| {
            let kind = |c: &Completion| c.result.as_ref().err().map(|e| e.kind());
            seen.lock().unwrap().extend(done.iter().map(kind));
            stage += 1;
            match stage {
                1 => {
                    write(driver, here, 0, 1, Fua::No);
                    write(driver, there, 0, 1, Fua::No);
                }
                3 => return TurnProgress::Idle(Nanos::from_millis(10)),
                4 => write(driver, there, 0, 1, Fua::No),
                5 => {
                    control.power_on(Domain(1));
                    write(driver, there, 8, 2, Fua::No);
                }
                6 => return TurnProgress::Done,
                _ => {}
            }
            IDLE
        })
    });
    assert_eq!(outcome, RunOutcome::Done);
    assert_eq!(
        *seen.lock().unwrap(),
        [None, None, Some(IoErrorKind::Gone), None]
    );
    let world = sim.world();
    let mut sector = [0; 512];
    for (disk, at, value) in [(here, 0, 1), (there, 0, 0), (there, 8, 2)] {
        world.peek(disk, Lba(at), &mut sector);
        assert_eq!(sector[0], value, "{disk:?} at {at}");
    }
    assert_eq!(world.tally().count(FaultClass::PowerCut), 1);
    assert_eq!(world.tally().count(FaultClass::CutLost), 1);
}

#[test]
fn shards_take_turns_in_an_order_drawn_by_seed() {
    let order = |seed| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut sim = SimHost::new(SimWorld::new(seed));
        sim.drive(3, |shard, driver| {
            let order = order.clone();
            script(driver, move |_, _| {
                order.lock().unwrap().push(shard.0);
                TurnProgress::Done
            })
        });
        Arc::try_unwrap(order).unwrap().into_inner().unwrap()
    };
    let mut orders: Vec<_> = (0..100).map(order).collect();
    orders.sort();
    orders.dedup();
    assert_eq!(orders.len(), 6, "every order comes up");
}
