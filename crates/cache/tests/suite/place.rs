//! A simulated world in which a pool is opened again and again.

use block::{
    BoxDevice, Buf, Device, Env, Fua, Geometry, Lba, Nanos, SECTOR_BYTES, Sectors, TargetId,
};
use cache::{
    Cache, CacheMode, Config, Counter, Durability, NewPoolDevice, OpenedPool, Volume, VolumeConfig,
};
use shard::{Local, ShardDisk};
use sim::{
    DiskSpec, FaultPlan, PowerCut, RunMoment, RunOutcome, ServiceSpan, ServiceTime, SimDriver,
    SimHost, SimWorld, WorldControl,
};
use simnode::run_alone;
use std::cell::Cell;

pub type Leaf = ShardDisk<SimDriver>;

pub const LINE: u64 = 128;

/// A world that outlives its runs: an origin, a pool, a witness.
pub struct Place {
    pub sim: SimHost,
    pub origin: TargetId,
    pub pool: Vec<TargetId>,
    pub witness: TargetId,
    pub runs: u64,
    pub period_ms: u64,
}

/// A run of a cache in that world.
pub struct Rig {
    pub env: Env,
    pub local: Local<SimDriver>,
    pub cache: Cache<Leaf>,
    pub volume: Volume<Leaf>,
    pub opened: OpenedPool,
    pub control: WorldControl,
    pub pool: Vec<TargetId>,
    pub origin: TargetId,
}

impl Place {
    pub fn new(seed: u64, pool: usize) -> Place {
        let mut world = SimWorld::new(seed);
        let mut add = |name: &str, mib, us| {
            let geometry = Geometry::new(name, Sectors::from_mib(mib), Sectors(8));
            let mut spec = DiskSpec::new(geometry);
            spec.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos::from_micros(us)));
            world.add_disk(spec).unwrap()
        };
        let origin = add("origin", 64, 2000);
        let witness = add("witness", 17, 50);
        let pool = (0..pool)
            .map(|i| add(&format!("pool-{i}"), 8, 100))
            .collect();
        Place {
            sim: SimHost::new(world),
            origin,
            pool,
            witness,
            runs: 0,
            period_ms: 20,
        }
    }

    /// With one device, which lines were put on before the pool ended in order.
    pub fn filled(seed: u64) -> Place {
        let mut place = Place::new(seed, 1);
        let outcome = place.run(&[0], |rig| async move {
            rig.fill().await;
            rig.volume.close().await;
            rig.cache.close().await;
        });
        assert_eq!(outcome, RunOutcome::Done);
        place
    }

    /// Cuts the power after `steps` steps of the world.
    pub fn cut_after(&mut self, steps: u64) {
        let cut = PowerCut {
            domain: None,
            at: RunMoment::Step(self.sim.world().steps() + steps),
        };
        let plan = FaultPlan {
            cuts: vec![cut],
            ..FaultPlan::default()
        };
        self.sim.world_mut().set_plan(plan).unwrap();
    }

    /// Returns the durable contents of a disk.
    pub fn image(&self, disk: TargetId) -> Vec<u8> {
        let world = self.sim.world();
        let bytes = world.geometry(disk).unwrap().sectors.bytes();
        let mut image = vec![0; bytes as usize];
        world.peek(disk, Lba::ZERO, &mut image);
        image
    }

    /// Writes `bytes` to a disk at `at`, between runs.
    pub fn patch(&mut self, disk: TargetId, at: Lba, bytes: Vec<u8>) {
        let (outcome, _) = run_alone(&mut self.sim, move |local| async move {
            let disk = local.disk(disk).unwrap();
            let mut at = at;
            for piece in bytes.chunks(1 << 20) {
                let mut buf = local.env().pool.get(piece.len()).await;
                buf.copy_from_slice(piece);
                disk.write(at, buf.share(), Fua::Yes).await.unwrap();
                at = at + Sectors(piece.len() as u64 / SECTOR_BYTES);
            }
        });
        assert_eq!(outcome, RunOutcome::Done);
    }

    /// Runs `test` over the pool's devices that `with` names. The test cuts the power.
    pub fn run<F>(&mut self, with: &[usize], test: impl FnOnce(Rig) -> F + 'static) -> RunOutcome
    where
        F: Future<Output = ()> + 'static,
    {
        self.runs += 1;
        let control = self.sim.world().control();
        let pool: Vec<_> = with.iter().map(|i| self.pool[*i]).collect();
        let (origin, witness) = (self.origin, self.witness);
        let run = (self.runs, self.period_ms);
        let (outcome, _) = run_alone(&mut self.sim, move |local| async move {
            test(open(local, control, origin, pool, witness, run).await).await;
        });
        outcome
    }

    /// Runs `test` as [`Place::run`] does, to its end.
    pub fn done<F>(&mut self, with: &[usize], test: impl FnOnce(Rig) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        assert_eq!(self.run(with, test), RunOutcome::Done);
    }

    /// Runs `test`, which a power cut ends. The next run has power.
    pub fn cut<F>(&mut self, with: &[usize], test: impl FnOnce(Rig) -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let outcome = self.run(with, test);
        cut_off(self, outcome);
    }

    /// Runs `test`, and ends the life by a power cut if `crash`, else in order.
    pub fn live(&mut self, with: &[usize], crash: bool, test: impl AsyncFnOnce(&Rig) + 'static) {
        let life = async move |rig: Rig| {
            test(&rig).await;
            match crash {
                true => rig.cut().await,
                false => rig.end().await,
            }
        };
        match crash {
            true => self.cut(with, life),
            false => self.done(with, life),
        }
    }
}

