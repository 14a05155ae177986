//! One run: the lives of an array from its creation to its last reading.

use super::chaos::Chaos;
use super::client;
use super::life::{Life, Outside};
use super::model::Model;
use super::refuse::Refusals;
use super::report::{Class, Report};
use super::scenario::Scenario;
use crate::alone::run_alone;
use block::Device;
use block::{Gate, Geometry, Nanos, Sectors};
use futures_util::future::{join, join_all};
use raid::{Candidate, Plan, Start, assemble, create, examine};
use shard::Local;
use sim::{Budget, DiskSpec, Domain, Outcome, Rng, Sim, SimDriver, World};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// How long a run may last.
const TIME_MAX: Nanos = Nanos::from_secs(600);
/// A life of so few steps is short.
const STEPS_SHORT: u64 = 400;

/// Runs the scenario of `seed`. A panic in the array is a violation.
pub fn run(seed: u64) -> Report {
    std::panic::catch_unwind(|| run_once(seed)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or(cause.downcast_ref::<&str>().copied());
        let mut report = Report::new(Scenario::new(seed).level);
        report.violate(format!("a panic: {}", text.unwrap_or("without words")));
        report
    })
}

fn run_once(seed: u64) -> Report {
    let scenario = Scenario::new(seed);
    let mut world = World::new(seed);
    let meta = if scenario.level == raid::Level::Raid5 {
        4096
    } else {
        2048
    };
    let disks = (0..scenario.members + scenario.spares).map(|i| {
        let sectors = Sectors(meta + scenario.data.0 + 8 * (i as u64 % 3));
        let geometry = Geometry::new(format!("disk-{i}"), sectors, scenario.block);
        world
            .add_disk(DiskSpec::new(geometry))
            .expect("a sound disk")
    });
    let disks: Vec<_> = disks.collect();
    let outside = Rc::new(Outside {
        control: world.control(),
        disks,
        model: RefCell::new(Model::new(0)),
        report: RefCell::new(Report::new(scenario.level)),
        dead: Cell::new(None),
        tolerant: scenario.latent && (scenario.losses || scenario.refusals),
        refusals: Refusals::new(Rng::fork(seed, 4)),
        whole: Cell::new(true),
        started: Cell::new(false),
        writes: Cell::new(0),
        partial_writes: Cell::new(0),
        doing: Cell::new(None),
        data_at: Cell::new(0),
        stripe: Cell::new(0),
        rng: RefCell::new(Rng::fork(seed, 2)),
        scenario,
    });
    let mut sim = Sim::new(world).pool_bytes(4 << 20);
    sim.set_budget(Budget {
        time_max: TIME_MAX,
        ..Budget::default()
    });
    drive(&mut sim, &outside, make);
    let mut short = false;
    for number in 0..outside.scenario.lives {
        if outside.report.borrow().violation.is_some() {
            break;
        }
        let steps = sim.world().steps();
        let plan = outside
            .scenario
            .plan(number, steps, &outside.disks, outside.data_at.get());
        sim.world_mut().set_plan(plan).expect("a sound plan");
        outside.started.set(false);
        let cut = drive(&mut sim, &outside, async move |outside, local| {
            live(outside, local, number).await;
        });
        if cut {
            let life = sim.world().steps() - steps;
            after_cut(
                &outside,
                std::mem::replace(&mut short, life < STEPS_SHORT) && short,
            );
        }
    }
    for disk in &outside.disks {
        let overlaps = sim.world().overlaps(*disk);
        if overlaps > 0 {
            let what = format!("{overlaps} writes overlapped on target {}", disk.0);
            outside.report.borrow_mut().violate(what);
        }
    }
    outside.report.borrow().clone()
}

/// Runs `work` on a shard; whether a loss of power ended it.
fn drive(
    sim: &mut Sim,
    outside: &Rc<Outside>,
    work: impl AsyncFnOnce(Rc<Outside>, Local<SimDriver>) + 'static,
) -> bool {
    let run = outside.clone();
    let (outcome, _) = run_alone(sim, async move |local| work(run, local).await);
    match outcome {
        Outcome::Done => false,
        Outcome::PowerCut => true,
        other => {
            let what = format!("the run did not end: {other:?}");
            outside.report.borrow_mut().violate(what);
            false
        }
    }
}

async fn make(outside: Rc<Outside>, local: Local<SimDriver>) {
    let scenario = &outside.scenario;
    let plan = Plan {
        name: "array".into(),
        level: scenario.level,
        chunk: scenario.chunk,
        overwrite: false,
        zeroed: false,
    };
    let candidates = |range: Range<usize>| range.map(|i| outside.candidate(&local, i)).collect();
    let members = candidates(0..scenario.members);
    let spares = candidates(scenario.members..outside.disks.len());
    let mut fresh = || outside.fresh();
    let env = local.env();
    let array = create(&env, &plan, members, spares, &mut fresh, outside.options()).await;
    let array = array.expect("sound members");
    array.close().await.expect("nothing is wrong yet");
    *outside.model.borrow_mut() = Model::new(array.geometry().sectors.0);
    if scenario.level == raid::Level::Raid5 {
        outside.stripe.set(array.shape().width().0);
    }
    let device = outside.candidate(&local, 0).device;
    let superblock = examine(&env, &device).await.expect("it can be read");
    outside
        .data_at
        .set(superblock.expect("just written").data_at.0);
}

