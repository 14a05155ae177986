//! Cost and worth of remembering: a cache on simulated disks that is closed, or killed, and opened
//! again.
//!
//! All in the simulator's time, so that no other load of the machine counts.

use super::{BenchRow, Goal, alone};
use block::{
    Boundary, BoxDevice, Fua, Gate, Geometry, IoResult, Nanos, Sectors, ShardId, TargetId,
};
use cache::{Cache, CacheMode, Config, Counter, Durability, NewPoolDevice, Volume, VolumeConfig};
use futures_util::future::join_all;
use shard::{Local, ShardDisk};
use sim::{DiskSpec, Domain, FaultPlan, Keep, PowerCut, RunMoment, RunOutcome};
use sim::{ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng, SimWorld};
use simnode::run_alone;
use std::cell::Cell;

const BLOCK: u64 = 4096;
const WITNESS: Sectors = Sectors::from_mib(1);
const DAEMON: Domain = Domain(1);

/// Writes of the load with counted bitmap commits.
const WRITES: u64 = 1 << 15;
const WRITES_PER_FLUSH: u64 = 32;
const DEPTH: u64 = 8;
/// A volume that the bitmap of a pool is exact for.
const WIDE: Sectors = Sectors::from_mib(64 << 10);

const POOL: Sectors = Sectors::from_mib(512);
const VOLUME: Sectors = Sectors::from_mib(4 << 10);
/// Size of the hot part: nine reads of ten go here, and all writes into its first tenth.
const HOT: Sectors = Sectors::from_mib(400);
const CLIENTS: u64 = 16;
/// Time of warming the cold cache.
const WARMING: Nanos = Nanos::from_secs(180);
/// Interval of looks at the share of hits.
const WINDOW: Nanos = Nanos::from_millis(250);

const DISK: ServiceSpan = ServiceSpan {
    min: Nanos::from_millis(2),
    max: Nanos::from_millis(8),
};
const ARRAY: ServiceSpan = ServiceSpan {
    min: Nanos::from_micros(200),
    max: Nanos::from_micros(600),
};
const SSD: ServiceSpan = ServiceSpan {
    min: Nanos::from_micros(20),
    max: Nanos::from_micros(80),
};

type Leaf = ShardDisk<SimDriver>;

/// Start of a life of the cache.
#[derive(Clone, Copy, PartialEq)]
enum LifeStart {
    /// A cache that remembers nothing, and writes nothing to remember.
    Forgetful,
    /// A cache with the state that the pool remembers.
    Warm,
    /// A cache without that state.
    Cold,
}

/// Disks that outlive the lives of a cache.
struct RememberBench {
    sim: SimHost,
    origin: TargetId,
    pool: TargetId,
    witness: TargetId,
}

/// A cache that is open, and its volume.
struct CacheLife {
    local: Local<SimDriver>,
    cache: Cache<Leaf>,
    gate: Gate<Volume<Leaf>>,
    /// Time at which the opening began.
    began: Nanos,
}

impl RememberBench {
    fn new(pool: Sectors, volume: Sectors, origin: ServiceSpan) -> IoResult<RememberBench> {
        let mut world = SimWorld::new(1);
        world.place(ShardId(0), DAEMON);
        let mut add = |name: &str, sectors, service, keep| {
            let mut spec = DiskSpec::new(Geometry::new(name, sectors, Sectors(8)));
            spec.service = ServiceTime::uniform(service);
            spec.keep = keep;
            world.add_disk(spec)
        };
        Ok(RememberBench {
            origin: add("origin", volume, origin, Keep::Nothing)?,
            pool: add("pool", pool, SSD, Keep::Bytes)?,
            witness: add("witness", WITNESS, SSD, Keep::Bytes)?,
            sim: SimHost::new(world),
        })
    }

