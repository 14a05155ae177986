//! Everything at once: random operations of several shards under random plans. Under every plan,
//! each operation of a shard with power completes once, with its own buffers, and a seed repeats.

use super::hand::small_disk;
use crate::{
    Direction, Domain, FaultClass, FaultEffect, FaultPlan, FaultRule, LinkSpec, OpFilter, Outage,
    PowerCut, RunBudget, RunMoment, RunOutcome, SimDriver, SimHost, SimRng, SimWorld, StreamEffect,
    StreamRule, When, WorldControl,
};
use block::{
    Address, Completion, Driver, DriverOp, Extent, Fua, IoErrorKind, IoResult, Lba, Nanos, Payload,
    Sectors, ShardId, ShardTurn, TargetId, Token, TurnProgress,
};
use std::collections::HashMap;

#[derive(Clone)]
struct Targets {
    disks: Vec<TargetId>,
    listener: TargetId,
    address: Address,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Sort {
    Plain,
    Opens,
    Buf(usize),
    Parts,
}

struct Worker {
    driver: SimDriver,
    targets: Targets,
    control: WorldControl,
    rng: SimRng,
    left: u64,
    next: u64,
    pending: HashMap<u64, Sort>,
    streams: Vec<TargetId>,
    done: Vec<Completion>,
}

impl Worker {
    fn submit(&mut self) {
        let disk = self.targets.disks[self.rng.below(3) as usize];
        let at = Lba(self.rng.below(2049));
        let sectors = self.rng.below(20);
        let extent = Extent::new(at, Sectors(sectors));
        let bytes = (sectors * 512 + self.rng.below(8) / 7).max(1) as usize;
        let buf = self.driver.pool().try_get(bytes).expect("a small share");
        let shared = || self.driver.pool().try_get(bytes).expect("a small share");
        let listener = self.targets.listener;
        let streams = self.streams.len() as u64;
        let stream = match streams {
            0 => listener,
            _ => self.streams[self.rng.below(streams) as usize],
        };
        let fua = [Fua::No, Fua::Yes][self.rng.below(2) as usize];
        let parts = || vec![shared().share(), shared().share()];
        let (target, op, sort) = match self.rng.below(16) {
            0..3 => (disk, DriverOp::Read(at, buf), Sort::Buf(bytes)),
            3..6 => (disk, DriverOp::Write(at, buf.share(), fua), Sort::Plain),
            6 => (disk, DriverOp::Zero(extent), Sort::Plain),
            7 => (disk, DriverOp::Discard(extent), Sort::Plain),
            8 => (disk, DriverOp::Flush, Sort::Plain),
            9 => (listener, DriverOp::Accept, Sort::Opens),
            10 => {
                let op = DriverOp::Connect(self.targets.address.clone());
                (TargetId::NONE, op, Sort::Opens)
            }
            11..13 => (stream, DriverOp::Send(parts()), Sort::Parts),
            13..15 => (stream, DriverOp::Recv(buf), Sort::Buf(bytes)),
            _ => return self.meddle(disk, stream),
        };
        self.pending.insert(self.next, sort);
        self.driver.submit(Token(self.next), target, op);
        self.next += 1;
    }

    fn meddle(&mut self, disk: TargetId, stream: TargetId) {
        match self.rng.below(11) {
            0 => self.control.kill(disk),
            1..3 => self.control.revive(disk),
            3 => self.control.release(disk),
            4 => self.control.release(stream),
            5 => self.control.break_stream(stream),
            6 => self.driver.close(stream),
            7 => self.control.forget(disk),
            8 => self.control.hang(disk),
            9 => self.control.pause(Nanos::from_micros(20)),
            _ => self.control.power_on(Domain(1)),
        }
    }

    fn check(&mut self, completion: Completion) {
        let Completion {
            token,
            result,
            payload,
        } = completion;
        let sort = self.pending.remove(&token.0).expect("completes once");
        match (sort, payload) {
            (Sort::Plain | Sort::Opens, Payload::None) => {}
            (Sort::Buf(bytes), Payload::Buf(buf)) => assert_eq!(buf.len(), bytes),
            (Sort::Parts, Payload::Parts(parts)) => assert!(parts.is_empty()),
            (sort, payload) => panic!("{sort:?} comes back as {payload:?}"),
        }
        if let (Sort::Opens, Ok(target)) = (sort, result) {
            self.streams.push(TargetId(target as u32));
        }
    }
}

impl ShardTurn for Worker {
    fn run_once(&mut self) -> TurnProgress {
        for completion in std::mem::take(&mut self.done) {
            self.check(completion);
        }
        for _ in 0..self.rng.below(4) {
            if self.left > 0 {
                self.left -= 1;
                self.submit();
            }
        }
        if self.left > 0 {
            return TurnProgress::Idle(self.driver.now() + Nanos(self.rng.below(50_000)));
        }
        // Accepts and receives may wait for ever; their ends do not.
        self.driver.close(self.targets.listener);
        for stream in std::mem::take(&mut self.streams) {
            self.driver.close(stream);
        }
        for disk in &self.targets.disks {
            self.control.release(*disk);
        }
        if self.pending.is_empty() {
            return TurnProgress::Done;
        }
        TurnProgress::Idle(self.driver.now() + Nanos::from_millis(1))
    }

