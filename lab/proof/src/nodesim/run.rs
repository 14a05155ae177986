//! Runs a case: its lives one after the other, and the final checks.

use super::chaos;
use super::client;
use super::life::{NodeLife, SimVolume};
use super::report::{Class, Report};
use super::scenario::{NodeLifeEnd, NodeScenario, TINY};
use block::{Geometry, Nanos, Sectors};
use control::config::{Config, Name};
use node::Before;
use shard::Local;
use sim::{
    DiskSpec, FaultEffect, FaultPlan, FaultRule, OpFilter, RunBudget, RunOutcome, SimDriver,
    SimHost, SimRng, SimWorld, When,
};
use simnode::{Direct, RunningNode, SimMachine, SimPlatform, create_array, run_alone};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The size of every disk but one.
const DISK: Sectors = Sectors::from_mib(4);
const TINY_DISK: Sectors = Sectors(16);
/// Buffers of a node.
const BUFFER_BYTES: usize = 24 << 20;
/// Time limit of the end, in which all is to be served.
const SETTLE_MAX: Nanos = Nanos::from_secs(600);
/// Time limit of a case.
const CASE_MAX: Nanos = Nanos::from_secs(3600);
/// The longest that a task runs on by itself after a stop.
const LINGER_MAX: Nanos = Nanos::from_secs(30);
/// Sectors of one read when all is compared.
const RUN: u64 = 128;

/// The state that all lives share.
#[derive(Clone)]
struct NodeOutside {
    scenario: NodeScenario,
    config: Rc<Config>,
    machine: Rc<SimMachine>,
    volumes: Rc<Vec<SimVolume>>,
    report: Rc<RefCell<Report>>,
}

/// Runs the case of `seed`.
pub fn run(seed: u64) -> Report {
    let scenario = NodeScenario::new(seed);
    let config = Rc::new(scenario.config());
    let mut world = SimWorld::new(seed);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let name = device.name.as_str();
        let size = match name {
            TINY => TINY_DISK,
            _ => DISK,
        };
        Ok(DiskSpec::new(Geometry::new(name, size, Sectors(1))))
    });
    let machine = machine.expect("a sound world");
    let specs = scenario.volumes.iter().cloned().zip(scenario.models());
    let volumes = specs.enumerate();
    let volumes = volumes.map(|(number, (spec, model))| SimVolume::new(number, spec, model));
    let outside = NodeOutside {
        volumes: Rc::new(volumes.collect()),
        report: Rc::default(),
        scenario,
        config,
        machine,
    };
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    sim.set_budget(RunBudget::until(CASE_MAX));
    let making = outside.clone();
    drive(&mut sim, &outside, async move |local| {
        make(&making, local).await
    });
    let lives = outside.scenario.lives.clone();
    for (number, (end, span)) in (0..).zip(lives) {
        if outside.scenario.slow {
            slow_down(&mut sim, &outside, number);
        }
        let living = outside.clone();
        let cut = drive(&mut sim, &outside, async move |local| {
            live(&living, local, number, end, span).await
        });
        outside.volumes.iter().for_each(|volume| volume.orphan(cut));
    }
    let ending = outside.clone();
    let number = outside.scenario.lives.len() as u64;
    drive(&mut sim, &outside, async move |local| {
        last(&ending, local, number).await
    });
    outside.report.take()
}

/// Runs a boot. Returns true if a loss of power ended the boot.
fn drive<F: Future<Output = ()> + 'static>(
    sim: &mut SimHost,
    outside: &NodeOutside,
    work: impl FnOnce(Local<SimDriver>) -> F + 'static,
) -> bool {
    if outside.report.borrow().violation.is_some() {
        return false;
    }
    let (outcome, _) = run_alone(sim, work);
    match outcome {
        RunOutcome::Done => false,
        RunOutcome::PowerCut => true,
        other => {
            let what = format!("it does not end: {other:?}");
            outside.report.borrow_mut().violate(what);
            false
        }
    }
}

/// Some disks take longer now and then.
fn slow_down(sim: &mut SimHost, outside: &NodeOutside, number: u64) {
    let mut rng = SimRng::fork(outside.scenario.seed, 50 + number);
    let mut rules = Vec::new();
    for device in &outside.config.devices {
        if rng.chance(0.3) {
            rules.push(FaultRule::new(
                outside
                    .machine
                    .target(&super::scenario::path(device.name.as_str())),
                OpFilter::All,
                When::Chance(0.02),
                FaultEffect::Delay(Nanos(rng.between(1_000_000, 400_000_000))),
            ));
        }
    }
    let plan = FaultPlan::of(rules);
    sim.world_mut().set_plan(plan).expect("a sound plan");
    outside.report.borrow_mut().meet(Class::Slow);
}

/// Makes the arrays.
async fn make(outside: &NodeOutside, local: Local<SimDriver>) {
    let platform = SimPlatform::new(outside.machine.clone(), local);
    for array in &outside.scenario.arrays {
        let name = Name::new(array).expect("a sound name");
        let made = create_array(&outside.config, platform.clone(), &name, Before::Used);
        made.await.expect("its members are here");
    }
    let mut report = outside.report.borrow_mut();
    if outside.scenario.nested {
        report.meet(Class::Nested);
    }
    if outside.scenario.array_in_pool {
        report.meet(Class::ArrayInPool);
    }
}

