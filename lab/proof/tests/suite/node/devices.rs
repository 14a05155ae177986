//! Pool devices that are late, origins that fail, grow or are taken over, and memory that does not
//! suffice, on a node in virtual time.

use block::{Boundary, Env, Geometry, IoErrorKind, IoResult, Lba, Nanos, Sectors};
use control::config::Config;
use control::protocol::{ControlRequest, NamedOrNew, Reply};
use control::trouble::TroubleKind;
use futures_util::future::join;
use node::{DeviceSource, NodeEvent, OpenDevices, Platform as _, RawRole, RecoverAction};
use shard::Local;
use sim::{DiskSpec, RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{Direct, DirectClient, RunningNode, SimMachine, SimPlatform, run_alone};
use std::cell::Cell;
use std::rc::Rc;

const CONFIG: &str = r#"
[[device]]
name = "disk"
path = "/disk"
[[device]]
name = "ssd"
path = "/ssd"
[[device]]
name = "other"
path = "/other"
[[pool]]
name = "fast"
devices = ["ssd"]
[[volume]]
name = "data"
origin = "disk"
pool = "fast"
"#;
/// A pool, for volumes that are written back.
const POOL: &str = r#"
[[device]]
name = "ssd"
path = "/ssd"
[[pool]]
name = "fast"
devices = ["ssd"]
"#;
const LINE: u64 = 64 << 10;
const LINES: u64 = 16;

struct Bench {
    env: Env,
    local: Local<SimDriver>,
    machine: Rc<SimMachine>,
    node: RunningNode,
    direct: Rc<Direct>,
    client: DirectClient,
}

fn run(test: impl AsyncFnOnce(&Bench) + 'static) {
    run_on(CONFIG, &[], test);
}

/// The devices in `unresponsive` answer nothing, from before the start on.
fn run_on(config: &str, unresponsive: &'static [&str], test: impl AsyncFnOnce(&Bench) + 'static) {
    let mut problems = Vec::new();
    let config = control::config::parse(config, &mut problems);
    assert!(problems.is_empty(), "{problems:?}");
    let mut world = SimWorld::new(1);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let name = device.name.value.as_str();
        let geometry = Geometry::new(name, Sectors::from_mib(32), Sectors(1));
        Ok(DiskSpec::new(geometry))
    });
    let machine = machine.expect("sound disks");
    let mut sim = SimHost::new(world).pool_bytes(64 << 20);
    let (outcome, _) = run_alone(&mut sim, async move |local: Local<SimDriver>| {
        let (env, platform) = (
            local.env(),
            SimPlatform::new(machine.clone(), local.clone()),
        );
        let direct = Direct::new(&local);
        unresponsive.iter().for_each(|path| machine.silence(path));
        let node = RunningNode::start(&config, platform, direct.clone()).await;
        let node = node.expect("it starts");
        let client = direct.client("data").expect("it is served");
        let bench = Bench {
            env,
            local,
            machine,
            node,
            direct,
            client,
        };
        test(&bench).await;
    });
    assert_eq!(outcome, RunOutcome::Done);
}

impl Bench {
    async fn sleep(&self, seconds: u64) {
        self.env.timer.sleep(Nanos::from_secs(seconds)).await;
    }

    async fn read(&self, line: u64) -> bool {
        self.client.gate().read(line * LINE, 4096).await.is_ok()
    }

    async fn write(&self, line: u64) {
        self.write_to("data", line).await.expect("a write");
    }

    async fn write_to(&self, volume: &str, line: u64) -> IoResult {
        let client = self.direct.client(volume).expect("it is served");
        let buf = self.env.pool.get(4096).await;
        let written = client
            .gate()
            .write(line * LINE, buf.share(), block::Fua::No);
        written.await
    }

    /// Counts the hits of one read of each line.
    async fn hits(&self) -> u64 {
        let before = self.counter("reads_hit").await;
        for line in 0..LINES {
            assert!(self.read(line).await);
        }
        // A further shard reports its hits a while after its answers.
        self.env.timer.sleep(Nanos::from_millis(20)).await;
        self.counter("reads_hit").await - before
    }

    async fn counter(&self, name: &str) -> u64 {
        let status = self.node.status().await.expect("a status");
        let counters = serde_json::to_value(&status.volumes[0].counters).expect("plain data");
        counters[name].as_u64().unwrap_or_default()
    }

