//! Speed of the world: raw operations at depth 32, driven without an
//! executor, on disks that keep no contents: eight of fixed service time, then
//! sixteen modelled hard disks.
//!
//! Run: `cargo run --release -p sim --example world_speed [operations]`

use block::{
    Buf, Completion, Driver, DriverOp, Fua, Geometry, IoResult, Lba, Nanos, Payload, Sectors,
};
use block::{TargetId, Token};
use drives::Hdd;
use drives::catalogue::hdd::SAS15K;
use sim::{DiskSpec, Keep, ServiceTime, SimDriver, SimHost, SimRng, SimWorld};
use std::time::Instant;

const DEPTH: u64 = 32;
const ROUNDS: usize = 5;

struct Load {
    driver: SimDriver,
    disks: Vec<TargetId>,
    rng: SimRng,
    blocks: u64,
}

impl Load {
    /// One read, or one time in four a write, of a random 4 KiB.
    fn submit(&mut self, slot: u64, buf: Buf) {
        let disk = self.disks[(slot / DEPTH) as usize];
        let at = Lba(self.rng.below(self.blocks) * 8);
        let op = match self.rng.below(4) {
            0 => DriverOp::Write(at, buf.share(), Fua::No),
            _ => DriverOp::Read(at, buf),
        };
        self.driver.submit(Token(slot), disk, op);
    }

    fn buf(&self) -> Buf {
        let buf = self.driver.pool().try_get(4096);
        buf.expect("a pool larger than the queue")
    }

    fn run(&mut self, operations: u64) {
        let mut done: Vec<Completion> = Vec::new();
        for slot in 0..self.disks.len() as u64 * DEPTH {
            let buf = self.buf();
            self.submit(slot, buf);
        }
        let mut left = operations;
        while left > 0 {
            self.driver.park(Nanos::MAX, &mut done);
            for completion in done.drain(..) {
                left = left.saturating_sub(1);
                completion.result.expect("no fault is planned");
                let buf = match completion.payload {
                    Payload::Buf(buf) => buf,
                    _ => self.buf(),
                };
                self.submit(completion.token.0, buf);
            }
        }
    }
}

fn disk_of(sectors: Sectors) -> DiskSpec {
    let mut spec = DiskSpec::new(Geometry::new("disk", sectors, Sectors(8)));
    spec.keep = Keep::Nothing;
    spec
}

fn fixed(world: &mut SimWorld) -> IoResult<Vec<TargetId>> {
    let spec = disk_of(Sectors::from_mib(1 << 20));
    (0..8).map(|_| world.add_disk(spec.clone())).collect()
}

fn hard_disks(world: &mut SimWorld) -> IoResult<Vec<TargetId>> {
    let add = |index| {
        let model = world.add_model(Hdd::new(&SAS15K, f64::from(index) / 16.0)?);
        let mut spec = disk_of(Sectors(SAS15K.capacity().0 / 8 * 8));
        spec.service = ServiceTime::Model { model, unit: 0 };
        world.add_disk(spec)
    };
    (0..16).map(add).collect()
}

#[allow(clippy::disallowed_methods, reason = "it measures wall-clock speed")]
fn measure(
    name: &str,
    disks: impl Fn(&mut SimWorld) -> IoResult<Vec<TargetId>>,
    operations: u64,
) -> IoResult {
    let mut runs = Vec::new();
    for _ in 0..ROUNDS {
        let mut world = SimWorld::new(1);
        let disks = disks(&mut world)?;
        let shape = world.geometry(disks[0]).expect("a disk");
        let mut sim = SimHost::new(world);
        let mut load = Load {
            driver: sim.driver(),
            disks,
            rng: SimRng::new(2),
            blocks: shape.sectors.0 / 8,
        };
        let start = Instant::now();
        load.run(operations);
        let wall = start.elapsed().as_secs_f64();
        let world = sim.world();
        let simulated = world.now().as_secs_f64() / wall;
        let hash = world.trace_hash();
        runs.push((wall, world.events() as f64 / wall / 1e6, simulated, hash));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let million = |wall: f64| operations as f64 / wall / 1e6;
    let (wall, events, simulated, hash) = runs[ROUNDS / 2];
    println!(
        "{name}: {:.2} M operations/s ({:.2} to {:.2}), {events:.2} M events/s, \
         {simulated:.1} simulated s a wall s, trace {hash:016x}; median of {ROUNDS}",
        million(wall),
        million(runs[ROUNDS - 1].0),
        million(runs[0].0),
    );
    Ok(())
}

fn main() -> IoResult {
    let operations = std::env::args().nth(1).map_or(2_000_000, |n| {
        n.parse()
            .expect("the number of operations, such as 2000000")
    });
    measure("8 disks of fixed service time", fixed, operations)?;
    measure("16 hard disks", hard_disks, operations / 4)
}
