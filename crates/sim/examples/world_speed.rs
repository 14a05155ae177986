//! How fast the world moves: raw operations at depth 32 on several disks that
//! keep no contents, driven without an executor.
//!
//! Run: `cargo run --release -p sim --example world_speed [operations]`

use block::{Buf, Completion, Driver, Fua, Geometry, Lba, Nanos, Op, Payload, Sectors};
use block::{TargetId, Token};
use sim::{DiskSpec, Keep, Rng, Sim, SimDriver, World};
use std::time::Instant;

const DISKS: u32 = 8;
const DEPTH: u32 = 32;
const ROUNDS: usize = 5;

struct Load {
    driver: SimDriver,
    disks: Vec<TargetId>,
    rng: Rng,
    blocks: u64,
}

impl Load {
    fn submit(&mut self, slot: u64, buf: Buf) {
        let disk = self.disks[(slot / u64::from(DEPTH)) as usize];
        let at = Lba(self.rng.below(self.blocks) * 8);
        let op = match self.rng.below(4) {
            0 => Op::Write(at, buf.share(), Fua::No),
            _ => Op::Read(at, buf),
        };
        self.driver.submit(Token(slot), disk, op);
    }

    fn buf(&self) -> Buf {
        let buf = self.driver.pool().try_get(4096);
        buf.expect("a pool larger than the queue")
    }

    fn run(&mut self, operations: u64) {
        let mut done: Vec<Completion> = Vec::new();
        for slot in 0..u64::from(DISKS * DEPTH) {
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

fn main() {
    let operations = std::env::args().nth(1).map_or(2_000_000, |n| {
        n.parse()
            .expect("the number of operations, such as 2000000")
    });
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let mut world = World::new(1);
        let shape = Geometry::new("disk", Sectors::from_mib(1 << 20), Sectors(8));
        let mut spec = DiskSpec::new(shape.clone());
        spec.keep = Keep::Nothing;
        let disks = (0..DISKS).map(|_| world.add_disk(spec.clone()));
        let disks = disks.collect::<Result<_, _>>().expect("a sound disk");
        let mut sim = Sim::new(world);
        let mut load = Load {
            driver: sim.driver(),
            disks,
            rng: Rng::new(2),
            blocks: shape.sectors.0 / 8,
        };
        let start = Instant::now();
        load.run(operations);
        let wall = start.elapsed().as_secs_f64();
        let world = sim.world();
        rates.push((
            operations as f64 / wall / 1e6,
            world.events() as f64 / wall / 1e6,
        ));
        println!(
            "{:.2} M operations/s, {:.2} M events/s, {:.1} simulated s per wall s, trace {:016x}",
            operations as f64 / wall / 1e6,
            world.events() as f64 / wall / 1e6,
            world.now().as_secs_f64() / wall,
            world.trace_hash()
        );
    }
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (least, middle, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
    println!(
        "median of {ROUNDS}: {:.2} M operations/s ({:.2} to {:.2}), {:.2} M events/s",
        middle.0, least.0, most.0, middle.1
    );
}