    fn events(&self) -> Vec<String> {
        let events = self.machine.take_events();
        events.iter().map(NodeEvent::to_string).collect()
    }

    fn said(&self, what: &str) -> usize {
        let events = self.events();
        events.iter().filter(|event| event.contains(what)).count()
    }
}

#[test]
fn of_two_uses_at_a_time_one_opens_the_device() {
    run(async |bench| {
        let config = control::config::parse(CONFIG, &mut Vec::new());
        let other = config
            .devices
            .iter()
            .find(|device| device.name.value.as_str() == "other");
        let other = DeviceSource::Device(Box::new(other.expect("it is there").clone()));
        let platform = SimPlatform::new(bench.machine.clone(), bench.local.clone());
        let devices = OpenDevices::new(&config, platform);
        let before = bench.machine.openings("/other");
        let use_it = || devices.open(&other, RawRole::Origin);
        let (first, second) = join(use_it(), use_it()).await;
        assert_eq!(bench.machine.openings("/other"), before + 1);
        let refused = second.err().expect("the first has it");
        assert_eq!(refused.kind(), IoErrorKind::Denied, "{refused}");
        first.expect("it is free").release().await;
        assert!(!bench.machine.is_held("/other"));
    });
}

/// A look after the end would have the reservation again.
#[test]
fn a_reservation_ends_with_its_node_at_any_moment() {
    let config = CONFIG.replace("origin = \"disk\"", "origin = \"disk\"\nreserve = true");
    // The client stays, and is waited for so long.
    let config = format!("[daemon]\ngrace = \"100ms\"\n{config}");
    for moment in 0..100 {
        run_on(&config, &[], async move |bench| {
            assert!(bench.machine.is_reserved("/disk"));
            bench.env.timer.sleep(Nanos::from_millis(moment * 10)).await;
            bench.node.stop().await.expect("it ends in order");
            assert!(!bench.machine.is_reserved("/disk"), "{moment}");
            bench.sleep(3).await;
            assert!(!bench.machine.is_reserved("/disk"), "{moment}: again");
        });
    }
}

#[test]
fn a_pool_device_that_was_late_is_back_with_its_lines_by_itself() {
    run(async |bench: &Bench| {
        for _ in 0..3 {
            bench.hits().await;
            bench.sleep(1).await;
        }
        assert_eq!(bench.hits().await, LINES);
        bench.machine.silence("/ssd");
        bench.write(300).await;
        bench.sleep(3).await;
        assert_eq!(bench.said("is gone round"), 1);
        let readmit = ControlRequest::ReadmitDevice {
            pool: "fast".into(),
            device: "ssd".into(),
        };
        let refused = bench.node.ask(readmit.clone()).await.unwrap_err();
        assert!(refused.contains("has not answered all"), "{refused}");
        bench.sleep(60).await;
        assert_eq!(bench.said("answers in time again"), 0);
        bench.machine.unsilence("/ssd");
        bench.sleep(120).await;
        assert_eq!(bench.said("answers in time again"), 1);
        assert_eq!(bench.hits().await, LINES);
        let refused = bench.node.ask(readmit.clone()).await.unwrap_err();
        assert!(refused.contains("was not ejected"), "{refused}");
        // A readmission by hand has no delay.
        bench.machine.silence("/ssd");
        bench.write(150).await;
        bench.machine.unsilence("/ssd");
        bench.env.timer.sleep(Nanos::from_millis(50)).await;
        bench.node.ask(readmit).await.expect("it answers");
        assert_eq!(bench.hits().await, LINES);
    });
}

/// A volume by this name with a log on two devices.
fn logged(name: &str) -> String {
    let device = |of| format!("[[device]]\nname = \"{name}-{of}\"\npath = \"/{name}-{of}\"\n");
    let devices: String = ["disk", "log0", "log1"].map(device).concat();
    format!(
        "{devices}[[volume]]\nname = \"{name}\"\norigin = \"{name}-disk\"\npool = \"fast\"\n\
         mode = \"write-back\"\nlog = [\"{name}-log0\", \"{name}-log1\"]\n"
    )
}

