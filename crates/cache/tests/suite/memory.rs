//! Clients that use all of their memory, and a pool device that never answers.

use block::{
    Boundary, BoxDevice, Device, Fua, Gate, Geometry, Nanos, PAGE_BYTES, SECTOR_BYTES, Sectors,
};
use cache::{Cache, Config, NewPoolDevice, VolumeConfig};
use futures_util::future::join_all;
use sim::{
    DiskSpec, FaultEffect, FaultPlan, FaultRule, OpFilter, ServiceSpan, ServiceTime, SimHost,
    SimWorld, When,
};
use simnode::run_alone;

const MEMORY: usize = 64 << 20;
const LINE: u64 = 64 << 10;

/// `count` reads of `len` bytes, the first at `first` and one each `step` bytes, that
/// all find their lines in the pool, which hangs. Returns the bytes that exceeded the
/// memory, and those that the pool's device keeps.
fn hang(first: u64, len: usize, step: u64, count: u64) -> (usize, usize) {
    let mut world = SimWorld::new(1);
    let mut disk = |name: &str, mib, block, time| {
        let mut spec = DiskSpec::new(Geometry::new(name, Sectors::from_mib(mib), Sectors(block)));
        spec.service = ServiceTime::uniform(ServiceSpan::exactly(time));
        world.add_disk(spec).unwrap()
    };
    let origin = disk("origin", 256, 1, Nanos::from_millis(5));
    let pool = disk("pool", 256, 8, Nanos::from_micros(100));
    let hang = FaultRule::new(
        pool,
        OpFilter::Reads,
        When::Always,
        FaultEffect::Stick(None),
    );
    let rules = vec![hang];
    let plan = FaultPlan::of(rules);
    world.set_plan(plan).unwrap();
    let mut sim = SimHost::new(world).pool_bytes(MEMORY);
    let (outcome, over) = run_alone(&mut sim, move |local| async move {
        let env = local.env();
        let config = Config {
            sequential_bytes: None,
            ..Config::default()
        };
        let policy = policy::registry::build("lru", 0, 1).unwrap();
        let cache = Cache::new(config, policy, env.clone()).unwrap();
        let device = NewPoolDevice::whole(local.disk(pool).unwrap(), "c");
        cache.add_device(device).unwrap();
        let volume = VolumeConfig::whole("v");
        let origin = BoxDevice::new(local.disk(origin).unwrap());
        let volume = cache.add_volume(volume, origin).unwrap();
        let gate = Gate::new(volume.clone(), env.clone());
        let end = first + count * step;
        for line in 0..end.min(volume.geometry().sectors.bytes()) / LINE {
            let mut buf = env.pool.get(LINE as usize).await;
            buf.fill(line as u8);
            gate.write(line * LINE, buf.share(), Fua::No).await.unwrap();
            cache.settle().await;
        }
        let reads = (0..count).map(|i| gate.read(first + i * step, len));
        let done = env
            .timer
            .timeout(Nanos::from_secs(3600), join_all(reads))
            .await;
        let done = done.expect("after an hour clients still wait");
        for (i, data) in done.into_iter().enumerate() {
            let (data, at) = (data.unwrap(), first + i as u64 * step);
            for (n, byte) in data.iter().enumerate() {
                assert_eq!(*byte, ((at + n as u64) / LINE) as u8);
            }
        }
        assert_eq!(env.pool.beside_bytes(), 0, "given back");
        let kept = env.pool.total_bytes() - env.pool.free_bytes();
        (env.pool.over_bytes_max(), kept)
    });
    assert_eq!(outcome, sim::RunOutcome::Done);
    over.unwrap()
}

/// The charge of nbd for a read: its covering pages, rounded up.
fn charge(first: u64, len: usize) -> usize {
    let pages = (first % PAGE_BYTES as u64) as usize + len;
    pages.div_ceil(PAGE_BYTES).next_power_of_two() * PAGE_BYTES
}

#[test]
fn all_that_clients_may_use_comes_back_from_a_pool_that_hangs() {
    let page = PAGE_BYTES as u64;
    // Lines, parts of two lines, several lines, and reads off the blocks and off the
    // sectors.
    for (first, len, step) in [
        (0, LINE as usize, LINE),
        (8 * page, LINE as usize, 2 * LINE),
        (11 * page, LINE as usize, 2 * LINE),
        (11 * page, 4 * LINE as usize, 8 * LINE),
        (11 * page, 1 << 20, 18 * LINE),
        (SECTOR_BYTES, 12 << 10, 16 << 10),
        (SECTOR_BYTES, 60 << 10, LINE),
        (SECTOR_BYTES, 60 << 10, 2 * LINE),
        (11 * page + 700, 60 << 10, 2 * LINE),
    ] {
        let most = (MEMORY / 2 / charge(first, len)) as u64;
        let count = most.min(((200 << 20) - first) / step);
        let (over, kept) = hang(first, len, step, count);
        let name = format!("{count} reads of {len} bytes from {first}: {over} over, {kept} kept");
        assert!(kept >= (MEMORY / 2).min(count as usize * len), "{name}");
        // Off the blocks, the requested part is a buffer of its own.
        let on_blocks = first % page == 0;
        assert!(over <= if on_blocks { 0 } else { kept }, "{name}");
    }
}