    fn park(&mut self, deadline: Nanos) {
        self.driver.park(deadline, &mut self.done);
    }
}

fn plan(rng: &mut SimRng, disks: &[TargetId], now: Nanos) -> FaultPlan {
    let soon = |rng: &mut SimRng| RunMoment::At(now + Nanos(rng.below(2_000_000)));
    let effects = [
        (OpFilter::All, FaultEffect::Delay(Nanos::from_micros(300))),
        (OpFilter::Writes, FaultEffect::Fail(IoErrorKind::Media)),
        (OpFilter::Reads, FaultEffect::Fail(IoErrorKind::Timeout)),
        (OpFilter::Reads, FaultEffect::FlipBit),
        (OpFilter::Writes, FaultEffect::FlipBit),
        (OpFilter::Writes, FaultEffect::Misdirect),
        (OpFilter::Writes, FaultEffect::Drop),
        (OpFilter::Writes, FaultEffect::Ruin),
        (OpFilter::All, FaultEffect::Stick(None)),
        (OpFilter::Flushes, FaultEffect::IgnoreFlush),
        (OpFilter::Writes, FaultEffect::Late(Nanos::from_micros(400))),
    ];
    let rules = effects.into_iter().map(|(ops, effect)| {
        FaultRule::new(disks[rng.below(3) as usize], ops, When::Chance(0.1), effect)
    });
    let rules = rules.collect();
    let streams = (0..4).map(|i| StreamRule {
        connection: (i > 0).then_some(i),
        direction: [Direction::ToListener, Direction::FromListener][rng.below(2) as usize],
        byte: rng.below(5000),
        effect: match rng.below(4) {
            0 => StreamEffect::Cut,
            1 => StreamEffect::Stall(None),
            2 => StreamEffect::Stall(Some(Nanos::from_micros(500))),
            _ => StreamEffect::Split,
        },
    });
    let streams = streams.collect();
    let gone = Nanos(rng.below(1_000_000));
    FaultPlan {
        rules,
        latent: vec![(disks[0], Extent::new(Lba(rng.below(2000)), Sectors(40)))],
        outages: vec![Outage {
            disk: disks[1],
            gone: RunMoment::At(now + gone),
            back: Some(RunMoment::At(now + gone + Nanos(300_000))),
        }],
        cuts: vec![
            PowerCut {
                domain: Some(Domain(1)),
                at: soon(rng),
            },
            PowerCut {
                domain: (rng.below(2) == 0).then_some(Domain(0)),
                at: soon(rng),
            },
        ],
        streams,
        survival: None,
        spoiled: 0.2,
    }
}

/// Three boots of three shards; the trace and the faults.
fn chaos(seed: u64) -> SimHost {
    let mut world = SimWorld::new(seed);
    let mut rng = SimRng::new(seed);
    let disks = (0..3).map(|i| {
        let mut spec = small_disk("disk");
        spec.domain = Domain(i % 2);
        world.add_disk(spec)
    });
    let disks = disks.collect::<IoResult<Vec<_>>>().unwrap();
    let address = Address::Unix("/chaos".into());
    let link = LinkSpec {
        buffer_bytes: 3000,
        split: 0.5,
        ..LinkSpec::local()
    };
    let listener = world.listen(address.clone(), link).unwrap();
    world.place(ShardId(2), Domain(1));
    let targets = Targets {
        disks,
        listener,
        address,
    };
    let mut sim = SimHost::new(world);
    sim.set_budget(RunBudget::until(Nanos::from_secs(10)));
    for boot in 0..3 {
        let now = sim.world().now();
        let plan = plan(&mut rng, &targets.disks, now);
        sim.world_mut().set_plan(plan).unwrap();
        let (at, bit) = (Lba(rng.below(2000)), rng.below(4096));
        sim.world_mut().flip_bit(targets.disks[0], at, bit);
        let control = sim.world().control();
        let outcome = sim.drive(3, |shard, driver| {
            Box::new(Worker {
                driver,
                targets: targets.clone(),
                control: control.clone(),
                rng: SimRng::fork(seed, u64::from(shard.0) + boot * 3),
                left: 150,
                next: 0,
                pending: HashMap::new(),
                streams: Vec::new(),
                done: Vec::new(),
            })
        });
        let ended = matches!(outcome, RunOutcome::Done | RunOutcome::PowerCut);
        assert!(ended, "seed {seed}, boot {boot}: {outcome:?}");
    }
    sim
}

#[test]
fn whatever_happens_operations_complete_once_and_seeds_repeat() {
    let mut struck = [0; FaultClass::ALL.len()];
    for seed in 0..200 {
        let sim = chaos(seed);
        let world = sim.world();
        for (struck, class) in struck.iter_mut().zip(FaultClass::ALL) {
            *struck += world.tally().count(class);
        }
        if seed % 10 == 0 {
            let again = chaos(seed).world().trace_hash();
            assert_eq!(world.trace_hash(), again, "seed {seed}");
        }
    }
    let missed = FaultClass::ALL.iter().zip(struck).filter(|(_, n)| *n == 0);
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_trace_is_the_same_on_every_machine() {
    // Any change of the events in the world changes this number; nothing else may.
    assert_eq!(chaos(42).world().trace_hash(), 11425663457490506783);
}
