//! Seeds of the program in a simulated world: power cuts, lost disks, errors,
//! bad sectors, delays, broken streams, over several boots of the same disks.

use super::Sabotage;
use super::program::{
    self, ProgramRecord, ProgramTargets, SECTORS, SeamScenario, SharedRecord, lock,
};
use crate::campaign::{Campaign, CaseReport};
use crate::classes::Situation;
use block::{Address, Extent, Geometry, IoErrorKind, Lba, Nanos, Sectors, TargetId};
use fastrand::Rng;
use sim::{
    Direction, DiskSpec, FaultClass, FaultEffect, FaultPlan, FaultRule, LinkSpec, OpFilter, Outage,
    PowerCut, RunBudget, RunMoment, RunOutcome, SimHost, SimWorld, StreamEffect, StreamRule, When,
};
use std::collections::BTreeMap;

/// The outcome of one seed.
pub struct SeedReport {
    /// The hash of all events.
    pub trace_hash: u64,
    /// The record of all boots.
    pub record: ProgramRecord,
    /// Starts of the program.
    pub boots: u64,
    /// Faults that struck, by class.
    pub faults: BTreeMap<FaultClass, u64>,
    /// The end of each boot, and the faults that struck before the end.
    pub story: Vec<String>,
}

/// The campaign of the seam.
pub struct SeamCampaign(pub Sabotage);

impl Situation for FaultClass {}

impl Campaign for SeamCampaign {
    type Class = FaultClass;

    fn case(&self, seed: u64) -> CaseReport<FaultClass> {
        let one = run_seed(seed, self.0);
        let mut report = CaseReport::default();
        report.operations = one.record.answered;
        report.count("boots", one.boots);
        report.count("failed", one.record.failed);
        for (class, times) in one.faults {
            report.meet_times(class, times);
        }
        report.violation = one.record.violations.into_iter().next();
        report
    }

    fn replay(&self, seed: u64) -> String {
        format!("cargo run --release -p proof --example seam -- --seeds 1 --start {seed}")
    }

    /// The faults that a boot draws, and those of cuts.
    fn classes(&self) -> Vec<FaultClass> {
        vec![
            FaultClass::PowerCut,
            FaultClass::CutLost,
            FaultClass::CutTorn,
            FaultClass::CutReordered,
            FaultClass::DeviceGone,
            FaultClass::Error,
            FaultClass::LatentSector,
            FaultClass::StreamCut,
            FaultClass::StreamStalled,
            FaultClass::StreamSplit,
        ]
    }
}

/// Runs one seed to the end of its last boot.
pub fn run_seed(seed: u64, sabotage: Sabotage) -> SeedReport {
    let mut rng = Rng::with_seed(seed);
    let (world, targets) = world(seed, &mut rng);
    let boots = rng.u64(2..=4);
    // Bad sectors on one leg and the loss of the other are more than two legs
    // survive, so a seed has the one or the other.
    let losses = rng.u32(0..4) != 0;
    let record = SharedRecord::default();
    let mut sim = SimHost::new(world).pool_bytes(512 << 10);
    sim.set_budget(RunBudget::until(Nanos::from_secs(600)));
    let (mut story, mut reported) = (Vec::new(), 0);
    for boot in 0..boots {
        let last = boot == boots - 1;
        // One leg a boot may fail. A leg that failed before is back, to be copied to.
        let victim = rng.usize(0..2);
        for leg in targets.legs {
            sim.world().control().revive(leg);
        }
        let scenario = SeamScenario {
            seed: seed ^ boot << 32,
            boot,
            steps: rng.usize(20..60),
            window: rng.usize(1..=4),
            contended: true,
            lose: losses && victim == 1 && rng.bool(),
            sabotage,
        };
        if last {
            let plan = FaultPlan::default();
            sim.world_mut().set_plan(plan).expect("an empty plan");
        } else {
            let at = RunMoment::Step(sim.world().steps() + rng.u64(1..1500));
            let now = sim.world().now();
            let plan = FaultPlan {
                cuts: vec![PowerCut { domain: None, at }],
                ..faults(&mut rng, targets.legs, victim, losses.then_some(now))
            };
            sim.world_mut().set_plan(plan).expect("a possible plan");
        }
        program::run(&mut sim, &scenario, &targets, &record);
        let outcome = sim.outcome().expect("it has run").clone();
        conclude(&outcome, &mut lock(&record));
        let landed = sim.world().tally().landed()[reported..].to_vec();
        reported += landed.len();
        let what = landed.iter().filter(|l| l.class != FaultClass::Delay);
        story.extend(what.map(|l| format!("{l:?}")));
        story.push(format!("boot {boot} of {scenario:?} ended: {outcome:?}"));
    }
    let world = sim.world();
    let faults = FaultClass::ALL.map(|class| (class, world.tally().count(class)));
    SeedReport {
        trace_hash: world.trace_hash(),
        record: std::mem::take(&mut *lock(&record)),
        boots,
        faults: faults.into_iter().collect(),
        story,
    }
}

