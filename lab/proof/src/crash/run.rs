//! Runs one case: lives of a daemon on the same disks, one after the other.

use super::bench::CrashBench;
use super::case::{CaseCut, CrashCase, DAEMON, ORIGINS, POOL};
use super::life;
use super::neighbours;
use super::report::{Class, Report};
use super::stage::pool_name;
use block::{Geometry, Lba, Nanos, SECTOR_BYTES, Sectors, ShardId};
use sim::{DiskSpec, FaultClass, RunBudget, RunOutcome, ServiceTime, SimHost, SimWorld};
use simnode::run_alone;
use std::rc::Rc;
use std::sync::Arc;

/// Time limit of a life.
const LIFE_MAX: Nanos = Nanos::from_secs(600);

/// Runs a case. A panic in the engine is a violation.
pub fn run(case: &CrashCase) -> Report {
    let case = Arc::new(case.clone());
    Report::of(|| run_once(case))
}

fn run_once(case: Arc<CrashCase>) -> Report {
    let mut world = SimWorld::new(case.seed);
    world.place(ShardId(0), DAEMON);
    let mut add = |name: String, sectors, block, service, domain| {
        let mut spec = DiskSpec::new(Geometry::new(name, sectors, block));
        spec.service = ServiceTime::uniform(service);
        spec.domain = domain;
        spec.cache_pages_max = 256;
        world.add_disk(spec).expect("a sound disk")
    };
    let origins = (0..).zip(&case.volumes).map(|(i, space)| {
        let name = format!("origin-{i}");
        add(name, space.sectors(), case.block, case.origin_time, ORIGINS)
    });
    let origins: Vec<_> = origins.collect();
    let pool = (0..)
        .zip(&case.pool)
        .map(|(i, sectors)| add(pool_name(i), *sectors, Sectors(8), case.pool_time, POOL));
    let pool: Vec<_> = pool.collect();
    let witnesses = (0..case.pools).map(|i| {
        let name = format!("witness-{i}");
        add(name, case.witness(), Sectors(8), case.pool_time, POOL)
    });
    let witnesses = witnesses.collect();
    let neighbours = (case.neighbours > 0).then(|| {
        let name = "origin of neighbours".into();
        add(
            name,
            neighbours::SECTORS,
            Sectors(8),
            case.origin_time,
            ORIGINS,
        )
    });
    let beside = (witnesses, neighbours);
    let bench = Rc::new(CrashBench::new(case, origins, pool, beside, &world));
    let mut sim = SimHost::new(world);
    let mut cuts = bench.case.cuts.iter().copied();
    while one_life(&mut sim, &bench, cuts.next()) {}
    count_faults(&sim, &bench);
    let mut report = bench.report.take();
    report.require_no_overlap(&sim, bench.origins.iter().chain(&bench.pool));
    report.count("steps", sim.world().steps());
    report
}

/// Runs one life. Returns true if another life follows.
fn one_life(sim: &mut SimHost, bench: &Rc<CrashBench>, cut: Option<CaseCut>) -> bool {
    bench.begin_life();
    let steps = sim.world().steps();
    let plan = bench.case.plan(&bench.origins, &bench.pool, steps, cut);
    sim.world_mut().set_plan(plan).expect("a sound plan");
    let now = sim.world().now();
    sim.set_budget(RunBudget::until(now + LIFE_MAX));
    let living = bench.clone();
    let (outcome, _) = run_alone(sim, |local| life::live(living, local));
    let died = outcome == RunOutcome::PowerCut;
    bench.autopsy(sim.world().now(), cut.filter(|_| died));
    if !died && outcome != RunOutcome::Done {
        bench.violate(format!("the daemon did not end: {outcome:?}"));
    }
    // The dead daemon's operations in flight end when the disks are taken over.
    drop(sim.driver());
    if let Some(cut) = cut {
        bench.between_lives(cut, &|out| {
            sim.world().peek(bench.witnesses[0], Lba(0), out);
        });
    }
    let origin_lost = died && cut.is_some_and(|cut| cut.loss.takes_origins());
    for model in &bench.models {
        model.borrow_mut().cut(origin_lost);
    }
    inspect_origins(sim, bench);
    let another = died || !bench.is_scripted_out();
    if another && !bench.has_failed() {
        if !died {
            bench.report.borrow_mut().meet(Class::Stop);
        }
        bench.next_life();
        return true;
    }
    false
}

/// The origins alone are complete: nothing that hotset holds is needed.
fn inspect_origins(sim: &SimHost, bench: &CrashBench) {
    for (volume, origin) in bench.origins.iter().enumerate() {
        let space = bench.case.volumes[volume];
        let mut bytes = vec![0; (space.each * SECTOR_BYTES) as usize];
        for window in 0..space.windows {
            let start = space.window(window).start;
            sim.world().peek(*origin, Lba(start), &mut bytes);
            let held = bench.models[volume]
                .borrow_mut()
                .origin_holds(start, &bytes);
            if let Err(what) = held {
                bench.violate(format!("the origin of volume {volume} alone: {what}"));
            }
        }
    }
}

/// Counts the disks' faults that only the world knows of.
fn count_faults(sim: &SimHost, bench: &CrashBench) {
    let report = &mut *bench.report.borrow_mut();
    for landed in sim.world().tally().landed() {
        let of_origin = bench.origins.contains(&landed.target);
        match landed.class {
            FaultClass::FlushIgnored => report.meet(Class::FlushIgnored),
            FaultClass::LateWrite if of_origin => report.meet(Class::OriginLate),
            FaultClass::LateWrite => report.meet(Class::PoolLate),
            _ => {}
        }
    }
}
