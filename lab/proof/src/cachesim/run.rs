//! One run: builds the world of a scenario, runs the world, and checks the remains.

use super::chaos::CacheChaos;
use super::client::{self, ClientSide, is_origins};
use super::origin::TestOrigin;
use super::report::Report;
use super::scenario::{CacheScenario, WITNESS};
use super::shared::{CacheSimShared, Leaf, TestVolume};
use crate::model::{Space, VolumeModel};
use block::{
    Boundary, BoxDevice, Device, Gate, Geometry, Lba, Nanos, SECTOR_BYTES, Sectors, ShardId,
    TargetId,
};
use cache::{Cache, Config, Durability, VolumeConfig};
use futures_util::future::{join, join_all};
use shard::{
    GateAsker, GateEnd, GatePass, GateTable, Local, LocatingGate, Mesh, RemoteGate, Shard, lane,
};
use sim::{
    DiskSpec, RunBudget, RunOutcome, ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng,
    SimWorld, WorldControl,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Interval of the map commits of a pool with metadata.
const COMMIT_PERIOD: Nanos = Nanos::from_millis(2);
/// Time limit of a run.
const TIME_MAX: Nanos = Nanos::from_secs(600);
/// The shard of the cache.
const HOME: ShardId = ShardId(0);
/// Interval at which a shard looks for the other's work.
const LOOK: Nanos = Nanos::from_micros(50);
/// Attempts to read from an origin that fails now and then.
const ATTEMPTS: u32 = 100;

/// Runs the scenario of `seed`.
pub(super) fn run(seed: u64) -> Report {
    let scenario = Arc::new(CacheScenario::new(seed));
    let mut world = SimWorld::new(seed);
    let mut add = |name: String, sectors, block, time: ServiceSpan| {
        let mut spec = DiskSpec::new(Geometry::new(name, sectors, block));
        spec.service = ServiceTime::uniform(time);
        world.add_disk(spec).expect("a sound disk")
    };
    let origins: Vec<_> = (0..)
        .zip(&scenario.volumes)
        .map(|(i, s)| {
            add(
                format!("origin-{i}"),
                *s,
                scenario.block,
                scenario.origin_time,
            )
        })
        .collect();
    let pool: Vec<_> = (0..)
        .zip(&scenario.pool)
        .map(|(i, s)| add(format!("pool-{i}"), *s, Sectors(8), scenario.pool_time))
        .collect();
    let witness = add("witness".into(), WITNESS, Sectors(8), scenario.pool_time);
    world
        .set_plan(scenario.plan(&origins, &pool))
        .expect("a sound plan");
    let control = world.control();
    let report = Rc::new(RefCell::new(Report::default()));
    let mut sim = SimHost::new(world).pool_bytes(scenario.buffer_bytes);
    sim.set_budget(RunBudget::until(TIME_MAX));
    let run = (scenario.clone(), report.clone());
    let (backs, devices) = (origins.clone(), pool.clone());
    let further = Rc::new(FurtherClients::default());
    let of_further = further.clone();
    let home = move |local| async move {
        let (scenario, report) = run;
        let shared = build(scenario, local, control, (&backs, devices, witness), report).await;
        live(Rc::new(shared), &further).await;
    };
    let shards = 1 + u32::from(scenario.crossed);
    let (home, mesh) = (RefCell::new(Some(home)), Mesh::new(shards));
    let outcome = sim.drive(shards, |id, driver| {
        let (mesh, config) = (mesh.clone(), shard::Config::default());
        match id == HOME {
            true => {
                let home = home.take().expect("booted once");
                Shard::boot(id, driver, mesh, config, home)
            }
            false => {
                let clients = of_further.clone();
                Shard::boot(id, driver, mesh, config, move |local| clients.work(local))
            }
        }
    });
    let mut report = report.take();
    if outcome != RunOutcome::Done {
        report.violate(format!("the run did not end: {outcome:?}"));
    }
    if !scenario.abandon {
        report.require_no_overlap(&sim, origins.iter().chain(&pool));
    }
    report
}

async fn open(
    scenario: &CacheScenario,
    local: &Local<SimDriver>,
    witness: TargetId,
) -> Cache<Leaf> {
    let env = local.env();
    let config = Config {
        line_bytes: scenario.line_bytes,
        hit_latency_max: scenario.hit_latency_max,
        fill_bytes_per_s: scenario.fill_bytes_per_s,
        sequential_bytes: scenario.sequential_bytes,
        commit_period: COMMIT_PERIOD,
        ..Config::default()
    };
    let policy = policy::registry::build(scenario.policy, 0, scenario.seed).expect("registered");
    if scenario.durable {
        let durability = Durability {
            label: "pool".into(),
            host: "campaign".into(),
            witness: Some(BoxDevice::new(local.disk(witness).expect("a disk"))),
            uuids: Box::new(|| 1),
            overwrite: false,
            cold: false,
        };
        let opened = Cache::open(config, policy, env, durability, Vec::new()).await;
        opened.expect("an empty pool").0
    } else {
        Cache::new(config, policy, env).expect("a sound configuration")
    }
}

async fn build(
    scenario: Arc<CacheScenario>,
    local: Local<SimDriver>,
    control: WorldControl,
    (origins, pool, witness): (&[TargetId], Vec<TargetId>, TargetId),
    report: Rc<RefCell<Report>>,
) -> CacheSimShared {
    let env = local.env();
    let cache = open(&scenario, &local, witness).await;
    let targets = (0..)
        .zip(origins)
        .map(|(i, origin)| {
            let config = VolumeConfig::whole(format!("volume-{i}"));
            let below = TestOrigin::new(
                local.disk(*origin).expect("a disk"),
                env.clone(),
                SimRng::fork(scenario.seed, 1000 + i),
                scenario.origin_time.max,
            );
            let volume = cache
                .add_volume(config, BoxDevice::new(below))
                .expect("a sound volume");
            let sectors = volume.geometry().sectors.0;
            let space = Space::whole(volume.geometry().sectors);
            TestVolume {
                name: format!("volume-{i}"),
                sectors,
                gate: Gate::new(volume.clone(), env.clone()),
                volume,
                model: RefCell::new(VolumeModel::new(space)),
                origin: *origin,
            }
        })
        .collect();
    CacheSimShared {
        scenario,
        env,
        local,
        control,
        cache,
        targets,
        hung: pool.iter().map(|_| Cell::new(false)).collect(),
        pool,
        report,
        over: Cell::new(false),
    }
}

/// The parts that the clients on another shard need.
struct BegunClients {
    shared: Rc<CacheSimShared>,
    end: GateEnd,
    passes: Vec<GatePass>,
}

/// The clients on another shard than the cache: all with odd numbers.
///
/// Both shards run on one thread, so that the clients share the model with those of the home shard.
#[derive(Default)]
struct FurtherClients {
    begun: Cell<Option<BegunClients>>,
    are_done: Cell<bool>,
}

impl FurtherClients {
    async fn work(self: Rc<Self>, local: Local<SimDriver>) {
        let env = local.env();
        let BegunClients {
            shared,
            end,
            passes,
        } = loop {
            if let Some(begun) = self.begun.take() {
                break begun;
            }
            env.timer.sleep(LOOK).await;
        };
        let asker = GateAsker::begin(end, &local);
        let gates = passes.into_iter();
        let gates = gates.map(|pass| RemoteGate::new(asker.clone(), pass));
        let side = Rc::new(ClientSide {
            shared: shared.clone(),
            env,
            gates: gates.collect(),
        });
        let numbers = (1..shared.scenario.clients).step_by(2);
        join_all(numbers.map(|number| client::work(side.clone(), number))).await;
        self.are_done.set(true);
    }

    /// Lets the clients work, and waits for them.
    async fn serve(&self, shared: &Rc<CacheSimShared>) {
        let table = Rc::new(GateTable::default());
        let gates = shared.targets.iter().map(|target| target.gate.clone());
        let passes = gates.map(|gate| table.add(gate)).collect();
        let (end, server) = lane();
        let serving = table.serve(server, shared.env.clone());
        shared.env.spawn.spawn(serving);
        self.begun.set(Some(BegunClients {
            shared: shared.clone(),
            end,
            passes,
        }));
        while !self.are_done.get() {
            shared.env.timer.sleep(LOOK).await;
        }
    }
}

/// Runs every `step`th client on the home shard.
async fn clients_here<G: Boundary>(shared: &Rc<CacheSimShared>, gates: Vec<G>, step: usize) {
    let side = Rc::new(ClientSide {
        shared: shared.clone(),
        env: shared.env.clone(),
        gates,
    });
    let numbers = (0..shared.scenario.clients).step_by(step);
    join_all(numbers.map(|number| client::work(side.clone(), number))).await;
}

async fn live(shared: Rc<CacheSimShared>, further: &FurtherClients) {
    let mut chaos = CacheChaos::new(shared.clone()).await;
    let gates = shared.targets.iter().map(|target| target.gate.clone());
    let clients = async {
        match shared.scenario.crossed {
            true => {
                let gates = gates.map(|gate| LocatingGate::new(gate, &shared.local));
                let here = clients_here(&shared, gates.collect(), 2);
                join(here, further.serve(&shared)).await;
            }
            false => clients_here(&shared, gates.collect(), 1).await,
        }
        shared.over.set(true);
    };
    join(clients, chaos.rage()).await;
    check_memory(&shared);
    settle(&shared).await;
    if shared.report.borrow().violation.is_none() {
        for round in 0..2 {
            for target in &shared.targets {
                examine(&shared, target, round).await;
            }
            settle(&shared).await;
        }
    }
    shared
        .report
        .borrow_mut()
        .take_counters(&shared.cache.counters());
}

/// Checks that no more memory was taken than hung devices keep.
fn check_memory(shared: &CacheSimShared) {
    let pool = &shared.env.pool;
    let kept = pool.total_bytes() - pool.free_bytes() + pool.beside_bytes();
    let over = pool.over_bytes_max();
    if shared.is_any_hung() && over > kept {
        let what = format!("{over} bytes more than the memory were taken, devices keep {kept}");
        shared.violate(what);
    }
}

/// Waits until nothing is in flight, releasing stuck operations.
async fn settle(shared: &CacheSimShared) {
    let span = Nanos::from_millis(20);
    shared.env.timer.sleep(span).await;
    while shared
        .env
        .timer
        .timeout(span, shared.cache.settle())
        .await
        .is_none()
    {
        for disk in &shared.pool {
            shared.control.release(*disk);
        }
    }
    shared.hung.iter().for_each(|hung| hung.set(false));
    shared.cache.check();
}

/// Everything on the volume is allowed, and is the content of the origin.
async fn examine(shared: &CacheSimShared, target: &TestVolume, round: u32) {
    let origin = shared.local.disk(target.origin).expect("a disk");
    for start in (0..target.sectors).step_by(128) {
        let sectors = start..(start + 128).min(target.sectors);
        let len = ((sectors.end - start) * SECTOR_BYTES) as usize;
        for attempt in 1.. {
            let id = target.model.borrow_mut().begin_read(&sectors);
            let seen = target.gate.read(start * SECTOR_BYTES, len).await;
            let allowed = target.model.borrow_mut().end_read(id, seen.as_deref().ok());
            if let Err(what) = allowed {
                shared.violate(format!("round {round} over {}: {what}", target.name));
            }
            let (raw, read) = origin
                .read(Lba(start), shared.env.pool.get(len).await)
                .await;
            match (seen, read) {
                (Ok(seen), Ok(())) if seen[..] != raw[..] => {
                    let at = seen.iter().zip(&raw[..]).position(|(a, b)| a != b);
                    let sector = start + at.unwrap_or(0) as u64 / SECTOR_BYTES;
                    let what =
                        format!("{} differs from its origin at sector {sector}", target.name);
                    return shared.violate(format!("round {round}: {what}"));
                }
                (Ok(_), Ok(())) => break,
                (Err(error), _) if !is_origins(&shared.scenario, &error) => {
                    let what = "an error that the origin did not cause";
                    return shared.violate(format!("round {round}: {what}: {error}"));
                }
                _ if attempt == ATTEMPTS => {
                    return shared.violate("the origin fails without end".into());
                }
                _ => {}
            }
        }
    }
}