#[test]
fn a_log_that_takes_long_to_open_again_delays_no_other() {
    let config = format!("{POOL}{}{}", logged("data"), logged("other"));
    for seconds in 0..40 {
        run_on(&config, &[], async move |bench: &Bench| {
            let logs = |volume| ["log0", "log1"].map(|log| format!("/{volume}-{log}"));
            for log in logs("other") {
                bench.machine.silence(&log);
            }
            assert!(bench.write_to("other", 0).await.is_err());
            bench.sleep(seconds).await;
            for log in logs("data") {
                bench.machine.pull(&log);
            }
            assert!(bench.write_to("data", 0).await.is_err());
            for log in logs("data") {
                bench.machine.give_back(&log);
            }
            bench.sleep(2).await;
            assert_eq!(bench.said("volume data: its log was opened again"), 1);
        });
    }
}

/// Blocks of 4 KiB that a client writes, and one that another host does.
const WRITTEN: u64 = 16;
const THEIRS: u64 = 20;
/// Moments of a takeover.
const MOMENTS: u64 = 60;

impl Bench {
    /// The blocks of the client at the origin, as another host has them.
    fn blocks_there(&self) -> Vec<u8> {
        let mut bytes = vec![0; WRITTEN as usize * 4096];
        let medium = self.machine.medium("/data-disk");
        medium.latest(Lba(0), &mut bytes);
        bytes.chunks(4096).map(|block| block[0]).collect()
    }

    /// Writes the client's blocks in turn until `end`, or until a write is refused. Returns the
    /// acknowledged bytes.
    async fn write_until(&self, end: Nanos) -> Vec<u8> {
        let mut acknowledged = vec![0; WRITTEN as usize];
        for number in 0.. {
            let (at, byte) = (number % WRITTEN, (number % 251) as u8 + 1);
            let mut buf = self.env.pool.get(4096).await;
            buf.fill(byte);
            let gate = self.client.gate();
            let written = gate.write(at * 4096, buf.share(), block::Fua::No).await;
            if written.is_err() {
                break;
            }
            acknowledged[at as usize] = byte;
            if self.env.timer.now() >= end {
                break;
            }
            self.env.timer.sleep(Nanos::from_millis(7)).await;
        }
        acknowledged
    }

    /// The node does not serve the volume, for its log may be dirty, and ends.
    async fn refuses(&self, node: &RunningNode, direct: &Direct) {
        assert!(direct.client("data").is_none());
        let volume = "data".to_owned();
        let refused = node.ask(ControlRequest::TakeOver { volume }).await;
        let refused = refused.expect_err("its dirty data is older");
        let why = "may have dirty data, which would overwrite that: see `hotset pool recover data`";
        assert!(refused.contains(why), "{refused}");
        node.stop().await.expect("it ends in order");
    }

    async fn start(&self, config: &Config) -> (RunningNode, Rc<Direct>) {
        let platform = SimPlatform::new(self.machine.clone(), self.local.clone());
        let direct = Direct::new(&self.local);
        let node = RunningNode::start(config, platform, direct.clone()).await;
        (node.expect("it starts"), direct)
    }

    /// Writes the dirty data back without a node.
    async fn recover(&self, config: &Config) {
        let platform = SimPlatform::new(self.machine.clone(), self.local.clone());
        let devices = OpenDevices::new(config, platform.clone());
        let logs = platform.logs().await.expect("sound witnesses");
        let (volume, action) = (&config.volumes[0], RecoverAction::WriteBack);
        let done = node::recover(&devices, &platform, volume, &logs, action, None);
        done.await.expect("the log is sound");
    }
}

