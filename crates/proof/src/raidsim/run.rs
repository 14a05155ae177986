//! One run: the lives of an array from its creation to its last reading.

use super::between::{after_cut, befall, count};
use super::chaos::Chaos;
use super::client;
use super::life::{Life, Outside};
use super::model::Model;
use super::nest::{self, Unit};
use super::refuse::Refusals;
use super::report::{Class, Report};
use super::scenario::Scenario;
use super::split;
use super::start::start;
use super::trouble::Trouble;
use block::Device;
use block::{Geometry, Nanos};
use futures_util::future::{join, join_all};
use raid::{Level, Plan, create, examine};
use shard::Local;
use sim::{Budget, DiskSpec, Outcome, Rng, Sim, SimDriver, World};
use simnode::run_alone;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// How long a run may last, hours of rest left out.
const TIME_MAX: Nanos = Nanos::from_secs(400);
/// How long an array rests at most before the power goes.
const REST_MAX: Nanos = Nanos::from_secs(2 * 3600);
/// How long an array may be at work on members that do not answer.
const LETTING_GO_MAX: Nanos = Nanos::from_secs(10);
/// How long what hangs does so at most while an array becomes whole.
const RELEASE_AFTER: Nanos = Nanos::from_millis(200);
/// How often an array is compared at the end if a slow member is lost meanwhile.
const SCRUBS: u32 = 10;
/// A life of so few steps is short.
const STEPS_SHORT: u64 = 400;
/// The memory of the shard, of which RAID 5 keeps a part for itself; where it is short
/// for other levels; and where there are several arrays.
const POOL_BYTES: usize = 4 << 20;
const POOL_BYTES_SHORT: usize = 1 << 20;
const POOL_BYTES_NESTED: usize = 40 << 20;

/// Runs the scenario of `seed`. A panic in the array is a violation.
pub fn run(seed: u64) -> Report {
    run_scenario(Scenario::new(seed))
}

/// Runs a scenario. A panic in the array is a violation.
pub fn run_scenario(scenario: Scenario) -> Report {
    let level = scenario.level;
    std::panic::catch_unwind(|| run_once(scenario)).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or(cause.downcast_ref::<&str>().copied());
        let mut report = Report::new(level);
        report.violate(format!("a panic: {}", text.unwrap_or("without words")));
        report
    })
}

fn world(scenario: &Scenario) -> (World, Vec<Unit>) {
    let mut world = World::new(scenario.seed);
    let units = nest::plan(scenario).into_iter().enumerate();
    let units = units.map(|(i, (level, disks))| {
        let sectors = scenario.unit_sectors(i);
        let sectors = nest::disk_sectors(level, sectors, scenario.chunk);
        let targets = (0..disks).map(|at| {
            let name = match level {
                None => format!("disk-{i}"),
                Some(_) => format!("disk-{i}-{at}"),
            };
            let geometry = Geometry::new(name, sectors, scenario.block);
            world
                .add_disk(DiskSpec::new(geometry))
                .expect("a sound disk")
        });
        Unit {
            targets: targets.collect(),
            level,
        }
    });
    let units = units.collect();
    (world, units)
}

