//! The clients' work during a drill, and the check that every byte is as they left it.
//!
//! Each worker has blocks of its own, so that the expected content of a block is known at any time.
//! A write that failed may have happened or not.
//!
//! Invariant: while reads are narrowed, none is asked for that an origin would have to answer.

use block::{BoxDevice, Device, Env, Fua, IoResult, Lba, Nanos, SECTOR_BYTES};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The unit of the load.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of one transfer when all content is written or read.
const RUN_BLOCKS: u64 = 64;
/// Requests at one time on each volume.
const WORKERS: u64 = 4;
/// Interval of checks for the end of the workers.
const LOOK: Nanos = Nanos::from_millis(1);
/// The width of a point of the time line.
pub const POINT: Nanos = Nanos::from_millis(250);

/// Habits of clients.
#[derive(Clone, Copy)]
pub struct Habit {
    /// Pause of a worker between requests.
    pub rest: Nanos,
    /// One of so many requests is a flush; none is, if 0.
    pub flush_every: u32,
    /// Blocks at the beginning of a volume that are only read once filled.
    pub quiet_blocks: u64,
}

impl Default for Habit {
    fn default() -> Habit {
        Habit {
            rest: Nanos::from_millis(1),
            flush_every: 0,
            quiet_blocks: 0,
        }
    }
}

/// Blocks that clients may read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ReadScope {
    All,
    /// Blocks that are only read.
    Quiet,
    /// Blocks that are only read, and those written since.
    Since(Nanos),
}

/// Observations of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadSeen {
    pub longest: Nanos,
    pub errors: u64,
    /// First error seen.
    pub error: Option<String>,
    pub wrong_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    /// Reads and writes that ended in each point of time since the load began.
    pub line: Vec<(u32, u32)>,
}

impl LoadSeen {
    /// Counts an error unless `is_so`.
    pub fn expect(&mut self, is_so: bool, what: &str) {
        if !is_so {
            self.errors += 1;
            self.error.get_or_insert_with(|| what.to_owned());
        }
    }
}

/// Content of a block: the version last acknowledged, and one that may be there.
#[derive(Clone, Copy, Default)]
struct BlockVersions {
    version: u32,
    maybe: Option<u32>,
    /// Time at which that version was acknowledged.
    written: Nanos,
}

impl BlockVersions {
    /// A version was written, or may have been.
    fn write(&mut self, version: u32, acknowledged: bool, now: Nanos) {
        *self = match acknowledged {
            true => BlockVersions {
                version,
                maybe: None,
                written: now,
            },
            false => BlockVersions {
                maybe: Some(version),
                ..*self
            },
        };
    }
}

/// A volume, and its known content.
struct DrillVolume {
    number: u64,
    /// The device while the volume is served.
    device: RefCell<Option<BoxDevice>>,
    blocks: u64,
    held: RefCell<Vec<BlockVersions>>,
}

/// The load of one drill.
pub struct DrillLoad {
    env: Env,
    habit: Habit,
    volumes: Vec<Rc<DrillVolume>>,
    reads: Cell<ReadScope>,
    pub seen: RefCell<LoadSeen>,
    began: Cell<Nanos>,
    running: Cell<bool>,
    workers: Cell<u64>,
}

fn content(volume: u64, block: u64, version: u32, out: &mut [u8]) {
    let seed = (volume << 60) ^ (block << 24) ^ u64::from(version);
    fastrand::Rng::with_seed(seed).fill(out);
}

impl DrillVolume {
    fn device(&self) -> BoxDevice {
        let device = self.device.borrow();
        device.clone().expect("it is served")
    }

    /// The content of the blocks from `first` on, each a version later than `later` says.
    fn fill(&self, first: u64, later: u32, buf: &mut [u8]) {
        let held = self.held.borrow();
        for (block, out) in (first..).zip(buf.chunks_mut(BLOCK_BYTES)) {
            content(
                self.number,
                block,
                held[block as usize].version + later,
                out,
            );
        }
    }

    /// Counts the bytes of `data`, read from `block`, that differ from the expected content.
    fn wrong(&self, block: u64, data: &[u8]) -> u64 {
        let held = self.held.borrow()[block as usize];
        let mut expected = [0; BLOCK_BYTES];
        let versions = [Some(held.version), held.maybe];
        let wrong = versions.into_iter().flatten().map(|version| {
            content(self.number, block, version, &mut expected);
            if *data == expected[..data.len()] {
                return 0;
            }
            let pairs = data.iter().zip(&expected);
            pairs.filter(|(is, ought)| is != ought).count() as u64
        });
        wrong.min().unwrap_or(0)
    }
}