/// Another host takes the origin, at any moment of a burst of writes and after it, and has it for a
/// while. The origin has all, or the operator decides on the dirty data.
#[test]
fn a_takeover_of_a_write_back_volume_costs_no_acknowledged_write() {
    let reserving = logged("data").replace("mode =", "reserve = true\nmode =");
    let text = format!("{POOL}{reserving}max_lag = \"10s\"\n");
    let refusals = Rc::new(Cell::new(0));
    for moment in 0..MOMENTS {
        let config = control::config::parse(&text, &mut Vec::new());
        let refusals = refusals.clone();
        run_on(&text, &[], async move |bench: &Bench| {
            assert_eq!(bench.get(THEIRS * 4096).await, 0);
            let span = Nanos::from_millis(moment * 97);
            let taking = async {
                bench.env.timer.sleep(span).await;
                bench.machine.reserve_elsewhere("/data-disk", true);
            };
            let end = bench.env.timer.now() + Nanos::from_secs(2);
            let (acknowledged, ()) = join(bench.write_until(end), taking).await;
            // The other host reads and writes no earlier.
            bench.sleep(3).await;
            assert!(bench.client.is_withdrawn());
            let there = bench.blocks_there();
            let medium = bench.machine.medium("/data-disk");
            medium.write(Lba(THEIRS * 8), &[9; 4096]);
            bench.sleep(30).await;
            assert!(bench.direct.client("data").is_none());
            bench.machine.reserve_elsewhere("/data-disk", false);
            bench.sleep(30).await;
            assert_eq!(bench.blocks_there(), there, "written without a choice");
            if bench.direct.client("data").is_some() {
                assert_eq!(bench.get(THEIRS * 4096).await, 9, "stale");
            } else {
                refusals.set(refusals.get() + 1);
                bench.refuses(&bench.node, &bench.direct).await;
                let (node, direct) = bench.start(&config).await;
                bench.refuses(&node, &direct).await;
                assert_eq!(bench.blocks_there(), there, "written by a start");
                bench.recover(&config).await;
                let (_node, direct) = bench.start(&config).await;
                assert!(direct.client("data").is_some(), "refused for ever");
            }
            assert_eq!(bench.blocks_there(), acknowledged, "{moment}");
        });
    }
    assert!((1..MOMENTS).contains(&refusals.get()), "{refusals:?}");
}

/// Size of a grown origin, and the place of a line that only that has.
const GROWN: Sectors = Sectors::from_mib(64);
const ADDED: u64 = 40 << 20;

/// A volume with a log, before and after it has grown.
impl Bench {
    async fn grow(&self) -> Result<(), String> {
        let volume = "data".to_owned();
        let asked = self.node.ask(ControlRequest::GrowVolume { volume });
        asked.await.map(drop)
    }

    async fn put(&self, at: u64, byte: u8) {
        let client = self.direct.client("data").expect("it is served");
        let mut buf = self.env.pool.get(4096).await;
        buf.fill(byte);
        let written = client.gate().write(at, buf.share(), block::Fua::No);
        written.await.expect("a write");
    }

    async fn get(&self, at: u64) -> u8 {
        let client = self.direct.client("data").expect("it is served");
        let buf = client.gate().read(at, 4096).await.expect("a read");
        assert!(buf.iter().all(|byte| *byte == buf[0]));
        buf[0]
    }

    /// Size of the volume in MiB, the copies of its log, and its dirty bytes.
    async fn shape(&self) -> (u64, u64, u64) {
        let status = self.node.status().await.expect("a status");
        let Some(volume) = status.volumes.first() else {
            return (0, 0, 0);
        };
        let log = volume.write_back.as_ref();
        let (copies, dirty) = log.map_or((0, 0), |log| (log.copies as u64, log.dirty_bytes));
        (volume.size_bytes >> 20, copies, dirty)
    }
}

/// Runs `test` on a volume with a log and dirty data, the origin of which has grown.
fn run_grown(test: impl AsyncFnOnce(&Bench) + 'static) {
    let config = format!("{POOL}{}", logged("data"));
    run_on(&config, &[], async |bench: &Bench| {
        bench.put(0, 1).await;
        bench.put(LINE, 2).await;
        assert!(bench.grow().await.unwrap_err().contains("has not grown"));
        bench.machine.grow("/data-disk", GROWN);
        test(bench).await;
    });
}

#[test]
fn a_volume_with_a_log_grows_and_has_its_log_again() {
    run_grown(async |bench: &Bench| {
        let (size, copies, dirty) = bench.shape().await;
        assert_eq!((size, copies), (32, 2));
        assert!(dirty > 0);
        // A log counts in blocks of 4 KiB.
        bench.machine.grow("/data-disk", GROWN + Sectors(1));
        let refused = bench.grow().await.unwrap_err();
        assert!(refused.contains("a multiple of 4 KiB"), "{refused}");
        assert!(!bench.client.is_withdrawn());
        bench.machine.grow("/data-disk", GROWN);
        bench.grow().await.expect("it has grown");
        assert!(bench.client.is_withdrawn());
        assert_eq!(bench.shape().await, (64, 2, 0));
        bench.put(ADDED, 3).await;
        bench.put(0, 4).await;
        let bytes = [bench.get(0).await, bench.get(LINE).await];
        assert_eq!((bytes, bench.get(ADDED).await), ([4, 2], 3));
        assert!(bench.shape().await.2 > 0);
        // The log of the grown volume survives its next start.
        bench.node.stop().await.expect("it stops");
    });
}

