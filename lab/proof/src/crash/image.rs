//! Images of pools that bits are flipped in, and the daemons that make and serve
//! them.
//!
//! An [`CrashImage`] is a pool with its witness and origin, as left by a daemon that ended in order or
//! was killed. The pool has two checkpoints of its map, a log that has come round, and lines that
//! the origin has overtaken. So a lost bit or record shows.

use crate::model::Space;
use crate::stamp::{self, Value};
use block::{
    Boundary, BoxDevice, Device, Fua, Gate, Geometry, IoErrorKind, IoResult, Lba, Nanos,
    SECTOR_BYTES, Sectors, TargetId,
};
use cache::{Cache, CacheMode, Config, Counter, Durability, NewPoolDevice, Volume, VolumeConfig};
use layout::{BLOCK_BYTES, Bitmap, LayoutPlan, PoolSuperblock};
use shard::{Local, ShardDisk};
use sim::{DiskSpec, ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng, SimWorld};
use simnode::run_alone;
use std::rc::Rc;

const SPACE: Space = Space {
    windows: 3,
    each: 256,
};
pub(super) const LINE_BYTES: u32 = 16 << 10;
const POOL: Sectors = Sectors(8 * 1024);
const WITNESS: Sectors = Sectors(64 * 8);
/// Sectors that are written, and compared, at once.
const PIECE: u64 = 32;
const CHUNK: usize = 64 << 10;
const COMMIT_PERIOD: Nanos = Nanos::from_micros(500);
/// Rounds of changes in which the log comes round.
const ROUNDS_MAX: u32 = 100;

/// The outcome of one flip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlipVerdict {
    /// The pool was refused, with this error.
    Refused(String),
    /// The damage was counted, and all that was read was right.
    Counted,
    /// All that was read was right.
    Harmless,
    /// Bytes that were read were wrong.
    Wrong(String),
}

/// The bytes of a pool's device, of its witness and of an origin.
#[derive(Clone)]
pub struct CrashImage {
    pub(super) pool: Vec<u8>,
    witness: Vec<u8>,
    /// The bytes of each window, one after the other.
    origin: Vec<u8>,
    superblock: PoolSuperblock,
    pub(super) plan: LayoutPlan,
}

impl CrashImage {
    /// The image of `seed`: an even seed gives a pool that was closed in order, an odd one a pool
    /// of a killed daemon.
    pub fn new(seed: u64) -> CrashImage {
        let mut rng = SimRng::fork(seed, 21);
        let made = life(seed, None, move |stage| Box::pin(make(stage, rng.bits())));
        let (images, ()) = made.expect("a sound pool");
        let superblock = PoolSuperblock::decode(&images[0], &[]).expect("a pool that was opened");
        let [pool, witness, origin] = images;
        CrashImage {
            plan: superblock.plan().expect("a member"),
            pool,
            witness,
            origin,
            superblock,
        }
    }

    /// Clears all bits of the bitmap under a sound checksum, as no flip can. Lines that the origin
    /// has overtaken are then trusted.
    pub fn forge(&mut self) {
        for block in 0..self.plan.bitmap.blocks {
            let at = (self.plan.bitmap.start + block) as usize * BLOCK_BYTES;
            let bytes = &mut self.pool[at..at + BLOCK_BYTES];
            if let Ok(bitmap) = Bitmap::decode(bytes, self.superblock.device) {
                let forged = Bitmap {
                    regions: Bitmap::none().regions,
                    ..bitmap
                };
                forged.encode(self.superblock.device, bytes);
            }
        }
    }

