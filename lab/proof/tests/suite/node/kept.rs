//! Hits of a write-back volume, of places that a further shard keeps.

use block::{Boundary, Fua, Geometry, Nanos, Sectors};
use control::config::{Config, parse};
use shard::Local;
use sim::{DiskSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{Direct, DirectClient, RunningNode, SimMachine, SimPlatform, run_alone};
use std::rc::Rc;

const CONFIG: &str = r#"
[[device]]
name = "plain"
path = "/plain"
[[device]]
name = "ssd"
path = "/ssd"
[[device]]
name = "log0"
path = "/log0"
controller = "c0"
[[device]]
name = "log1"
path = "/log1"
controller = "c1"
[[pool]]
name = "fast"
devices = ["ssd"]
[[volume]]
name = "logged"
origin = "plain"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
"#;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 16;
/// Reads of a block, every second of them by the way of a further shard.
const READS: u64 = 8;

/// Reads all blocks again and again; each has `byte` everywhere.
async fn read(client: &DirectClient, byte: u8, when: &str) {
    for block in (0..BLOCKS).flat_map(|block| (0..READS).map(move |_| block)) {
        let read = client.gate().read(block * BLOCK, BLOCK as usize).await;
        let read = read.expect("a read");
        assert!(read.iter().all(|b| *b == byte), "block {block}, {when}");
    }
}

async fn hits_kept(node: &RunningNode) -> u64 {
    let status = node.status().await.expect("a status");
    let counters = &status.volumes[0].counters;
    *counters.get("hits_kept").expect("a counter")
}

async fn write_over_kept(machine: Rc<SimMachine>, local: Local<SimDriver>, config: Rc<Config>) {
    let env = local.env();
    let (platform, direct) = (
        SimPlatform::new(machine, local.clone()),
        Direct::new(&local),
    );
    let node = RunningNode::start(&config, platform, direct.clone()).await;
    let node = node.expect("it starts");
    let client = direct.client("logged").expect("it is served");
    let (write_back, reports) = (Nanos::from_secs(120), Nanos::from_secs(1));
    let mut before = 0;
    for byte in 1..4 {
        for block in 0..BLOCKS {
            let mut buf = env.pool.get(BLOCK as usize).await;
            buf.fill(byte);
            let written = client.gate().write(block * BLOCK, buf.share(), Fua::No);
            written.await.expect("a write");
        }
        read(&client, byte, "dirty").await;
        env.timer.sleep(write_back).await;
        read(&client, byte, "written back").await;
        env.timer.sleep(reports).await;
        let kept = hits_kept(&node).await;
        assert!(kept >= before + BLOCKS, "{kept} hits of kept places");
        before = kept;
    }
    drop(client);
    node.stop().await.expect("it stops");
}

#[test]
fn a_write_to_a_log_is_read_by_a_shard_that_keeps_the_places_of_earlier_bytes() {
    let mut problems = Vec::new();
    let config = parse(CONFIG, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let config = Rc::new(config);
    let mut world = SimWorld::new(1);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let name = device.name.value.as_str();
        Ok(DiskSpec::new(Geometry::new(
            name,
            Sectors::from_mib(64),
            Sectors(1),
        )))
    });
    let machine = machine.expect("sound disks");
    let mut sim = SimHost::new(world).pool_bytes(64 << 20);
    let work = async move |local| write_over_kept(machine, local, config).await;
    let (outcome, _) = run_alone(&mut sim, work);
    assert_eq!(outcome, RunOutcome::Done);
}