#[test]
fn a_volume_whose_log_cannot_be_drained_does_not_grow_and_keeps_its_log() {
    run_grown(async |bench: &Bench| {
        bench.machine.silence("/data-disk");
        let refused = bench.grow().await.unwrap_err();
        assert!(refused.contains("volume data: unchanged"), "{refused}");
        assert!(!bench.client.is_withdrawn());
        let (size, copies, dirty) = bench.shape().await;
        assert_eq!((size, copies), (32, 2));
        assert!(dirty > 0);
        bench.machine.unsilence("/data-disk");
        bench.sleep(60).await;
        bench.put(2 * LINE, 3).await;
        bench.grow().await.expect("it can be drained");
        assert_eq!(bench.shape().await, (64, 2, 0));
        assert_eq!([bench.get(0).await, bench.get(2 * LINE).await], [1, 3]);
    });
}

#[test]
fn a_grown_volume_waits_for_devices_that_go_once_its_log_is_drained() {
    for gone in [&["/data-log0", "/data-log1"][..], &["/data-disk"]] {
        run_grown(async move |bench: &Bench| {
            let machine = bench.machine.clone();
            let timer = bench.env.timer.clone();
            bench.env.spawn.spawn(async move {
                while machine.is_held("/data-log0") {
                    timer.sleep(Nanos::from_micros(10)).await;
                }
                gone.iter().for_each(|path| machine.pull(path));
            });
            let refused = bench.grow().await.unwrap_err();
            let waits = "volume data is not served, and tried again: ";
            assert!(refused.contains(waits), "{refused}");
            let status = bench.node.status().await.expect("a status");
            assert_eq!(status.waiting.len(), 1);
            gone.iter().for_each(|path| bench.machine.give_back(path));
            bench.sleep(30).await;
            assert_eq!(bench.shape().await, (64, 2, 0));
            assert_eq!([bench.get(0).await, bench.get(LINE).await], [1, 2]);
            bench.put(ADDED, 3).await;
            assert_eq!(bench.get(ADDED).await, 3);
        });
    }
}

#[test]
fn writes_fail_in_time_while_no_device_of_a_log_answers() {
    run_on(
        &format!("{POOL}{}", logged("data")),
        &[],
        async |bench: &Bench| {
            let logs = ["/data-log0", "/data-log1"];
            logs.iter().for_each(|log| bench.machine.silence(log));
            assert!(bench.write_to("data", 0).await.is_err());
            for _ in 0..200 {
                let begun = bench.env.timer.now();
                assert!(bench.write_to("data", 0).await.is_err());
                let took = bench.env.timer.now().since(begun);
                assert!(took < Nanos::from_secs(10), "{took}");
                bench.env.timer.sleep(Nanos::from_millis(500)).await;
            }
            logs.iter().for_each(|log| bench.machine.unsilence(log));
            bench.sleep(60).await;
            bench.write(0).await;
        },
    );
}

#[test]
fn an_origin_that_is_unresponsive_at_a_start_delays_no_other_and_is_reported() {
    let config = format!("{POOL}{}{}", logged("data"), logged("other"));
    run_on(&config, &["/other-disk"], async |bench: &Bench| {
        assert!(bench.env.timer.now() < Nanos::from_secs(11));
        bench.write(0).await;
        assert_eq!(bench.said("volume other is not served yet"), 1);
        let status = bench.node.status().await.expect("a status");
        let mut troubles = status.troubles.iter();
        let trouble = troubles.find(|trouble| trouble.kind == TroubleKind::VolumeNotServed);
        let what = &trouble.expect("it is not served").what;
        assert!(what.contains("have not answered yet"), "{what}");
        bench.machine.unsilence("/other-disk");
        bench.sleep(5).await;
        assert!(bench.write_to("other", 0).await.is_ok());
    });
}