    pub(super) fn block(&self, block: u64) -> &[u8] {
        &self.pool[block as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// Serves the image twice and reads all of it. A panic is wrong too.
    pub fn examine(&self, seed: u64) -> FlipVerdict {
        let run = || life(seed, Some(self), |stage| Box::pin(serve(stage)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        match outcome {
            Err(_) => FlipVerdict::Wrong("a panic".into()),
            Ok(Err(what)) => FlipVerdict::Wrong(what),
            Ok(Ok((_, verdict))) => verdict,
        }
    }
}

type Leaf = ShardDisk<SimDriver>;

/// The disks of a life, with the world of that life.
struct ImageStage {
    local: Local<SimDriver>,
    pool: TargetId,
    witness: TargetId,
    origin: TargetId,
    seed: u64,
}

struct OpenPool {
    cache: Cache<Leaf>,
    gate: Gate<Volume<Leaf>>,
}

type Work<T> = std::pin::Pin<Box<dyn Future<Output = T>>>;

/// Runs `work` on the disks of `image`, or on empty ones. Returns the content of pool, witness and
/// origin afterwards, and the result of `work`.
fn life<T: 'static>(
    seed: u64,
    image: Option<&CrashImage>,
    work: impl FnOnce(ImageStage) -> Work<T> + 'static,
) -> Result<([Vec<u8>; 3], T), String> {
    let mut world = SimWorld::new(seed);
    let mut add = |name: &str, sectors, micros| {
        let mut spec = DiskSpec::new(Geometry::new(name, sectors, Sectors(8)));
        spec.service = ServiceTime::uniform(ServiceSpan {
            min: Nanos::from_micros(1),
            max: Nanos::from_micros(micros),
        });
        world.add_disk(spec).expect("a sound disk")
    };
    let pool = add("pool", POOL, 5);
    let witness = add("witness", WITNESS, 5);
    let origin = add("origin", SPACE.sectors(), 20);
    let mut sim = SimHost::new(world);
    let filling: Option<Rc<CrashImage>> = image.map(|image| Rc::new(image.clone()));
    let (outcome, value) = run_alone(&mut sim, move |local| async move {
        let stage = ImageStage {
            local,
            pool,
            witness,
            origin,
            seed,
        };
        if let Some(image) = &filling {
            stage.fill(image).await;
        }
        work(stage).await
    });
    let value = value.ok_or_else(|| format!("the daemon did not end: {outcome:?}"))?;
    drop(sim.driver());
    let read = |target, at, bytes: &mut [u8]| sim.world().peek(target, at, bytes);
    let mut images = [
        vec![0; POOL.bytes() as usize],
        vec![0; WITNESS.bytes() as usize],
        vec![0; (SPACE.windows * SPACE.each * SECTOR_BYTES) as usize],
    ];
    read(pool, Lba(0), &mut images[0]);
    read(witness, Lba(0), &mut images[1]);
    let windows = images[2].chunks_exact_mut((SPACE.each * SECTOR_BYTES) as usize);
    for (number, bytes) in (0..).zip(windows) {
        read(origin, Lba(SPACE.window(number).start), bytes);
    }
    Ok((images, value))
}

impl ImageStage {
    fn leaf(&self, target: TargetId) -> Leaf {
        self.local.disk(target).expect("a disk")
    }

    async fn write(&self, target: TargetId, at: Lba, bytes: &[u8]) {
        let leaf = self.leaf(target);
        for (chunk, at) in bytes.chunks(CHUNK).zip((at.0..).step_by(CHUNK / 512)) {
            let mut buf = self.local.env().pool.get(chunk.len()).await;
            buf.copy_from_slice(chunk);
            let written = leaf.write(Lba(at), buf.share(), Fua::No).await;
            written.expect("disks have no faults here");
        }
    }

    async fn fill(&self, image: &CrashImage) {
        self.write(self.pool, Lba(0), &image.pool).await;
        self.write(self.witness, Lba(0), &image.witness).await;
        let windows = image.origin.chunks((SPACE.each * SECTOR_BYTES) as usize);
        for (number, bytes) in (0..).zip(windows) {
            let at = Lba(SPACE.window(number).start);
            self.write(self.origin, at, bytes).await;
        }
    }

    async fn open(&self, mode: CacheMode) -> IoResult<OpenPool> {
        let config = Config {
            line_bytes: LINE_BYTES,
            sequential_bytes: None,
            commit_period: COMMIT_PERIOD,
            mark_idle_periods: 1,
            ..Config::default()
        };
        let mut names = SimRng::fork(self.seed, 23);
        let durability = Durability {
            label: "pool".into(),
            host: "laboratory".into(),
            witness: Some(BoxDevice::new(self.leaf(self.witness))),
            uuids: Box::new(move || u128::from(names.bits()) << 64 | u128::from(names.bits())),
            overwrite: false,
            cold: false,
        };
        let policy = policy::registry::build("lru", 0, self.seed).expect("registered");
        let env = self.local.env();
        let device = NewPoolDevice::whole(self.leaf(self.pool), "controller".to_owned());
        let (cache, _) = Cache::open(config, policy, env.clone(), durability, vec![device]).await?;
        let volume = VolumeConfig {
            name: "volume".into(),
            sectors: None,
            mode,
        };
        let volume = cache.add_volume(volume, BoxDevice::new(self.leaf(self.origin)))?;
        let gate = Gate::new(volume, env.clone());
        Ok(OpenPool { cache, gate })
    }

    async fn pause(&self, periods: u64) {
        let timer = &self.local.env().timer;
        timer.sleep(Nanos(COMMIT_PERIOD.0 * periods)).await;
    }
}

impl OpenPool {
    async fn put(&self, stage: &ImageStage, start: u64, version: Value) -> IoResult {
        let mut buf = stage
            .local
            .env()
            .pool
            .get((PIECE * SECTOR_BYTES) as usize)
            .await;
        stamp::stamp(&mut buf, start, version);
        self.gate
            .write(start * SECTOR_BYTES, buf.share(), Fua::No)
            .await
    }

    async fn close(self) {
        self.gate.device().close().await;
        self.cache.close().await;
    }
}

/// The first sector of each piece of each window.
fn pieces() -> impl Iterator<Item = u64> {
    let windows = (0..SPACE.windows).map(|number| SPACE.window(number));
    windows.flat_map(|window| window.step_by(PIECE as usize))
}

/// Fills a pool with lines that agree with the origin and lines that do not.
async fn make(stage: ImageStage, seed: u64) {
    const SOUND: &str = "disks have no faults here";
    let mut rng = SimRng::fork(seed, 24);
    let open = stage.open(CacheMode::WriteThrough).await.expect(SOUND);
    let mut version = 1;
    let bytes = (PIECE * SECTOR_BYTES) as usize;
    let met = |counter, times| open.cache.counters().get(counter) >= times;
    for round in 0.. {
        // Two checkpoints, one in each place, and a log that has come round.
        if met(Counter::Checkpoints, 2) && met(Counter::LogWraps, 1) {
            break;
        }
        assert!(round < ROUNDS_MAX, "the log takes nothing");
        let share = if round == 0 { 1.0 } else { 0.3 };
        for start in pieces() {
            if rng.chance(share) {
                version += 1;
                open.put(&stage, start, version).await.expect(SOUND);
            }
            let read = open.gate.read(start * SECTOR_BYTES, bytes).await;
            read.expect(SOUND);
        }
        // The log takes the lines, and the bits are cleared.
        stage.pause(5).await;
    }
    open.gate.device().set_mode(CacheMode::WriteAround);
    let mut overtake = async |share| {
        for start in pieces() {
            if rng.chance(share) {
                version += 1;
                open.put(&stage, start, version).await.expect(SOUND);
            }
        }
    };
    overtake(0.2).await;
    stage.pause(5).await;
    overtake(0.2).await;
    if stage.seed.is_multiple_of(2) {
        open.close().await;
    }
}

/// Opens, reads, writes, ends, and all of that once more.
async fn serve(stage: ImageStage) -> FlipVerdict {
    let mut counted = false;
    for round in 0..2 {
        let open = match stage.open(CacheMode::WriteThrough).await {
            Ok(open) => open,
            Err(error) if round == 0 && error.kind() != IoErrorKind::Media => {
                return FlipVerdict::Refused(error.to_string());
            }
            Err(error) => return FlipVerdict::Wrong(format!("it cannot be opened: {error}")),
        };
        open.cache.warmed().await;
        for version in 0..2 {
            if let Err(what) = compare(&stage, &open).await {
                return FlipVerdict::Wrong(format!("by daemon {round}: {what}"));
            }
            if round + version == 0 {
                for (start, version) in pieces().step_by(3).zip(1000..) {
                    if let Err(error) = open.put(&stage, start, version).await {
                        return FlipVerdict::Wrong(format!("a write failed: {error}"));
                    }
                }
            }
        }
        let count = |counter| open.cache.counters().get(counter) > 0;
        counted |= DAMAGE.iter().any(|counter| count(*counter));
        open.close().await;
    }
    match counted {
        true => FlipVerdict::Counted,
        false => FlipVerdict::Harmless,
    }
}

const DAMAGE: [Counter; 4] = [
    Counter::BlocksCorrupt,
    Counter::MapsDamaged,
    Counter::MapPagesDamaged,
    Counter::HintsDamaged,
];

/// All that is served is the content of the origin.
async fn compare(stage: &ImageStage, open: &OpenPool) -> Result<(), String> {
    let origin = stage.leaf(stage.origin);
    let bytes = (PIECE * SECTOR_BYTES) as usize;
    for start in pieces() {
        let served = open.gate.read(start * SECTOR_BYTES, bytes).await;
        let served = served.map_err(|error| format!("a read failed: {error}"))?;
        let buf = stage.local.env().pool.get(bytes).await;
        let (held, read) = origin.read(Lba(start), buf).await;
        read.expect("disks have no faults here");
        if served[..] != held[..] {
            return Err(format!("what was served near sector {start} was wrong"));
        }
    }
    Ok(())
}