    /// Runs one life, which ends by a kill after `killed` if set; returns the result of `work`
    /// unless the kill cut it off.
    fn run<T: 'static, F: Future<Output = IoResult<T>>>(
        &mut self,
        start: LifeStart,
        killed: Option<Nanos>,
        work: impl FnOnce(CacheLife) -> F + 'static,
    ) -> IoResult<Option<T>> {
        let now = self.sim.world().now();
        let cuts = killed.map(|span| PowerCut {
            domain: Some(DAEMON),
            at: RunMoment::At(now + span),
        });
        let plan = FaultPlan {
            cuts: cuts.into_iter().collect(),
            ..FaultPlan::default()
        };
        self.sim.world_mut().set_plan(plan)?;
        let disks = [self.origin, self.pool, self.witness];
        let (outcome, came) = run_alone(&mut self.sim, move |local| async move {
            work(open(local, disks, start).await?).await
        });
        let expected = match killed {
            Some(_) => RunOutcome::PowerCut,
            None => RunOutcome::Done,
        };
        assert_eq!(outcome, expected, "the cache's life");
        came.transpose()
    }
}

async fn open(
    local: Local<SimDriver>,
    disks: [TargetId; 3],
    start: LifeStart,
) -> IoResult<CacheLife> {
    let began = local.env().timer.now();
    let [origin, pool, witness] = disks;
    let config = Config {
        sequential_bytes: None,
        ..Config::default()
    };
    let policy = policy::registry::build("auto", 0, 1).expect("registered");
    let device = NewPoolDevice::whole(local.disk(pool)?, "controller".to_owned());
    let env = local.env().clone();
    let cache = if start == LifeStart::Forgetful {
        let cache = Cache::new(config, policy, env.clone())?;
        cache.add_device(device)?;
        cache
    } else {
        let mut names = SimRng::new(began.0 + 1);
        let durability = Durability {
            label: "pool".into(),
            host: "bench".into(),
            witness: Some(BoxDevice::new(local.disk(witness)?)),
            uuids: Box::new(move || names.bits().into()),
            overwrite: false,
            cold: start == LifeStart::Cold,
        };
        let opened = Cache::open(config, policy, env.clone(), durability, vec![device]);
        opened.await?.0
    };
    let volume = VolumeConfig {
        name: "volume".into(),
        sectors: None,
        mode: CacheMode::WriteThrough,
    };
    let volume = cache.add_volume(volume, BoxDevice::new(local.disk(origin)?))?;
    Ok(CacheLife {
        gate: Gate::new(volume, env),
        cache,
        local,
        began,
    })
}

impl CacheLife {
    fn now(&self) -> Nanos {
        self.local.env().timer.now()
    }

    async fn write(&self, at: u64) -> IoResult {
        let buf = self.local.env().pool.get(BLOCK as usize).await;
        self.gate.write(at * BLOCK, buf.share(), Fua::No).await
    }

    async fn close(self) {
        self.gate.device().close().await;
        self.cache.close().await;
    }

    /// Writes all over the volume with a flush now and then: writes a second.
    async fn write_all_over(self) -> IoResult<f64> {
        let (mut rng, began) = (SimRng::new(2), self.now());
        for _ in 0..WRITES / WRITES_PER_FLUSH {
            let blocks = WIDE.bytes() / BLOCK;
            let places: Vec<u64> = (0..WRITES_PER_FLUSH).map(|_| rng.below(blocks)).collect();
            for some in places.chunks(DEPTH as usize) {
                let done = join_all(some.iter().map(|at| self.write(*at))).await;
                done.into_iter().collect::<IoResult>()?;
            }
            self.gate.flush().await?;
        }
        let rate = WRITES as f64 / (self.now() - began).as_secs_f64();
        self.close().await;
        Ok(rate)
    }

    /// A tenth of the operations write, in a tenth of the hot part; the rest reads.
    async fn client(&self, number: u64, ended: &Cell<bool>) -> IoResult {
        let mut rng = SimRng::fork(3, number);
        let blocks = |sectors: Sectors| sectors.bytes() / BLOCK;
        while !ended.get() {
            match rng.below(10) {
                0 => self.write(rng.below(blocks(HOT) / 10)).await?,
                1 => self.read(rng.below(blocks(VOLUME))).await?,
                _ => self.read(rng.below(blocks(HOT))).await?,
            }
        }
        Ok(())
    }

    async fn read(&self, at: u64) -> IoResult {
        self.gate.read(at * BLOCK, BLOCK as usize).await.map(drop)
    }