#[test]
fn an_origin_that_fails_is_said_once_and_stands_in_the_status() {
    run(async |bench: &Bench| {
        bench.machine.pull("/disk");
        for second in 0..30 {
            for line in 0..50 {
                assert!(!bench.read(100 + line + second).await);
            }
            bench.sleep(1).await;
        }
        assert_eq!(bench.said("the origin of volume data, fails"), 1);
        let status = bench.node.status().await.expect("a status");
        let mut troubles = status.troubles.iter();
        let trouble = troubles.find(|trouble| trouble.kind == TroubleKind::OriginFails);
        let what = &trouble.expect("it fails").what;
        assert!(what.contains("disk"), "{what}");
    });
}

#[test]
fn a_device_whose_tables_do_not_fit_is_refused_and_nothing_changes() {
    run(async |bench: &Bench| {
        let add = ControlRequest::AddDevice {
            pool: "fast".into(),
            device: NamedOrNew::Named("other".into()),
        };
        bench.machine.limit_memory(100_000);
        let refused = bench.node.ask(add.clone()).await.unwrap_err();
        assert!(refused.contains("pool fast, with 1008 lines"), "{refused}");
        assert!(refused.contains("`line_size`"), "{refused}");
        assert!(!bench.machine.is_held("/other"));
        let status = bench.node.status().await.expect("a status");
        assert_eq!(status.pools[0].devices.len(), 1);
        bench.machine.limit_memory(10 << 20);
        bench.node.ask(add).await.expect("it fits");
    });
}

/// A pool of the blank device `other` and a volume that it caches.
fn set_up(volume: &str) -> ControlRequest {
    let pool = ControlRequest::AddPool {
        pool: "name = \"second\"\ndevices = [\"other\"]\n".into(),
        devices: Vec::new(),
    };
    let volume = ControlRequest::AddVolume {
        volume: format!("name = \"more\"\norigin = \"unused\"\npool = \"second\"\n{volume}"),
        device: None,
    };
    let additions = vec![pool, volume];
    ControlRequest::SetUp { additions }
}

#[test]
fn a_set_up_makes_pool_and_volume_or_neither() {
    // The machine has witnesses of configured pools alone.
    let more = format!(
        "{CONFIG}[[device]]\nname = \"unused\"\npath = \"/unused\"\n\
         [[pool]]\nname = \"second\"\ndevices = [\"other\"]\n"
    );
    run_on(&more, &[], async |bench: &Bench| {
        let pools = async || bench.node.status().await.expect("a status").pools.len();
        let running = async || match bench.node.ask(ControlRequest::Configuration).await {
            Ok(Reply::Configuration(running)) => running.text,
            other => panic!("{other:?}"),
        };
        let remove = ControlRequest::RemovePool {
            pool: "second".into(),
        };
        bench.node.ask(remove).await.expect("no volume uses it");
        let (before, openings) = (running().await, bench.machine.openings("/other"));
        // The origin is tried before a device is written.
        bench.machine.pull("/unused");
        let refused = bench.node.ask(set_up("")).await.unwrap_err();
        assert!(refused.contains("/unused"), "{refused}");
        assert_eq!(bench.machine.openings("/other"), openings);
        bench.machine.give_back("/unused");
        // The volume is refused once the pool is made.
        let too_large = "size = \"1GiB\"\n";
        let refused = bench.node.ask(set_up(too_large)).await;
        assert!(refused.unwrap_err().contains("is larger than its origin"));
        assert_eq!(pools().await, 1);
        assert!(!bench.machine.is_held("/other"));
        assert!(!bench.machine.is_held("/unused"));
        assert_eq!(running().await, before);
        // A change without an inverse is no addition.
        let additions = vec![ControlRequest::RemoveVolume {
            volume: "data".into(),
        }];
        let refused = bench.node.ask(ControlRequest::SetUp { additions }).await;
        assert!(refused.unwrap_err().contains("by themselves"));
        assert!(bench.read(0).await);

        bench.node.ask(set_up("")).await.expect("it is made");
        assert_eq!(pools().await, 2);
        bench.write_to("more", 0).await.expect("a write");
    });
}
