//! Speed of the simulated world: reads at depth 32 straight on its driver, on disks that keep no
//! contents.

use super::{BenchRow, Goal, alone};
use block::{
    Buf, Driver, DriverOp, Geometry, IoResult, Lba, Nanos, Payload, Sectors, TargetId, Token,
};
use drives::Hdd;
use drives::catalogue::hdd::SAS15K;
use sim::{DiskSpec, Keep, ServiceTime, SimHost, SimWorld};
use std::time::Instant;

const DEPTH: u64 = 32;

/// Result of a run.
struct Speed {
    events_per_s: f64,
    simulated_s_per_s: f64,
}

fn spec(sectors: Sectors) -> DiskSpec {
    let mut spec = DiskSpec::new(Geometry::new("disk", sectors, Sectors(8)));
    spec.keep = Keep::Nothing;
    spec
}

fn plain(world: &mut SimWorld) -> IoResult<Vec<TargetId>> {
    let spec = spec(Sectors::from_mib(1 << 20));
    (0..8).map(|_| world.add_disk(spec.clone())).collect()
}

fn hard_disks(world: &mut SimWorld) -> IoResult<Vec<TargetId>> {
    let disk = |index| {
        let model = world.add_model(Hdd::new(&SAS15K, f64::from(index) / 16.0)?);
        let mut spec = spec(Sectors(SAS15K.capacity().0 / 8 * 8));
        spec.service = ServiceTime::Model { model, unit: 0 };
        world.add_disk(spec)
    };
    (0..16).map(disk).collect()
}

fn run(disks: impl Fn(&mut SimWorld) -> IoResult<Vec<TargetId>>, reads: u64) -> IoResult<Speed> {
    let mut world = SimWorld::new(1);
    let disks = disks(&mut world)?;
    let blocks = world.geometry(disks[0]).expect("a disk").sectors.0 / 8;
    let mut sim = SimHost::new(world);
    let mut driver = sim.driver();
    let mut rng = fastrand::Rng::with_seed(2);
    let mut submit = |driver: &mut sim::SimDriver, slot: u64, buf: Buf| {
        let disk = disks[(slot / DEPTH) as usize];
        driver.submit(
            Token(slot),
            disk,
            DriverOp::Read(Lba(rng.u64(0..blocks) * 8), buf),
        );
    };
    let start = Instant::now();
    for slot in 0..disks.len() as u64 * DEPTH {
        let buf = driver.pool().try_get(4096).expect("room for the queue");
        submit(&mut driver, slot, buf);
    }
    let (mut done, mut left) = (Vec::new(), reads);
    while left > 0 {
        driver.park(Nanos::MAX, &mut done);
        for completion in done.drain(..) {
            completion.result?;
            let Payload::Buf(buf) = completion.payload else {
                panic!("a read gives its buffer back");
            };
            left = left.saturating_sub(1);
            submit(&mut driver, completion.token.0, buf);
        }
    }
    let wall = start.elapsed().as_secs_f64();
    let world = sim.world();
    Ok(Speed {
        events_per_s: world.events() as f64 / wall,
        simulated_s_per_s: world.now().as_secs_f64() / wall,
    })
}

/// Events a second, and how much faster than time sixteen hard disks run.
pub fn rows(runs: usize, reads: u64) -> IoResult<Vec<BenchRow>> {
    let (mut events, mut seconds) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        events.push(run(plain, reads)?.events_per_s / 1e6);
        seconds.push(run(hard_disks, reads / 8)?.simulated_s_per_s);
    }
    let name = "simulator: events, 8 disks at depth 32";
    let goal = Some(Goal::AtLeast(2.0));
    let speed = "simulator: 16 hard disks (SAS15K) at depth 32";
    Ok(vec![
        alone(name, "million a wall second", goal, &events),
        alone(speed, "simulated s a wall s", None, &seconds),
    ])
}