/// Starts a node and its observers.
async fn start(
    outside: &NodeOutside,
    local: &Local<SimDriver>,
    number: u64,
) -> Option<Rc<NodeLife>> {
    let env = local.env();
    let frontend = Direct::new(local);
    let platform = SimPlatform::new(outside.machine.clone(), local.clone());
    let started = RunningNode::start(&outside.config, platform, frontend.clone()).await;
    let node = match started {
        Ok(node) => node,
        Err(error) => {
            let what = format!("life {number}: the node does not start: {error}");
            outside.report.borrow_mut().violate(what);
            return None;
        }
    };
    Some(Rc::new(NodeLife {
        number,
        scenario: outside.scenario.clone(),
        env,
        machine: outside.machine.clone(),
        volumes: outside.volumes.clone(),
        frontend,
        node,
        report: outside.report.clone(),
        over: Cell::new(false),
    }))
}

async fn live(
    outside: &NodeOutside,
    local: Local<SimDriver>,
    number: u64,
    end: NodeLifeEnd,
    span: Nanos,
) {
    let free = local.env().pool.free_bytes();
    for volume in outside.volumes.iter() {
        let away = volume.spec.disks.iter();
        let path = |disk: &&String| outside.machine.is_away(&super::scenario::path(disk));
        if away.filter(path).count() > volume.spec.tolerance {
            volume.lose();
        } else if volume.number == 0 {
            volume.mend();
        }
    }
    if end == NodeLifeEnd::Cut {
        // The power may go while the node starts, too.
        let (machine, timer) = (outside.machine.clone(), local.env().timer);
        local.env().spawn.spawn(async move {
            timer.sleep(span).await;
            machine.cut_power();
        });
    }
    let Some(life) = start(outside, &local, number).await else {
        return;
    };
    life.meet(match end {
        NodeLifeEnd::Stop => Class::Stop,
        NodeLifeEnd::Kill => Class::Kill,
        NodeLifeEnd::Cut => Class::Cut,
    });
    for volume in 0..life.volumes.len() {
        for client in 0..life.scenario.clients {
            life.env
                .spawn
                .spawn(client::work(life.clone(), volume, client));
        }
    }
    life.env.spawn.spawn(chaos::work(life.clone()));
    life.env.timer.sleep(span).await;
    match end {
        NodeLifeEnd::Cut => life.env.timer.sleep(Nanos::from_secs(1)).await,
        NodeLifeEnd::Kill => {
            life.forget_unseen().await;
            life.over.set(true);
        }
        NodeLifeEnd::Stop => stop(life, &local, free).await,
    }
}

/// Ends a node in order. Nothing of the node may remain.
async fn stop(life: Rc<NodeLife>, local: &Local<SimDriver>, free: usize) {
    life.over.set(true);
    // The node names an origin that may have lost writes, and the next life shows the loss.
    let _ = life.node.stop().await;
    // The buffers of an unresponsive disk are no leak.
    life.machine.unsilence_all();
    let timer = life.env.timer.clone();
    let end = timer.now() + LINGER_MAX;
    while Rc::strong_count(&life) > 1 && timer.now() < end {
        timer.sleep(Nanos::from_millis(10)).await;
    }
    if Rc::strong_count(&life) > 1 {
        return life.violate("a client's request never ends after a stop".into());
    }
    let (machine, report, number) = (life.machine.clone(), life.report.clone(), life.number);
    life.hear();
    drop(life);
    timer.sleep(LINGER_MAX).await;
    let held = machine.held();
    let (tasks, now_free) = (local.tasks(), local.env().pool.free_bytes());
    let mut report = report.borrow_mut();
    if !held.is_empty() {
        report.violate(format!("life {number}: after a stop it holds {held:?}"));
    }
    if tasks > 1 {
        let tasks = tasks - 1;
        report.violate(format!("life {number}: after a stop {tasks} tasks run on"));
    }
    if now_free != free {
        let kept = free as i64 - now_free as i64;
        report.violate(format!(
            "life {number}: after a stop {kept} bytes of memory are kept"
        ));
    }
}

/// Checks that, with all lost disks back, everything is served and every byte is right.
async fn last(outside: &NodeOutside, local: Local<SimDriver>, number: u64) {
    let free = local.env().pool.free_bytes();
    outside.machine.repair();
    // The world learns of the repair once this shard pauses.
    local.env().timer.sleep(Nanos(1)).await;
    let Some(life) = start(outside, &local, number).await else {
        return;
    };
    let timer = life.env.timer.clone();
    let end = timer.now() + SETTLE_MAX;
    let settled = async || {
        let served = |volume: &SimVolume| life.frontend.client(&volume.spec.name).is_some();
        life.volumes.iter().all(served) && life.is_whole().await
    };
    while !settled().await && timer.now() < end {
        timer.sleep(Nanos::from_millis(100)).await;
    }
    life.hear();
    if !settled().await && !life.scenario.several {
        let status = life.status().await;
        let arrays = status
            .arrays
            .iter()
            .map(|a| format!("{} {}", a.name, a.state));
        let arrays: Vec<String> = arrays.collect();
        let waiting = status
            .waiting
            .iter()
            .map(|w| format!("{}: {}", w.name, w.why));
        let waiting: Vec<String> = waiting.collect();
        return life.violate(format!(
            "with all back it is not whole: {arrays:?} {waiting:?}"
        ));
    }
    for volume in life.volumes.iter() {
        let Some(client) = life.frontend.client(&volume.spec.name) else {
            continue;
        };
        // Several lost members may have cost sectors; the array reports these at a read.
        if !(life.scenario.several && volume.is_excused()) {
            volume.mend();
        }
        for start in (0..volume.sectors).step_by(RUN as usize) {
            client::read(&life, volume, &client, start..start + RUN).await;
        }
    }
    stop(life, &local, free).await;
}
