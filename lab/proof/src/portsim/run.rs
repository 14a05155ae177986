//! Runs a case: the lives of its servers one after the other, and the final checks.

use super::client::{PLACE, PlaceContent, PortSimClients, PortSimShared};
use super::report::{Class, Report};
use block::conformance::BeginningGate;
use block::{Gate, Geometry, Nanos, Sectors, TargetId};
use port::{Options, PortServer};
use shard::Local;
use sim::{
    DiskSpec, FaultEffect, FaultPlan, FaultRule, OpFilter, PortSpec, RunBudget, RunOutcome,
    ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng, SimWorld, When,
};
use simnode::run_alone;
use std::cell::RefCell;
use std::rc::Rc;

/// Buffers of a server.
const BUFFER_BYTES: usize = 8 << 20;
/// Time limit of a case.
const CASE_MAX: Nanos = Nanos::from_secs(600);
/// Interval at which a life's end is looked for.
const TICK: Nanos = Nanos::from_micros(20);
/// Time limit of a server's stop.
const GRACE: Nanos = Nanos::from_secs(60);

/// The end of a life.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PortLifeEnd {
    Kill,
    Stop,
    /// All requests are answered.
    Done,
}

/// Runs the case of `seed`.
pub fn run(seed: u64) -> Report {
    let mut rng = SimRng::fork(seed, 1);
    let places = 1 + rng.below(48);
    let clients = PortSimClients::new(SimRng::fork(seed, 2), places as usize, 20 + rng.below(300));
    let clients = Rc::new(RefCell::new(clients));
    let mut world = SimWorld::new(seed);
    let size = Sectors(places * PLACE.0);
    let mut spec = DiskSpec::new(Geometry::new("disk", size, Sectors(1)));
    spec.service = ServiceTime::uniform(ServiceSpan {
        min: Nanos::from_micros(1),
        max: Nanos::from_micros(1 + rng.below(400)),
    });
    let disk = world.add_disk(spec).expect("a sound disk");
    let mut rules = Vec::new();
    if rng.chance(0.3) {
        rules.push(rule(
            disk,
            0.01,
            FaultEffect::Fail(block::IoErrorKind::Media),
        ));
    }
    if rng.chance(0.5) {
        // Long enough for another server to begin meanwhile.
        let late = Nanos(rng.between(1_000_000, 10_000_000));
        rules.push(rule(disk, 0.05, FaultEffect::Delay(late)));
    }
    let plan = FaultPlan::of(rules);
    world.set_plan(plan).expect("a sound plan");
    let tags = 1 + rng.below(16) as u16;
    let latency = ServiceSpan {
        min: Nanos::from_micros(1),
        max: Nanos::from_micros(1 + rng.below(60)),
    };
    let client = Box::new(PortSimShared(clients.clone()));
    let spec = PortSpec {
        tags,
        latency,
        client,
    };
    let target = world.add_port(spec).expect("a sound port");
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    sim.set_budget(RunBudget::until(CASE_MAX));
    let lives = rng.below(6);
    for _ in 0..lives {
        let end = if rng.chance(0.7) {
            PortLifeEnd::Kill
        } else {
            PortLifeEnd::Stop
        };
        let span = Nanos(rng.between(1_000, 4_000_000));
        drive(&mut sim, &clients, disk, target, end, span);
    }
    drive(
        &mut sim,
        &clients,
        disk,
        target,
        PortLifeEnd::Done,
        Nanos::MAX,
    );
    compare(&sim, disk, &mut clients.borrow_mut());
    let mut clients = clients.borrow_mut();
    std::mem::take(&mut clients.report)
}

/// A fault that strikes requests of the disk now and then.
fn rule(disk: TargetId, chance: f64, effect: FaultEffect) -> FaultRule {
    FaultRule::new(disk, OpFilter::All, When::Chance(chance), effect)
}

/// Runs one server, to its end or to the end of all requests.
fn drive(
    sim: &mut SimHost,
    clients: &Rc<RefCell<PortSimClients>>,
    disk: TargetId,
    target: TargetId,
    end: PortLifeEnd,
    span: Nanos,
) {
    if clients.borrow().is_done() {
        return;
    }
    let served = clients.clone();
    let (outcome, _) = run_alone(sim, move |local| {
        live(local, served, disk, target, end, span)
    });
    let mut clients = clients.borrow_mut();
    if outcome != RunOutcome::Done {
        let open = clients.open();
        let what = format!("{open} requests are never answered: {outcome:?}");
        clients.report.violate(what);
    }
}

async fn live(
    local: Local<SimDriver>,
    clients: Rc<RefCell<PortSimClients>>,
    disk: TargetId,
    target: TargetId,
    end: PortLifeEnd,
    span: Nanos,
) {
    let env = local.env();
    let device = local.disk(disk).expect("a disk of this world");
    let port = local.port(target).expect("a port of this world");
    let options = Options {
        read_only: false,
        // Few enough that requests wait for memory.
        memory_bytes_max: 64 << 10,
    };
    let gate = BeginningGate::new(Gate::new(device, env.clone()), env.clone());
    let server = PortServer::begin(port, gate, options, env.clone());
    let until = Nanos(env.timer.now().0.saturating_add(span.0));
    while !clients.borrow().is_done() && env.timer.now() < until {
        env.timer.sleep(TICK).await;
        if server.in_hand() == server.tags() {
            clients.borrow_mut().report.meet(Class::Full);
        }
    }
    if clients.borrow().is_done() {
        return;
    }
    match end {
        PortLifeEnd::Stop => {
            let answered = server.stop(GRACE).await;
            let mut clients = clients.borrow_mut();
            clients.report.meet(Class::Stop);
            if !answered {
                let what = "a server that stops does not answer what it has begun".into();
                clients.report.violate(what);
            }
        }
        _ => {
            let mut clients = clients.borrow_mut();
            clients.report.meet(Class::Kill);
            if server.in_hand() > 0 {
                clients.report.meet(Class::Held);
            }
        }
    }
}

/// Checks that the acknowledged bytes are on the disk.
fn compare(sim: &SimHost, disk: TargetId, clients: &mut PortSimClients) {
    let mut found = vec![0; PLACE.bytes() as usize];
    for (number, content) in (0_u64..).zip(clients.places.clone()) {
        sim.world()
            .peek(disk, block::Lba(number * PLACE.0), &mut found);
        if let PlaceContent::Bytes(bytes) = content
            && bytes != found
        {
            let what = format!("place {number} is not on the disk as it was answered");
            clients.report.violate(what);
        }
    }
}
