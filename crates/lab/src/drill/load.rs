//! What clients do during a drill, and whether every byte is as they left it.
//!
//! Each worker has blocks of its own, so that what a block must hold is known at
//! any time. A write that failed may have happened or not.

use block::{BoxDevice, Device, Env, Fua, IoResult, Lba, Nanos, SECTOR_BYTES};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The unit of the load.
const BLOCK_BYTES: usize = 4096;
/// Blocks of one transfer when all content is written or read.
const RUN_BLOCKS: u64 = 64;
/// Requests at one time on each volume.
const WORKERS: u64 = 4;
/// What a worker rests between requests.
const REST: Nanos = Nanos::from_millis(1);
/// The width of a point of the time line.
pub const POINT: Nanos = Nanos::from_millis(250);

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub longest: Nanos,
    pub errors: u64,
    /// What was wrong first.
    pub error: Option<String>,
    pub wrong_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    /// Reads and writes that ended in each point of time since the load began.
    pub line: Vec<(u32, u32)>,
}

/// What a block holds: the version last acknowledged, and one that may be.
#[derive(Clone, Copy, Default)]
struct Held {
    version: u32,
    maybe: Option<u32>,
}

/// A volume, and what is known of it.
struct Volume {
    number: u64,
    device: BoxDevice,
    blocks: u64,
    held: RefCell<Vec<Held>>,
}

/// The load of one drill.
pub struct Load {
    env: Env,
    volumes: Vec<Rc<Volume>>,
    pub seen: RefCell<Seen>,
    began: Cell<Nanos>,
    running: Cell<bool>,
    workers: Cell<u64>,
}

fn content(volume: u64, block: u64, version: u32, out: &mut [u8]) {
    let seed = (volume << 60) ^ (block << 24) ^ u64::from(version);
    fastrand::Rng::with_seed(seed).fill(out);
}

impl Volume {
    /// Bytes of `data`, read from `block`, that are not what they must be.
    fn wrong(&self, block: u64, data: &[u8]) -> u64 {
        let held = self.held.borrow()[block as usize];
        let mut expected = [0; BLOCK_BYTES];
        let versions = [Some(held.version), held.maybe];
        let wrong = versions.into_iter().flatten().map(|version| {
            content(self.number, block, version, &mut expected);
            let pairs = data.iter().zip(&expected);
            pairs.filter(|(is, ought)| is != ought).count() as u64
        });
        wrong.min().unwrap_or(0)
    }
}

impl Load {
    pub fn new(env: Env, devices: Vec<BoxDevice>) -> Rc<Load> {
        let volume = |(number, device): (usize, BoxDevice)| {
            let blocks = device.geometry().sectors.bytes() / BLOCK_BYTES as u64;
            Rc::new(Volume {
                number: number as u64,
                device,
                blocks,
                held: RefCell::new(vec![Held::default(); blocks as usize]),
            })
        };
        Rc::new(Load {
            env,
            volumes: devices.into_iter().enumerate().map(volume).collect(),
            seen: RefCell::default(),
            began: Cell::new(Nanos::ZERO),
            running: Cell::new(false),
            workers: Cell::new(0),
        })
    }

    /// Writes all content for the first time.
    pub async fn fill(&self) -> IoResult {
        for volume in &self.volumes {
            for first in (0..volume.blocks).step_by(RUN_BLOCKS as usize) {
                let blocks = RUN_BLOCKS.min(volume.blocks - first);
                let mut buf = self.env.pool.get(blocks as usize * BLOCK_BYTES).await;
                for (block, out) in (first..).zip(buf.chunks_mut(BLOCK_BYTES)) {
                    content(volume.number, block, 0, out);
                }
                let at = Lba(first * BLOCK_BYTES as u64 / SECTOR_BYTES);
                volume.device.write(at, buf.share(), Fua::No).await?;
            }
            volume.device.flush().await?;
        }
        Ok(())
    }

    /// Reads all content and compares it.
    pub async fn verify(&self) {
        for volume in &self.volumes {
            for first in (0..volume.blocks).step_by(RUN_BLOCKS as usize) {
                let blocks = RUN_BLOCKS.min(volume.blocks - first);
                let buf = self.env.pool.get(blocks as usize * BLOCK_BYTES).await;
                let at = Lba(first * BLOCK_BYTES as u64 / SECTOR_BYTES);
                let began = self.env.timer.now();
                let (buf, result) = volume.device.read(at, buf).await;
                if self.ended(began, result) {
                    for (block, data) in (first..).zip(buf.chunks(BLOCK_BYTES)) {
                        self.compare(volume, block, data);
                    }
                }
            }
        }
    }

    /// Notes what is wrong of a block that was read.
    fn compare(&self, volume: &Volume, block: u64, data: &[u8]) {
        let wrong = volume.wrong(block, data);
        if wrong > 0 {
            let mut seen = self.seen.borrow_mut();
            seen.wrong_bytes += wrong;
            let what = || {
                format!(
                    "{wrong} bytes of block {block} of volume {} are wrong",
                    volume.number
                )
            };
            seen.error.get_or_insert_with(what);
        }
    }

    /// Notes the end of a request; whether it succeeded.
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
    pub fn start(self: &Rc<Load>) {
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

    /// Ends it, once every request has been answered.
    pub async fn stop(&self) {
        self.running.set(false);
        while self.workers.get() > 0 {
            self.env.timer.sleep(REST).await;
        }
    }

    async fn work(&self, volume: &Volume, worker: u64) {
        let mut rng = fastrand::Rng::with_seed(worker);
        while self.running.get() {
            let block = rng.u64(0..volume.blocks / WORKERS) * WORKERS + worker;
            let at = Lba(block * BLOCK_BYTES as u64 / SECTOR_BYTES);
            let mut buf = self.env.pool.get(BLOCK_BYTES).await;
            let is_read = rng.bool();
            let began = self.env.timer.now();
            if is_read {
                let (buf, result) = volume.device.read(at, buf).await;
                if self.ended(began, result) {
                    self.compare(volume, block, &buf);
                    self.point(true);
                }
            } else {
                let held = volume.held.borrow()[block as usize];
                let version = held.version.max(held.maybe.unwrap_or(0)) + 1;
                content(volume.number, block, version, &mut buf);
                let result = volume.device.write(at, buf.share(), Fua::No).await;
                let written = self.ended(began, result);
                volume.held.borrow_mut()[block as usize] = match written {
                    true => Held {
                        version,
                        maybe: None,
                    },
                    false => Held {
                        maybe: Some(version),
                        ..held
                    },
                };
                if written {
                    self.point(false);
                }
            }
            self.env.timer.sleep(REST).await;
        }
    }
}
