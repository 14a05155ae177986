//! Opens and closes the cache under test: the only file here that knows how a
//! daemon puts one together.

use super::bench::Bench;
use block::{BoxDevice, Gate, Sectors, TargetId};
use cache::{Cache, Config, PoolDevice, Volume, VolumeConfig};
use shard::{Disk, Local};
use sim::SimDriver;

/// What a pool disk has beside the lines that a case wants on it.
pub(super) const METADATA: Sectors = Sectors(24);

pub(super) type Leaf = Disk<SimDriver>;

/// A cache and its volumes, open.
pub(super) struct Stage {
    pub(super) cache: Cache<Leaf>,
    pub(super) gates: Vec<Gate<Volume<Leaf>>>,
}

fn leaf(local: &Local<SimDriver>, target: TargetId) -> Leaf {
    local.disk(target).expect("a disk")
}

pub(super) fn device(bench: &Bench, local: &Local<SimDriver>, disk: usize) -> PoolDevice<Leaf> {
    let leaf = leaf(local, bench.pool[disk]);
    PoolDevice::whole(leaf, format!("controller-{}", disk % 2))
}

/// Opens the pool with the disks that are plugged in, and every volume.
pub(super) async fn open(bench: &Bench, local: &Local<SimDriver>) -> Stage {
    let (case, env) = (&bench.case, local.env());
    let config = Config {
        line_bytes: case.line_bytes,
        hit_latency_max: case.hit_latency_max,
        sequential_bytes: None,
        ..Config::default()
    };
    let policy = policy::registry::build(case.policy, 0, case.seed).expect("registered");
    let cache = Cache::new(config, policy, env.clone()).expect("a sound configuration");
    for disk in 0..bench.pool.len() {
        if bench.is_plugged(disk) {
            let id = cache.add_device(device(bench, local, disk));
            bench.put(disk, Some(id.expect("room for a line")));
        }
    }
    let gates = (0..bench.origins.len()).map(|volume| {
        let config = VolumeConfig {
            name: format!("volume-{volume}").into(),
            sectors: None,
            mode: bench.mode(volume),
        };
        let origin = BoxDevice::new(leaf(local, bench.origins[volume]));
        let opened = cache.add_volume(config, origin).expect("a sound volume");
        Gate::new(opened, env.clone())
    });
    Stage {
        gates: gates.collect(),
        cache,
    }
}

/// Ends what [`open`] began, in order.
pub(super) async fn close(stage: &Stage) {
    for gate in &stage.gates {
        gate.device().close().await;
    }
}
