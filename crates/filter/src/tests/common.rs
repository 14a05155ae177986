//! A simulated disk under an executor, for tests of filters.

use block::{Env, Geometry, Nanos, Sectors};
use shard::ShardDisk;
use sim::{DiskSpec, RunOutcome, ServiceSpan, ServiceTime, SimDriver, SimHost, SimWorld};
use simnode::run_alone;

/// Runs `test` on a disk of 8 MiB that takes 50 to 150 microseconds.
pub fn on_disk(
    seed: u64,
    block: u64,
    test: impl AsyncFn(ShardDisk<SimDriver>, Env) + Clone + 'static,
) {
    on(seed, block, None, test);
}

/// Runs `test` on a disk of 8 MiB that takes exactly `span` an operation.
pub fn on_exact_disk(span: Nanos, test: impl AsyncFn(ShardDisk<SimDriver>, Env) + Clone + 'static) {
    on(1, 1, Some(span), test);
}

fn on(
    seed: u64,
    block: u64,
    span: Option<Nanos>,
    test: impl AsyncFn(ShardDisk<SimDriver>, Env) + Clone + 'static,
) {
    let size = Sectors::from_mib(8);
    on_disks(seed, span, [(size, block)], async move |[disk], env| {
        test(disk, env).await;
    });
}

/// Runs `test` on disks of these sizes and logical blocks, in sectors.
pub fn on_disks<const N: usize>(
    seed: u64,
    span: Option<Nanos>,
    shapes: [(Sectors, u64); N],
    test: impl AsyncFn([ShardDisk<SimDriver>; N], Env) + Clone + 'static,
) {
    let mut world = SimWorld::new(seed);
    let targets = shapes.map(|(size, block)| {
        let mut spec = DiskSpec::new(Geometry::new("disk", size, Sectors(block)));
        if let Some(span) = span {
            spec.service = ServiceTime::uniform(ServiceSpan::exactly(span));
        }
        world.add_disk(spec).expect("a sound disk")
    });
    let (outcome, ended) = run_alone(&mut SimHost::new(world), async move |local| {
        let disks = targets.map(|target| local.disk(target).expect("the disk is there"));
        test(disks, local.env()).await;
    });
    assert_eq!(outcome, RunOutcome::Done, "seed {seed}");
    assert!(ended.is_some(), "seed {seed}: the test did not end");
}