    /// Loads the cache until `done` returns true. `done` gets the share of hits in the last window
    /// and the time since the opening began. Returns the time and share of each window.
    async fn load(&self, done: impl Fn(f64, Nanos) -> bool) -> IoResult<Vec<(Nanos, f64)>> {
        let ended = Cell::new(false);
        let watch = async {
            let mut seen = Vec::new();
            let counts = || {
                let counters = self.cache.counters();
                let count = |counter| counters.get(counter) as f64;
                let hits = count(Counter::ReadsHit);
                (hits, hits + count(Counter::ReadsMissed))
            };
            let mut before = counts();
            while !ended.get() {
                self.local.env().timer.sleep(WINDOW).await;
                let after = counts();
                let share = (after.0 - before.0) / (after.1 - before.1).max(1.0);
                let since = self.now() - self.began;
                seen.push((since, share));
                before = after;
                ended.set(done(share, since));
            }
            seen
        };
        let clients = join_all((0..CLIENTS).map(|number| self.client(number, &ended)));
        let (seen, ends) = futures_util::future::join(watch, clients).await;
        ends.into_iter().collect::<IoResult>()?;
        Ok(seen)
    }

    /// Bytes written to the pool for each byte admitted.
    fn written_per_byte(&self) -> f64 {
        let counters = self.cache.counters();
        let count = |counter| counters.get(counter) as f64;
        let admitted = count(Counter::BlocksPromoted) + count(Counter::BlocksUpdated);
        1.0 + count(Counter::MetadataBytes) / (admitted * BLOCK as f64)
    }
}

/// Cost of the bitmap for random writes, cost of admitted bytes, and the time until a cache is as
/// warm as before.
pub fn rows() -> IoResult<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for (name, origin) in [("a disk", DISK), ("an array", ARRAY)] {
        let rate = |start| -> IoResult<f64> {
            let run = RememberBench::new(POOL, WIDE, origin)?.run(
                start,
                None,
                CacheLife::write_all_over,
            )?;
            Ok(run.expect("it was not killed"))
        };
        let lost = 100.0 * (1.0 - rate(LifeStart::Warm)? / rate(LifeStart::Forgetful)?);
        let name = format!("4 KiB random writes over 64 GiB on {name}, a flush every 32");
        let goal = Some(Goal::AtMost(5.0));
        rows.push(alone(
            format!("{name}: IOPS lost to the bitmap"),
            "%",
            goal,
            &[lost],
        ));
    }
    rows.extend(warmth()?);
    Ok(rows)
}

fn warmth() -> IoResult<Vec<BenchRow>> {
    let mut bench = RememberBench::new(POOL, VOLUME, DISK)?;
    let warming = |life: CacheLife| async move {
        let seen = life.load(|_, since| since >= WARMING).await?;
        let per_byte = life.written_per_byte();
        life.close().await;
        Ok((seen, per_byte))
    };
    let (seen, per_byte) = bench
        .run(LifeStart::Warm, None, warming)?
        .expect("it was not killed");
    let last = &seen[seen.len() * 9 / 10..];
    let usual = last.iter().map(|(_, share)| share).sum::<f64>() / last.len() as f64;
    let goal = 0.9 * usual;
    let first = |seen: Vec<(Nanos, f64)>| {
        let reached = seen.into_iter().find(|(_, share)| *share >= goal);
        reached.expect("it was loaded until then").0.as_secs_f64()
    };
    let cold = first(seen);
    let again = |bench: &mut RememberBench, start| -> IoResult<f64> {
        let work = move |life: CacheLife| async move {
            let seen = life.load(|share, _| share >= goal).await?;
            life.close().await;
            Ok(seen)
        };
        let seen = bench.run(start, None, work)?;
        Ok(first(seen.expect("it was not killed")))
    };
    let clean = again(&mut bench, LifeStart::Warm)?;
    let refused = again(&mut bench, LifeStart::Cold)?;
    bench.run(
        LifeStart::Warm,
        Some(WARMING),
        |life: CacheLife| async move { life.load(|_, _| false).await },
    )?;
    let crashed = again(&mut bench, LifeStart::Warm)?;
    let name = "from opening to 90% of the hit ratio before";
    let s = |what: &str, seconds| alone(format!("{name}, {what}"), "s", None, &[seconds]);
    Ok(vec![
        alone(
            "bytes written to the pool for each byte admitted",
            "bytes",
            Some(Goal::AtMost(1.10)),
            &[per_byte],
        ),
        alone("hit ratio before", "%", None, &[100.0 * usual]),
        s("closed in order", clean),
        s("killed under load", crashed),
        s("a new pool", cold),
        s("opened cold", refused),
    ])
}
