//! Runs a case: lives of a daemon on the same disks, one after the other.

use super::bench::{WatchedLife, WriteBackBench};
use super::case::{COPIES, DAEMON, JOURNAL, LifeEnd, ORIGIN, WriteBackCase, size};
use super::life;
use super::report::{Landing, Report};
use block::{Geometry, Nanos, Sectors, ShardId};
use layout::{BLOCK_SECTORS, LOG_AREA};
use sim::{
    DiskSpec, FaultClass, FaultEffect, FaultPlan, FaultRule, OpFilter, PowerCut, RunBudget,
    RunMoment, RunOutcome, ServiceTime, SimHost, SimWorld, When,
};
use simnode::run_alone;
use std::rc::Rc;

/// Time limit of a life. Where a load takes longer than `max_lag`, each write waits for the longest
/// time that the pace allows, a second.
const LIFE_MAX: Nanos = Nanos::from_secs(1000);

/// Runs a case. A panic is a violation.
pub fn run(case: &WriteBackCase) -> Report {
    let case = case.clone();
    Report::of(|| run_once(case))
}

fn run_once(case: WriteBackCase) -> Report {
    let mut world = SimWorld::new(case.seed);
    world.place(ShardId(0), DAEMON);
    let mut add = |name: String, sectors, block, service, domain, volatile| {
        let mut geometry = Geometry::new(name, sectors, block);
        geometry.volatile = volatile;
        let mut spec = DiskSpec::new(geometry);
        spec.service = ServiceTime::uniform(service);
        spec.domain = domain;
        spec.cache_pages_max = 1024;
        world.add_disk(spec).expect("a sound disk")
    };
    let (time, volatile) = (case.origin_time, case.volatile);
    let origin = add("origin".into(), size(), Sectors(1), time, ORIGIN, volatile);
    let copies = [0, 1].map(|copy| {
        let sectors = Sectors(64 + u64::from(case.segments) * 2048);
        let name = format!("pool-{copy}");
        add(
            name,
            sectors,
            Sectors(8),
            case.pool_time,
            COPIES[copy],
            true,
        )
    });
    let journal = case.journal.as_ref().map(|journal| {
        let sectors = Sectors((LOG_AREA + 2 * journal.half) * BLOCK_SECTORS);
        let name = "journal".into();
        add(name, sectors, Sectors(8), journal.time, JOURNAL, true)
    });
    let bench = Rc::new(WriteBackBench::new(case, origin, copies, journal, &world));
    let mut sim = SimHost::new(world);
    let mut cuts = bench.case.cuts.clone().into_iter();
    while one_life(&mut sim, &bench, cuts.next()) {}
    let world = sim.world();
    let landed = world.tally().landed().iter();
    let torn = landed.filter(|l| l.class == FaultClass::CutTorn && copies.contains(&l.target));
    let torn = torn.count();
    drop(world);
    let mut report = bench.report.take();
    report.meet_times(Landing::Torn, torn as u64);
    let disks = copies.iter().chain([&origin]).chain(&journal);
    report.require_no_overlap(&sim, disks);
    report
}

/// Runs one life. Returns true if another life follows.
fn one_life(sim: &mut SimHost, bench: &Rc<WriteBackBench>, cut: Option<LifeEnd>) -> bool {
    let steps = sim.world().steps();
    sim.world_mut()
        .set_plan(plan(bench, steps, cut))
        .expect("a sound plan");
    let now = sim.world().now();
    sim.set_budget(RunBudget::until(now + LIFE_MAX));
    bench.serving.set(false);
    let living = bench.clone();
    let (outcome, _) = run_alone(sim, move |local| {
        WatchedLife::new(living.clone(), life::live(living, local, cut))
    });
    let died = outcome == RunOutcome::PowerCut;
    // The dead daemon's operations in flight end when the disks are taken over.
    drop(sim.driver());
    if !died && outcome != RunOutcome::Done {
        bench.violate(format!("the daemon did not end: {outcome:?}"));
    }
    if let Some(cut) = cut.filter(|_| died) {
        bench.autopsy(!bench.serving.get());
        let kept = bench.is_kept(&cut);
        bench.history.borrow_mut().cut(kept);
    }
    bench.judge_origin();
    if died && !bench.has_failed() {
        let missing = cut.and_then(|cut| cut.missing);
        bench.between_lives(missing);
    }
    died && !bench.has_failed()
}

fn plan(bench: &WriteBackBench, steps: u64, cut: Option<LifeEnd>) -> FaultPlan {
    let failing = |(disk, fails)| {
        FaultRule::new(
            disk,
            OpFilter::Writes,
            When::Chance(fails),
            FaultEffect::Fail(block::IoErrorKind::Other),
        )
    };
    let of_journal = bench
        .journal
        .zip(bench.case.journal.as_ref().map(|j| j.fails));
    let disks = [(bench.origin, bench.case.origin_fails)]
        .into_iter()
        .chain(of_journal);
    let at_a_step = cut.filter(|cut| cut.amid.is_none());
    let cuts = at_a_step.iter().flat_map(|cut| {
        let at = RunMoment::Step(steps + cut.after);
        life::domains(cut).map(move |domain| PowerCut {
            domain: Some(domain),
            at,
        })
    });
    FaultPlan {
        rules: disks
            .filter(|(_, fails)| *fails > 0.0)
            .map(failing)
            .collect(),
        cuts: cuts.collect(),
        ..FaultPlan::default()
    }
}