fn run_once(scenario: Scenario) -> Report {
    let seed = scenario.seed;
    let (world, units) = world(&scenario);
    let outside = Rc::new(Outside {
        control: world.control(),
        units,
        inner: RefCell::default(),
        blinked: RefCell::default(),
        model: RefCell::new(Model::new(0)),
        report: RefCell::new(Report::new(scenario.level)),
        dead: RefCell::new(BTreeSet::new()),
        reshaped: Cell::new(None),
        tolerant: scenario.latent && (scenario.losses || scenario.refusals)
            || matches!(scenario.trouble, Trouble::Metadata | Trouble::Spoils) && scenario.losses,
        refusals: Refusals::new(Rng::fork(seed, 4)),
        whole: Cell::new(true),
        sound: Cell::new(true),
        rested: Cell::new(false),
        idled: Cell::new(false),
        stale: Cell::new(None),
        rotten: Cell::new(false),
        acked: Cell::new(0),
        started: Cell::new(false),
        writes: Cell::new(0),
        partial_writes: Cell::new(0),
        doing: Cell::new(None),
        data_at: Cell::new(0),
        stripe: Cell::new(0),
        rng: RefCell::new(Rng::fork(seed, 2)),
        scenario,
    });
    let pool = match outside.scenario.trouble {
        Trouble::Memory if outside.scenario.level != Level::Raid5 => POOL_BYTES_SHORT,
        Trouble::Nested => POOL_BYTES_NESTED,
        _ => POOL_BYTES,
    };
    let mut sim = Sim::new(world).pool_bytes(pool);
    let lives = outside.scenario.lives;
    let rest = match outside.scenario.trouble {
        Trouble::Idles => REST_MAX.0 * lives,
        // A silent member is waited for.
        Trouble::Hangs => TIME_MAX.0 * lives,
        _ => 0,
    };
    sim.set_budget(Budget {
        time_max: TIME_MAX + Nanos(rest),
        ..Budget::default()
    });
    drive(&mut sim, &outside, make);
    match outside.scenario.trouble {
        Trouble::Splits => split::part(&mut sim, &outside),
        _ => (0..lives).fold((false, 0), |so_far, number| {
            live_once(&mut sim, &outside, number, so_far)
        }),
    };
    for disk in outside.disks() {
        let overlaps = sim.world().overlaps(disk);
        if overlaps > 0 {
            let what = format!("{overlaps} writes overlapped on target {}", disk.0);
            outside.report.borrow_mut().violate(what);
        }
    }
    outside.report.borrow().clone()
}

/// One life; what came before it: whether it was short, and how many faults there were.
fn live_once(
    sim: &mut Sim,
    outside: &Rc<Outside>,
    number: u64,
    (mut short, seen): (bool, usize),
) -> (bool, usize) {
    if outside.report.borrow().violation.is_some() {
        return (short, seen);
    }
    befall(sim, outside, number);
    let steps = sim.world().steps();
    let plan = outside
        .scenario
        .plan(number, steps, &outside.disks(), outside.data_at.get());
    sim.world_mut().set_plan(plan).expect("a sound plan");
    outside.started.set(false);
    let cut = drive(sim, outside, async move |outside, local| {
        live(outside, local, number).await;
    });
    let seen = count(sim, outside, seen);
    if cut {
        let life = sim.world().steps() - steps;
        after_cut(
            outside,
            std::mem::replace(&mut short, life < STEPS_SHORT) && short,
        );
    }
    (short, seen)
}

/// Runs `work` on a shard; whether a loss of power ended it.
pub(super) fn drive(
    sim: &mut Sim,
    outside: &Rc<Outside>,
    work: impl AsyncFnOnce(Rc<Outside>, Local<SimDriver>) + 'static,
) -> bool {
    let run = outside.clone();
    let (outcome, _) = run_alone(sim, async move |local| work(run, local).await);
    outside.inner.borrow_mut().clear();
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
    outside.create_inner(&local).await.expect("sound disks");
    let candidate = |unit| outside.candidate(&local, unit).expect("it is there");
    let candidates = |range: Range<usize>| range.map(candidate).collect();
    let members = candidates(0..scenario.members);
    let spares = candidates(scenario.members..scenario.members + scenario.spares);
    let mut fresh = || outside.fresh();
    let env = local.env();
    let array = create(&env, &plan, members, spares, &mut fresh, outside.options()).await;
    let array = array.expect("sound members");
    array.close().await.expect("nothing is wrong yet");
    *outside.model.borrow_mut() = Model::new(array.geometry().sectors.0);
    if scenario.level == raid::Level::Raid5 {
        outside.stripe.set(array.shape().width().0);
    }
    let device = candidate(0).device;
    let superblock = examine(&env, &device).await.expect("it can be read");
    outside
        .data_at
        .set(superblock.expect("just written").data_at.0);
    outside.end_inner(&env).await.expect("nothing is wrong yet");
}

async fn live(outside: Rc<Outside>, local: Local<SimDriver>, number: u64) {
    for falls in 0.. {
        let Some(array) = start(&outside, &local, number).await else {
            return;
        };
        let life = Life::new(outside.clone(), local.clone(), array, number);
        life.look();
        let mut chaos = Chaos::new(life.clone());
        chaos.falls = falls;
        join(work(&life), chaos.rage()).await;
        if !life.fallen.get() {
            return finish(&life, &mut chaos).await;
        }
        come_back(&life).await;
        if life.report.borrow().violation.is_some() {
            return;
        }
    }
}

