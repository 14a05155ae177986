//! Pauses of a machine's processes: no sound device is evicted or ejected for a pause.

use block::{Boundary, Fua, Geometry, Nanos, Sectors};
use node::{Before, NodeEvent};
use shard::Local;
use sim::{DiskSpec, RunOutcome, ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng, SimWorld};
use simnode::{
    Direct, DirectClient, RunningNode, SimMachine, SimPlatform, create_array, run_alone,
};
use std::cell::Cell;
use std::rc::Rc;

const CONFIG: &str = r#"
[[device]]
name = "a"
path = "/a"
[[device]]
name = "b"
path = "/b"
[[device]]
name = "r0"
path = "/r0"
[[device]]
name = "r1"
path = "/r1"
[[device]]
name = "r2"
path = "/r2"
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
[[array]]
name = "mirror"
level = "raid1"
members = ["a", "b"]
[[array]]
name = "parity"
level = "raid5"
members = ["r0", "r1", "r2"]
[[pool]]
name = "fast"
devices = ["ssd"]
[[volume]]
name = "mirrored"
origin = "mirror"
pool = "fast"
[[volume]]
name = "striped"
origin = "parity"
pool = "fast"
[[volume]]
name = "logged"
origin = "plain"
pool = "fast"
mode = "write-back"
log = ["log0", "log1"]
"#;
const VOLUMES: [&str; 3] = ["mirrored", "striped", "logged"];
const WRITERS: u64 = 4;
const PAUSES: u64 = 30;
const PAUSE: Nanos = Nanos::from_secs(40);

/// Writes and flushes until `over` is set.
async fn writer(
    client: Rc<DirectClient>,
    local: Local<SimDriver>,
    number: u64,
    over: Rc<Cell<bool>>,
) {
    let (env, mut rng) = (local.env(), SimRng::new(number));
    while !over.get() {
        let buf = env.pool.get(4096).await;
        let at = rng.below(2048) * 4096;
        let fua = [Fua::No, Fua::Yes][rng.below(2) as usize];
        let written = client.gate().write(at, buf.share(), fua).await;
        written.expect("a write");
        if rng.chance(0.1) {
            client.gate().flush().await.expect("a flush");
        }
    }
}

async fn pause_under_load(
    machine: Rc<SimMachine>,
    local: Local<SimDriver>,
    config: Rc<control::config::Config>,
) {
    let (env, platform) = (
        local.env(),
        SimPlatform::new(machine.clone(), local.clone()),
    );
    for array in &config.arrays {
        let made = create_array(&config, platform.clone(), &array.name.value, Before::Zeroes);
        made.await.expect("an array");
    }
    let direct = Direct::new(&local);
    let node = RunningNode::start(&config, platform, direct.clone()).await;
    let node = node.expect("it starts");
    let over = Rc::new(Cell::new(false));
    for (volume, number) in VOLUMES.iter().zip(0..) {
        let client = Rc::new(direct.client(volume).expect("it is served"));
        for writer_of in 0..WRITERS {
            let seed = number * WRITERS + writer_of;
            env.spawn
                .spawn(writer(client.clone(), local.clone(), seed, over.clone()));
        }
    }
    let mut rng = SimRng::new(7);
    for _ in 0..PAUSES {
        // The processes run for up to 3 s between two pauses.
        env.timer
            .sleep(PAUSE + Nanos(rng.below(3_000_000_000)))
            .await;
        machine.pause(PAUSE);
    }
    env.timer.sleep(Nanos::from_secs(30)).await;
    over.set(true);
    let served = |event: &NodeEvent| matches!(event, NodeEvent::VolumeServed { .. });
    let events = machine.take_events();
    let events: Vec<_> = events.iter().filter(|event| !served(event)).collect();
    assert!(events.is_empty(), "{events:?}");
    let status = node.status().await.expect("a status");
    let ejected = |device: &control::status::PoolDeviceReport| device.state != "online";
    assert!(!status.pools.iter().flat_map(|p| &p.devices).any(ejected));
    node.stop().await.expect("it stops");
}

#[test]
fn a_pause_costs_no_member_no_copy_of_a_log_and_no_pool_device() {
    let mut problems = Vec::new();
    let config = control::config::parse(CONFIG, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let config = Rc::new(config);
    let mut world = SimWorld::new(1);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let name = device.name.value.as_str();
        let mut spec = DiskSpec::new(Geometry::new(name, Sectors::from_mib(64), Sectors(1)));
        let (min, max) = (Nanos::from_millis(2), Nanos::from_millis(30));
        spec.service = ServiceTime::uniform(ServiceSpan { min, max });
        Ok(spec)
    });
    let machine = machine.expect("sound disks");
    let mut sim = SimHost::new(world).pool_bytes(64 << 20);
    let work = async move |local| pause_under_load(machine, local, config).await;
    let (outcome, _) = run_alone(&mut sim, work);
    assert_eq!(outcome, RunOutcome::Done);
}
