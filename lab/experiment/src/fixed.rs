//! A disk for tests, which takes the same time for every request, however many there are.

use block::{BoxDevice, Env, Gate, Geometry, Nanos, Sectors};
use sim::{DiskSpec, Keep, ServiceSpan, ServiceTime, SimHost, SimWorld};
use simnode::run_alone;

/// More than any test reaches.
const SECTORS: Sectors = Sectors(1 << 26);

/// Runs `work` on a disk that takes so long; returns the result.
pub fn on_disk<T: 'static>(
    takes: Nanos,
    work: impl AsyncFnOnce(Gate<BoxDevice>, Env) -> T + 'static,
) -> T {
    let mut world = SimWorld::new(1);
    let mut spec = DiskSpec::new(Geometry::new("disk", SECTORS, Sectors(1)));
    spec.service = ServiceTime::uniform(ServiceSpan::exactly(takes));
    spec.keep = Keep::Nothing;
    let disk = world.add_disk(spec).expect("the disk is sound");
    let (outcome, came) = run_alone(&mut SimHost::new(world), async move |local| {
        let disk = BoxDevice::new(local.disk(disk).expect("it is there"));
        work(Gate::new(disk, local.env()), local.env()).await
    });
    came.unwrap_or_else(|| panic!("the simulation did not end: {outcome:?}"))
}