/// The clients do their operations.
pub(super) async fn work(life: &Rc<Life>) {
    let clients = (0..life.scenario.clients).map(|i| client::work(life.clone(), i));
    join_all(clients).await;
    life.over.set(true);
}

/// Too many members were lost, and are back: what they had not flushed may be gone.
async fn come_back(life: &Life) {
    let letting_go = Box::pin(life.array.let_go());
    if life
        .env
        .timer
        .timeout(LETTING_GO_MAX, letting_go)
        .await
        .is_none()
    {
        return life.violate("it never lets go of its members".into());
    }
    let width = life.refusals.count.get().min(1) * life.stripe.get();
    life.model.borrow_mut().cut(width);
    life.revive_all();
}

/// Lets the array mend itself, and looks at everything.
pub(super) async fn finish(life: &Rc<Life>, chaos: &mut Chaos) {
    life.refusals.disarm();
    life.disks()
        .iter()
        .for_each(|disk| life.control.release(*disk));
    if life.scenario.trouble == Trouble::Hangs {
        // What hangs from here on does so for a while: it may be needed.
        let (timer, control, disks) = (life.env.timer.clone(), life.control.clone(), life.disks());
        life.env.spawn.spawn(async move {
            for _ in 0..10_000 {
                timer.sleep(RELEASE_AFTER).await;
                disks.iter().for_each(|disk| control.release(*disk));
            }
        });
    }
    chaos.give_back().await;
    chaos.take_back().await;
    // One that is of no use as it is now stays out.
    let whole = life.reshaped.get().is_none();
    for scrubs in 1..=SCRUBS {
        if !settle(life, chaos, whole).await {
            return;
        }
        read_all(life).await;
        if !(life.scenario.level.is_redundant() && whole) {
            break;
        }
        match life.array.scrub(false).await {
            Ok(found) if found.mismatches == 0 => life.meet(Class::Scrub),
            Ok(found) => life.violate(format!("a scrub finds {found:?}")),
            // One that was slow was left behind meanwhile.
            Err(_) if life.scenario.trouble == Trouble::Hangs && scrubs < SCRUBS => continue,
            Err(error) => life.violate(format!("a scrub fails: {error}")),
        }
        break;
    }
    if life.scenario.trouble == Trouble::Idles && !life.is_last() {
        return idle(life).await;
    }
    if life.scenario.trouble == Trouble::Rots && !life.is_last() {
        chaos.leave_stale().await;
    }
    if let Err(error) = life.array.close().await {
        life.violate(format!("it cannot be closed: {error}"));
    }
    if let Err(what) = life.outside.end_inner(&life.env).await {
        life.violate(what);
    }
    life.look();
    life.rested.set(life.sound.get());
}

/// Waits until an array that can be whole is; `false` if something is wrong.
async fn settle(life: &Life, chaos: &mut Chaos, whole: bool) -> bool {
    for look in 1..=20_000 {
        // One that answered late was left behind again.
        if life.scenario.trouble == Trouble::Hangs && look % 100 == 0 {
            chaos.take_back().await;
        }
        if !whole || life.array.is_settled() || life.report.borrow().violation.is_some() {
            break;
        }
        life.look();
        life.env.timer.sleep(Nanos::from_millis(5)).await;
    }
    let well = life.report.borrow().violation.is_none();
    if well && whole && !life.array.is_settled() {
        life.violate(format!("it never settles: {:?}", life.array.report()));
        return false;
    }
    well
}

async fn read_all(life: &Rc<Life>) {
    for start in (0..life.sectors).step_by(64) {
        client::read(life, start..(start + 64).min(life.sectors)).await;
    }
    let members = life.array.report().members;
    if members.iter().any(|member| member.counts.repaired > 0) {
        life.meet(Class::LatentError);
    }
}

/// The array rests for hours; then the power goes.
async fn idle(life: &Life) {
    let mark = life.model.borrow_mut().flush();
    if let Err(error) = life.gate.flush().await {
        return life.violate(format!("a flush fails: {error}"));
    }
    life.model.borrow_mut().flushed(mark);
    let span = Rng::fork(life.scenario.seed, 64).between(REST_MAX.0 / 20, REST_MAX.0);
    life.env.timer.sleep(Nanos(span)).await;
    life.look();
    life.idled.set(true);
    life.meet(Class::IdleCut);
    life.control.cut_power(None);
    life.env.timer.sleep(Nanos::from_secs(1)).await;
}