impl DrillLoad {
    pub fn new(env: Env, habit: Habit, devices: Vec<BoxDevice>) -> Rc<DrillLoad> {
        let volume = |(number, device): (usize, BoxDevice)| {
            let blocks = device.geometry().sectors.bytes() / BLOCK_BYTES as u64;
            Rc::new(DrillVolume {
                number: number as u64,
                device: RefCell::new(Some(device)),
                blocks,
                held: RefCell::new(vec![BlockVersions::default(); blocks as usize]),
            })
        };
        Rc::new(DrillLoad {
            env,
            habit,
            reads: Cell::new(ReadScope::All),
            volumes: devices.into_iter().enumerate().map(volume).collect(),
            seen: RefCell::default(),
            began: Cell::new(Nanos::ZERO),
            running: Cell::new(false),
            workers: Cell::new(0),
        })
    }

    /// Nothing is served any more.
    pub fn detach(&self) {
        self.volumes
            .iter()
            .for_each(|volume| *volume.device.borrow_mut() = None);
    }

    /// The same volumes are served again, by others.
    pub fn attach(&self, devices: Vec<BoxDevice>) {
        for (volume, device) in self.volumes.iter().zip(devices) {
            *volume.device.borrow_mut() = Some(device);
        }
    }

    /// Clients read no more than `reads` from their next request on.
    pub fn narrow(&self, reads: ReadScope) {
        self.reads.set(reads);
    }

    fn may_read(&self, volume: &DrillVolume, block: u64) -> bool {
        let quiet = block < self.habit.quiet_blocks;
        match self.reads.get() {
            ReadScope::All => true,
            ReadScope::Quiet => quiet,
            ReadScope::Since(at) => quiet || volume.held.borrow()[block as usize].written >= at,
        }
    }

    /// Writes all content for the first time.
    pub async fn fill(&self) -> IoResult {
        for volume in &self.volumes {
            for first in (0..volume.blocks).step_by(RUN_BLOCKS as usize) {
                let blocks = RUN_BLOCKS.min(volume.blocks - first);
                let mut buf = self.env.pool.get(blocks as usize * BLOCK_BYTES).await;
                volume.fill(first, 0, &mut buf);
                let at = Lba(first * BLOCK_BYTES as u64 / SECTOR_BYTES);
                volume.device().write(at, buf.share(), Fua::No).await?;
            }
            volume.device().flush().await?;
        }
        Ok(())
    }

    /// A client comes, writes the last blocks of each volume, flushes and leaves.
    pub async fn visit(&self) {
        for volume in &self.volumes {
            let first = volume.blocks.saturating_sub(RUN_BLOCKS);
            let mut buf = self
                .env
                .pool
                .get((volume.blocks - first) as usize * BLOCK_BYTES)
                .await;
            volume.fill(first, 1, &mut buf);
            let at = Lba(first * BLOCK_BYTES as u64 / SECTOR_BYTES);
            let began = self.env.timer.now();
            let result = volume.device().write(at, buf.share(), Fua::No).await;
            let written = self.ended(began, result);
            for held in &mut volume.held.borrow_mut()[first as usize..] {
                held.write(held.version + 1, written, self.env.timer.now());
            }
        }
        self.flush().await;
    }

    /// Flushes every volume.
    pub async fn flush(&self) {
        for volume in &self.volumes {
            let began = self.env.timer.now();
            let result = volume.device().flush().await;
            self.ended(began, result);
        }
    }

    /// Reads all content that may be read, and compares the bytes.
    pub async fn verify(&self) {
        for volume in &self.volumes {
            for first in (0..volume.blocks).step_by(RUN_BLOCKS as usize) {
                let blocks = RUN_BLOCKS.min(volume.blocks - first);
                if (first..first + blocks).any(|block| !self.may_read(volume, block)) {
                    continue;
                }
                let buf = self.env.pool.get(blocks as usize * BLOCK_BYTES).await;
                let at = Lba(first * BLOCK_BYTES as u64 / SECTOR_BYTES);
                let began = self.env.timer.now();
                let (buf, result) = volume.device().read(at, buf).await;
                if self.ended(began, result) {
                    for (block, data) in (first..).zip(buf.chunks(BLOCK_BYTES)) {
                        self.compare(volume, block, data, "volume");
                    }
                }
            }
        }
    }