/// The power is gone: counts what that met, and perhaps takes a member too.
fn after_cut(outside: &Rc<Outside>, twice: bool) {
    let width = outside.refusals.count.get().min(1) * outside.stripe.get();
    outside.model.borrow_mut().cut(width);
    outside.refusals.cut();
    outside.control.power_on(Domain(0));
    outside.meet(Class::Cut);
    let met = [
        (Class::CutInStart, !outside.started.get()),
        (Class::CutInWrite, outside.writes.replace(0) > 0),
        (
            Class::CutInPartialWrite,
            outside.partial_writes.replace(0) > 0,
        ),
        (
            Class::CutDegraded,
            outside.started.get() && !outside.whole.get(),
        ),
        (Class::CutTwice, twice),
    ];
    for (class, met) in met {
        if met {
            outside.meet(class);
        }
    }
    if let Some(class) = outside.doing.take() {
        outside.meet(class);
    }
    let mut rng = outside.rng.borrow_mut();
    if let Some(dead) = outside.dead.get().filter(|_| outside.scenario.slow)
        && rng.chance(0.75)
    {
        outside.control.revive(outside.disks[dead]);
        outside.dead.set(None);
        outside.meet(Class::CutAndBack);
    }
    let may_lose = outside.scenario.losses && outside.started.get() && outside.whole.get();
    if may_lose && rng.chance(0.4) {
        let disk = rng.below(outside.scenario.members as u64) as usize;
        drop(rng);
        outside.whole.set(false);
        outside.dead.set(Some(disk));
        outside.control.kill(outside.disks[disk]);
        outside.meet(Class::CutAndLoss);
    }
}

async fn live(outside: Rc<Outside>, local: Local<SimDriver>, number: u64) {
    let env = local.env();
    // What is unplugged, or gets power again, does so now.
    env.timer.sleep(Nanos(1)).await;
    let mut order: Vec<usize> = (0..outside.disks.len()).collect();
    outside.rng.borrow_mut().shuffle(&mut order);
    let scenario = &outside.scenario;
    let candidates: Vec<Candidate> = order
        .into_iter()
        .map(|i| outside.candidate(&local, i))
        .collect();
    let start = Start {
        degraded: outside.dead.get().is_some(),
    };
    let begin = async |candidates: Vec<Candidate>| {
        assemble(&env, Some("array"), candidates, start, outside.options()).await
    };
    let mut refusing = Rng::fork(scenario.seed, 800 + number);
    let refused = outside.refusals.count.get();
    if scenario.refusals && refusing.chance(0.3) {
        let disk = refusing.below(outside.disks.len() as u64) as usize;
        outside.refusals.arm(disk, refusing.between(1, 3));
    }
    let mut array = begin(candidates.clone()).await;
    outside.refusals.disarm();
    if outside.refusals.count.get() > refused {
        outside.meet(Class::RefusedInStart);
        if array.is_err() {
            array = begin(candidates).await;
        }
    }
    let array = match array {
        Ok(array) => array,
        Err(error) => {
            let what = format!("it does not start in life {number}: {error}");
            return outside.report.borrow_mut().violate(what);
        }
    };
    outside.started.set(true);
    let told = array.events().0;
    if told
        .iter()
        .any(|event| event.what.contains("done again from the journal"))
    {
        outside.meet(Class::Replay);
    }
    let life = Rc::new(Life {
        number,
        gate: Gate::new(array.clone(), env.clone()),
        sectors: array.geometry().sectors.0,
        width: array.shape().width().0.max(8),
        env,
        array,
        outside,
        local,
        over: Cell::new(false),
    });
    life.look();
    let mut chaos = Chaos::new(life.clone());
    let clients = (0..life.scenario.clients).map(|i| client::work(life.clone(), i));
    let clients = async {
        join_all(clients).await;
        life.over.set(true);
    };
    join(clients, chaos.rage()).await;
    finish(&life, &mut chaos).await;
}

/// Lets the array mend itself, and looks at everything.
async fn finish(life: &Rc<Life>, chaos: &mut Chaos) {
    life.refusals.disarm();
    chaos.give_back().await;
    chaos.take_back().await;
    for _ in 0..20_000 {
        if life.array.is_settled() || life.report.borrow().violation.is_some() {
            break;
        }
        life.look();
        life.env.timer.sleep(Nanos::from_millis(5)).await;
    }
    if life.report.borrow().violation.is_some() {
        return;
    }
    if !life.array.is_settled() {
        return life.violate(format!("it never settles: {:?}", life.array.report()));
    }
    for start in (0..life.sectors).step_by(64) {
        client::read(life, start..(start + 64).min(life.sectors)).await;
    }
    let repaired: u64 = life
        .array
        .report()
        .members
        .iter()
        .map(|m| m.counts.repaired)
        .sum();
    if repaired > 0 {
        life.meet(Class::LatentError);
    }
    if life.scenario.level.is_redundant() {
        match life.array.scrub(false).await {
            Ok(found) if found.mismatches == 0 => life.meet(Class::Scrub),
            Ok(found) => life.violate(format!("a scrub finds {found:?}")),
            Err(error) => life.violate(format!("a scrub fails: {error}")),
        }
    }
    if let Err(error) = life.array.close().await {
        life.violate(format!("it cannot be closed: {error}"));
    }
}
