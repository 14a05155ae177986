//! A cache on simulated disks: one origin, a pool, and requests for tests.

use block::{
    BoxDevice, Buf, Device, Env, Extent, Fua, Geometry, IoResult, Lba, Nanos, SECTOR_BYTES,
    Sectors, TargetId,
};
use cache::{Cache, CacheMode, Config, Counter, DeviceId, NewPoolDevice, Volume, VolumeConfig};
use drives::{SsdModel, SsdParameters, SsdWear};
use shard::{Local, ShardDisk};
use sim::{
    DiskSpec, FaultPlan, RunOutcome, ServiceSpan, ServiceTime, SimDriver, SimHost, SimWorld,
    WorldControl,
};
use simnode::run_alone;

/// The leaf that volumes' pools are made of here.
pub type Leaf = ShardDisk<SimDriver>;

/// Service times: the origin's is a slow disk's, the pool's a fast one's.
pub const ORIGIN_TIME: Nanos = Nanos::from_millis(5);
pub const POOL_TIME: Nanos = Nanos::from_micros(100);

/// The setup of a test's world.
#[derive(Clone)]
pub struct Setup {
    pub seed: u64,
    pub config: Config,
    pub policy: &'static str,
    pub mode: CacheMode,
    pub origin: Sectors,
    pub block: Sectors,
    /// Sizes of the pool's devices.
    pub pool: Vec<Sectors>,
    /// The model of the pool's devices; without one, each operation takes [`POOL_TIME`].
    pub drive: Option<SsdParameters>,
    pub plan: fn(origin: TargetId, pool: &[TargetId]) -> FaultPlan,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            seed: 1,
            config: Config::default(),
            policy: "lru",
            mode: CacheMode::WriteThrough,
            origin: Sectors::from_mib(64),
            block: Sectors(1),
            pool: vec![Sectors::from_mib(8)],
            drive: None,
            plan: |_, _| FaultPlan::default(),
        }
    }
}

/// A running cache with one volume.
pub struct Rig {
    pub env: Env,
    pub local: Local<SimDriver>,
    pub cache: Cache<Leaf>,
    pub volume: Volume<Leaf>,
    pub devices: Vec<DeviceId>,
    pub origin: TargetId,
    pub disks: Vec<TargetId>,
    pub control: WorldControl,
}

fn disk(name: &str, sectors: Sectors, block: Sectors, time: Nanos) -> DiskSpec {
    let mut spec = DiskSpec::new(Geometry::new(name, sectors, block));
    spec.service = ServiceTime::uniform(ServiceSpan::exactly(time));
    spec
}

/// Runs `test` on one shard in a world by `setup`; returns the world.
pub fn run<F>(setup: Setup, test: impl FnOnce(Rig) -> F + 'static) -> SimHost
where
    F: Future<Output = ()> + 'static,
{
    let mut world = SimWorld::new(setup.seed);
    let origin = disk("origin", setup.origin, setup.block, ORIGIN_TIME);
    let origin = world.add_disk(origin).unwrap();
    let disks: Vec<_> = setup
        .pool
        .iter()
        .enumerate()
        .map(|(i, sectors)| {
            let mut spec = disk(&format!("pool-{i}"), *sectors, Sectors(8), POOL_TIME);
            if let Some(drive) = &setup.drive {
                let model = world.add_model(SsdModel::new(drive, SsdWear::Fresh).unwrap());
                spec.service = ServiceTime::Model { model, unit: 0 };
            }
            world.add_disk(spec).unwrap()
        })
        .collect();
    world.set_plan((setup.plan)(origin, &disks)).unwrap();
    let control = world.control();
    let mut sim = SimHost::new(world);
    let begin = move |local| test(start(local, setup, origin, disks, control));
    let (outcome, _) = run_alone(&mut sim, begin);
    assert_eq!(outcome, RunOutcome::Done);
    sim
}

fn start(
    local: Local<SimDriver>,
    setup: Setup,
    origin: TargetId,
    disks: Vec<TargetId>,
    control: WorldControl,
) -> Rig {
    let policy = policy::registry::build(setup.policy, 0, setup.seed).expect("registered");
    let cache = Cache::new(setup.config, policy, local.env()).unwrap();
    let devices = disks
        .iter()
        .map(|disk| {
            let device = NewPoolDevice::whole(local.disk(*disk).unwrap(), "controller-0");
            cache.add_device(device).unwrap()
        })
        .collect();
    let config = VolumeConfig {
        name: "volume".into(),
        sectors: None,
        mode: setup.mode,
    };
    let volume = cache
        .add_volume(config, BoxDevice::new(local.disk(origin).unwrap()))
        .unwrap();
    Rig {
        env: local.env(),
        local,
        cache,
        volume,
        devices,
        origin,
        disks,
        control,
    }
}

impl Rig {
    pub async fn buf(&self, sectors: u64) -> Buf {
        self.env.pool.get((sectors * SECTOR_BYTES) as usize).await
    }

    /// Reads and checks that each sector holds `byte`.
    pub async fn expect(&self, at: u64, sectors: u64, byte: u8) {
        let (buf, result) = self.volume.read(Lba(at), self.buf(sectors).await).await;
        result.unwrap();
        assert!(buf.len() as u64 == sectors * SECTOR_BYTES);
        let wrong = buf.iter().position(|b| *b != byte);
        assert_eq!(
            wrong,
            None,
            "sectors {at}+{sectors}: {:?} for {byte}",
            wrong.map(|i| buf[i])
        );
    }

    pub async fn read(&self, at: u64, sectors: u64) -> IoResult<Vec<u8>> {
        let (buf, result) = self.volume.read(Lba(at), self.buf(sectors).await).await;
        result.map(|()| buf.to_vec())
    }

    pub async fn write(&self, at: u64, sectors: u64, byte: u8) -> IoResult {
        let mut buf = self.buf(sectors).await;
        buf.fill(byte);
        self.volume.write(Lba(at), buf.share(), Fua::No).await
    }

    /// Measures the time of `work`.
    pub async fn timed<T>(&self, work: impl Future<Output = T>) -> (T, Nanos) {
        let start = self.env.timer.now();
        let output = work.await;
        (output, self.env.timer.now() - start)
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.cache.counters().get(counter)
    }
}

pub fn extent(at: u64, sectors: u64) -> Extent {
    Extent::new(Lba(at), Sectors(sectors))
}