    /// Compares the content of each volume's origin by itself.
    pub fn verify_origins(&self, images: &[Vec<u8>]) {
        for (volume, image) in self.volumes.iter().zip(images) {
            let blocks = image.chunks_exact(BLOCK_BYTES).take(volume.blocks as usize);
            let missing = volume.blocks - blocks.len() as u64;
            self.seen.borrow_mut().wrong_bytes += missing * BLOCK_BYTES as u64;
            for (block, data) in (0..).zip(blocks) {
                self.compare(volume, block, data, "the origin of volume");
            }
        }
    }

    /// Notes the wrong bytes of a block that was read.
    fn compare(&self, volume: &DrillVolume, block: u64, data: &[u8], whose: &str) {
        let wrong = volume.wrong(block, data);
        if wrong > 0 {
            let mut seen = self.seen.borrow_mut();
            seen.wrong_bytes += wrong;
            let what = || {
                format!(
                    "{wrong} bytes of block {block} of {whose} {} are wrong",
                    volume.number
                )
            };
            seen.error.get_or_insert_with(what);
        }
    }

    /// Notes the end of a request; returns true if the request succeeded.
    fn ended(&self, began: Nanos, result: IoResult) -> bool {
        let took = self.env.timer.now() - began;
        let mut seen = self.seen.borrow_mut();
        seen.longest = seen.longest.max(took);
        if let Err(error) = result {
            seen.errors += 1;
            seen.error.get_or_insert(error.to_string());
            return false;
        }
        true
    }

    fn point(&self, is_read: bool) {
        let mut seen = self.seen.borrow_mut();
        let at = ((self.env.timer.now() - self.began.get()).0 / POINT.0) as usize;
        if seen.line.len() <= at {
            seen.line.resize(at + 1, (0, 0));
        }
        if is_read {
            seen.reads += 1;
            seen.line[at].0 += 1;
        } else {
            seen.writes += 1;
            seen.line[at].1 += 1;
        }
    }

    /// Begins to read and write.
    pub fn start(self: &Rc<DrillLoad>) {
        self.running.set(true);
        self.began.set(self.env.timer.now());
        for volume in &self.volumes {
            for worker in 0..WORKERS {
                self.workers.set(self.workers.get() + 1);
                let (load, volume) = (self.clone(), volume.clone());
                let spawn = self.env.spawn.clone();
                spawn.spawn(async move {
                    load.work(&volume, worker).await;
                    load.workers.set(load.workers.get() - 1);
                });
            }
        }
    }

    /// Ends the load, once every request has been answered.
    pub async fn stop(&self) {
        self.running.set(false);
        while self.workers.get() > 0 {
            self.env.timer.sleep(LOOK).await;
        }
    }

    async fn work(&self, volume: &DrillVolume, worker: u64) {
        let (device, habit) = (volume.device(), self.habit);
        let mut rng = fastrand::Rng::with_seed(worker);
        while self.running.get() {
            if habit.flush_every > 0 && rng.u32(0..habit.flush_every) == 0 {
                let began = self.env.timer.now();
                let result = device.flush().await;
                self.ended(began, result);
            }
            let block = rng.u64(0..volume.blocks / WORKERS) * WORKERS + worker;
            let at = Lba(block * BLOCK_BYTES as u64 / SECTOR_BYTES);
            let mut buf = self.env.pool.get(BLOCK_BYTES).await;
            let is_read = rng.bool() && self.may_read(volume, block);
            let began = self.env.timer.now();
            if is_read || block < habit.quiet_blocks {
                let (buf, result) = device.read(at, buf).await;
                if self.ended(began, result) {
                    self.compare(volume, block, &buf, "volume");
                    self.point(true);
                }
            } else {
                let held = volume.held.borrow()[block as usize];
                let version = held.version.max(held.maybe.unwrap_or(0)) + 1;
                content(volume.number, block, version, &mut buf);
                let result = device.write(at, buf.share(), Fua::No).await;
                let written = self.ended(began, result);
                let now = self.env.timer.now();
                volume.held.borrow_mut()[block as usize].write(version, written, now);
                if written {
                    self.point(false);
                }
            }
            self.env.timer.sleep(habit.rest).await;
        }
    }
}