fn world(seed: u64, rng: &mut Rng) -> (SimWorld, ProgramTargets) {
    let mut world = SimWorld::new(seed);
    let block = Sectors(if rng.bool() { 1 } else { 8 });
    let legs = ["a", "b"].map(|name| {
        let mut geometry = Geometry::new(name, Sectors(SECTORS + 8), block);
        geometry.volatile = rng.u32(0..8) != 0;
        let disk = world.add_disk(DiskSpec::new(geometry));
        disk.expect("a possible disk")
    });
    let address = Address::Unix("server".into());
    let listener = world.listen(address.clone(), LinkSpec::local());
    let targets = ProgramTargets {
        legs,
        listener: listener.expect("a free address"),
        address,
    };
    (world, targets)
}

fn conclude(outcome: &RunOutcome, record: &mut ProgramRecord) {
    match outcome {
        RunOutcome::PowerCut => record.oracle.power_cut(),
        RunOutcome::Done => {}
        other => record
            .violations
            .push(format!("the program did not end: {other:?}")),
    }
}

/// Faults that a mirror of two must survive: any on one leg, delays on both.
fn faults(
    rng: &mut Rng,
    legs: [TargetId; 2],
    victim: usize,
    losses_from: Option<Nanos>,
) -> FaultPlan {
    let mut plan = FaultPlan::default();
    let victim = legs[victim];
    for disk in legs {
        if rng.bool() {
            let span = Nanos::from_micros(rng.u64(1..5_000));
            plan.rules.push(FaultRule::new(
                disk,
                OpFilter::All,
                When::Chance(0.05),
                FaultEffect::Delay(span),
            ));
        }
    }
    if rng.u32(0..3) == 0 {
        let (ops, kind) = match rng.u32(0..4) {
            0 => (OpFilter::Writes, IoErrorKind::Media),
            1 => (OpFilter::Flushes, IoErrorKind::Other),
            _ => (OpFilter::Reads, IoErrorKind::Media),
        };
        let when = if ops == OpFilter::Reads {
            When::Chance(0.05)
        } else {
            When::Nth(rng.u64(1..80))
        };
        plan.rules
            .push(FaultRule::new(victim, ops, when, FaultEffect::Fail(kind)));
    }
    if losses_from.is_none() {
        let extent = Extent::new(Lba(8 * rng.u64(1..SECTORS / 8)), Sectors(8));
        plan.latent.push((victim, extent));
    }
    if let (Some(now), 0) = (losses_from, rng.u32(0..3)) {
        plan.outages.push(Outage {
            disk: victim,
            gone: RunMoment::At(now + Nanos::from_micros(rng.u64(100..20_000))),
            back: None,
        });
    }
    if rng.u32(0..3) == 0 {
        plan.streams.push(stream_fault(rng));
    }
    plan
}

fn stream_fault(rng: &mut Rng) -> StreamRule {
    let effect = match rng.u32(0..3) {
        0 => StreamEffect::Cut,
        1 => StreamEffect::Stall(Some(Nanos::from_micros(rng.u64(10..3_000)))),
        _ => StreamEffect::Split,
    };
    let direction = if rng.bool() {
        Direction::ToListener
    } else {
        Direction::FromListener
    };
    StreamRule {
        connection: None,
        direction,
        byte: rng.u64(1..40_000),
        effect,
    }
}