pub fn config(period_ms: u64) -> Config {
    Config {
        commit_period: Nanos::from_millis(period_ms),
        mark_idle_periods: 2,
        trims_discarded: true,
        ..Config::default()
    }
}

async fn open(
    local: Local<SimDriver>,
    control: WorldControl,
    origin: TargetId,
    pool: Vec<TargetId>,
    witness: TargetId,
    (run, period_ms): (u64, u64),
) -> Rig {
    let next = Cell::new(u128::from(run) << 64);
    let durability = Durability {
        label: "pool".into(),
        host: "host".into(),
        witness: Some(BoxDevice::new(local.disk(witness).unwrap())),
        uuids: Box::new(move || next.replace(next.get() + 1) | 1 << 100),
        overwrite: false,
        cold: false,
    };
    let devices = pool
        .iter()
        .map(|disk| NewPoolDevice::whole(local.disk(*disk).unwrap(), "controller"))
        .collect();
    let policy = policy::registry::build("lru", 0, 1).unwrap();
    let opened = Cache::open(config(period_ms), policy, local.env(), durability, devices).await;
    let (cache, opened) = opened.unwrap();
    let config = VolumeConfig::whole("volume");
    let below = BoxDevice::new(local.disk(origin).unwrap());
    let volume = cache.add_volume(config, below).unwrap();
    Rig {
        env: local.env(),
        local,
        cache,
        volume,
        opened,
        control,
        pool,
        origin,
    }
}

impl Rig {
    pub async fn buf(&self, sectors: u64) -> Buf {
        self.env.pool.get((sectors * SECTOR_BYTES) as usize).await
    }

    pub async fn write(&self, at: u64, sectors: u64, byte: u8) {
        let mut buf = self.buf(sectors).await;
        buf.fill(byte);
        let written = self.volume.write(Lba(at), buf.share(), Fua::No).await;
        written.unwrap();
    }

    pub async fn read(&self, at: u64, sectors: u64) -> Vec<u8> {
        let (buf, result) = self.volume.read(Lba(at), self.buf(sectors).await).await;
        result.unwrap();
        buf.to_vec()
    }

    pub async fn expect(&self, at: u64, sectors: u64, byte: u8) {
        let bytes = self.read(at, sectors).await;
        assert!(bytes.iter().all(|b| *b == byte), "{} for {byte}", bytes[0]);
    }

    /// Another volume of this pool, on all or the first sectors of a disk.
    pub fn add(&self, name: &str, disk: TargetId, sectors: Option<Sectors>) -> Volume<Leaf> {
        let config = VolumeConfig {
            name: name.into(),
            sectors,
            mode: CacheMode::WriteThrough,
        };
        let below = BoxDevice::new(self.local.disk(disk).unwrap());
        self.cache.add_volume(config, below).unwrap()
    }

    /// Returns the contents of the first line of a volume.
    pub async fn first(&self, volume: &Volume<Leaf>) -> u8 {
        let (buf, result) = volume.read(Lba(0), self.buf(LINE).await).await;
        result.unwrap();
        assert!(buf.iter().all(|byte| *byte == buf[0]));
        buf[0]
    }

    /// Checks that the whole volume has the content of the origin.
    pub async fn agrees(&self) {
        let origin = self.local.disk(self.origin).unwrap();
        for at in (0..64 * 2048).step_by(1024) {
            let seen = self.read(at, 1024).await;
            let (raw, result) = origin.read(Lba(at), self.buf(1024).await).await;
            result.unwrap();
            assert!(seen[..] == raw[..], "a stale byte at sector {at}");
        }
    }

    /// Sixteen lines, read twice.
    pub async fn fill(&self) {
        for line in 0..16 {
            self.read(line * LINE, LINE).await;
        }
        self.cache.settle().await;
    }

    pub async fn sleep(&self, ms: u64) {
        self.env.timer.sleep(Nanos::from_millis(ms)).await;
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.cache.counters().get(counter)
    }

    pub async fn cut(&self) {
        self.control.cut_power(None);
        self.sleep(1000).await;
    }

    /// Ends the volume and the pool in order.
    pub async fn end(&self) {
        self.volume.close().await;
        self.cache.close().await;
    }
}

/// Restores power before the next run.
pub fn cut_off(place: &mut Place, outcome: RunOutcome) {
    assert_eq!(outcome, RunOutcome::PowerCut);
    let mut world = place.sim.world_mut();
    world.set_plan(FaultPlan::default()).unwrap();
    world.control().power_on(sim::Domain(0));
}
