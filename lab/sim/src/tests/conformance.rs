//! The driver contract.

use crate::{DiskSpec, LinkSpec, RunOutcome, ServiceSpan, ServiceTime, SimHost, SimWorld};
use block::conformance::{self, DriverRig};
use block::{Address, Driver, Geometry, Host, Nanos, Sectors};

fn rig(seed: u64, block: Sectors) -> (SimHost, DriverRig) {
    let mut world = SimWorld::new(seed);
    let disk = DiskSpec::new(Geometry::new("disk", Sectors::from_mib(16), block));
    let disk = world.add_disk(disk).unwrap();
    let address = Address::Unix("/run/test".into());
    let listener = world.listen(address.clone(), LinkSpec::local()).unwrap();
    let listener = Some((listener, address));
    (SimHost::new(world), DriverRig { disk, listener })
}

#[test]
fn driver_in_a_host() {
    for seed in 0..8 {
        let (mut sim, rig) = rig(seed, Sectors(if seed % 2 == 0 { 1 } else { 8 }));
        sim.run(1, move |_, driver| {
            Box::new(conformance::driver(driver, rig.clone(), seed))
        })
        .unwrap();
        assert_eq!(sim.outcome(), Some(&RunOutcome::Done), "seed {seed}");
    }
}

#[test]
fn driver_alone() {
    let (mut sim, rig) = rig(77, Sectors(1));
    let driver = sim.driver();
    assert_eq!(driver.now(), Nanos::ZERO);
    conformance::run(conformance::driver(driver, rig, 77));
}

#[test]
fn shards_wake_each_other() {
    for seed in 0..8 {
        let mut world = SimWorld::new(seed);
        let mut disk = DiskSpec::new(Geometry::new("disk", Sectors(8), Sectors(8)));
        disk.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos(1)));
        world.add_disk(disk).unwrap();
        conformance::host(&mut SimHost::new(world), 2 + seed as u32 % 5, seed);
    }
}
