//! One run: the lives of an array from its creation to its last reading.

use super::between::{after_cut, befall, count};
use super::chaos::ArrayChaos;
use super::course::{REST_MAX, come_back, drive, finish, work};
use super::life::{ArrayLife, ArrayOutside};
use super::model::ArrayModel;
use super::nest;
use super::refuse::Refusals;
use super::report::Report;
use super::scenario::ArrayScenario;
use super::split;
use super::start::start;
use super::trouble::ArrayTrouble;
use super::unit::ArrayUnit;
use block::Device;
use block::{Geometry, Nanos};
use futures_util::future::join;
use raid::{ArrayPlan, Level, create, examine};
use shard::Local;
use sim::{DiskSpec, Medium, RunBudget, SimDriver, SimHost, SimRng, SimWorld};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

/// Time limit of a run, hours of rest left out.
const TIME_MAX: Nanos = Nanos::from_secs(400);
/// A life of so few steps is short.
const STEPS_SHORT: u64 = 400;
/// The memory of the shard, of which RAID 5 reserves a part; the memory where it is short, for
/// other levels; and the memory where there are several arrays.
const POOL_BYTES: usize = 4 << 20;
const POOL_BYTES_SHORT: usize = 1 << 20;
const POOL_BYTES_NESTED: usize = 40 << 20;

/// Runs a scenario. A panic in the array is a violation.
pub fn run(scenario: ArrayScenario) -> Report {
    let (level, trouble) = (scenario.level.name(), scenario.trouble);
    let mut report = Report::of(|| run_once(scenario));
    report.count(level, 1);
    let violation = report.violation.take();
    report.violation = violation.map(|what| format!("{level}, {trouble:?}: {what}"));
    report
}

fn world(scenario: &ArrayScenario) -> (SimWorld, Vec<ArrayUnit>) {
    let mut world = SimWorld::new(scenario.seed);
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
        ArrayUnit {
            targets: targets.collect(),
            level,
        }
    });
    let units = units.collect();
    (world, units)
}

/// The bytes of each unit that is a disk.
fn media(world: &SimWorld, units: &[ArrayUnit]) -> Vec<Medium> {
    let of = |unit: &ArrayUnit| world.medium(unit.targets[0]).expect("it keeps its bytes");
    units.iter().map(of).collect()
}

/// True if the faults of `scenario` may leave a sector without a whole copy.
fn is_tolerant(scenario: &ArrayScenario) -> bool {
    match scenario.trouble {
        _ if scenario.latent && (scenario.losses || scenario.refusals) => true,
        ArrayTrouble::Metadata | ArrayTrouble::Spoils => scenario.losses,
        ArrayTrouble::Forgets => scenario.latent,
        _ => false,
    }
}

fn run_once(scenario: ArrayScenario) -> Report {
    let seed = scenario.seed;
    let (world, units) = world(&scenario);
    let outside = Rc::new(ArrayOutside {
        control: world.control(),
        forgotten: units.iter().map(|_| Rc::default()).collect(),
        media: media(&world, &units),
        image: RefCell::default(),
        copied: RefCell::default(),
        units,
        inner: RefCell::default(),
        blinked: RefCell::default(),
        model: RefCell::new(ArrayModel::new(0)),
        report: RefCell::default(),
        dead: RefCell::new(BTreeSet::new()),
        reshaped: Cell::new(None),
        tolerant: is_tolerant(&scenario),
        refusals: Refusals::new(SimRng::fork(seed, 4)),
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
        rng: RefCell::new(SimRng::fork(seed, 2)),
        scenario,
    });
    let pool = match outside.scenario.trouble {
        ArrayTrouble::Memory if outside.scenario.level != Level::Raid5 => POOL_BYTES_SHORT,
        ArrayTrouble::Nested => POOL_BYTES_NESTED,
        _ => POOL_BYTES,
    };
    let mut sim = SimHost::new(world).pool_bytes(pool);
    let lives = outside.scenario.lives;
    let rest = match outside.scenario.trouble {
        ArrayTrouble::Idles => REST_MAX.0 * lives,
        // The array waits for an unresponsive member.
        ArrayTrouble::Hangs => TIME_MAX.0 * lives,
        _ => 0,
    };
    sim.set_budget(RunBudget::until(TIME_MAX + Nanos(rest)));
    drive(&mut sim, &outside, make);
    match outside.scenario.trouble {
        ArrayTrouble::Splits => split::part(&mut sim, &outside),
        _ => (0..lives).fold((false, 0), |so_far, number| {
            live_once(&mut sim, &outside, number, so_far)
        }),
    };
    let mut report = outside.report.take();
    report.require_no_overlap(&sim, &outside.disks());
    report
}

/// Runs one life. Takes and returns whether a life was short, and the number of faults so far.
fn live_once(
    sim: &mut SimHost,
    outside: &Rc<ArrayOutside>,
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

async fn make(outside: Rc<ArrayOutside>, local: Local<SimDriver>) {
    let scenario = &outside.scenario;
    let plan = ArrayPlan {
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
    *outside.model.borrow_mut() = ArrayModel::new(array.geometry().sectors.0);
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

async fn live(outside: Rc<ArrayOutside>, local: Local<SimDriver>, number: u64) {
    for falls in 0.. {
        let Some(array) = start(&outside, &local, number).await else {
            return;
        };
        let life = ArrayLife::new(outside.clone(), local.clone(), array, number);
        life.look();
        let mut chaos = ArrayChaos::new(life.clone());
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
