//! A write-back volume that loses log devices, one or both, or its origin while its node runs. Once
//! these are back, the volume goes on by itself, and no acknowledged write is lost.

use super::logged::{BUFFER_BYTES, LOG_MIB, configuration, disk};
use block::{Boundary, Fua, Nanos};
use control::check::check_alone;
use layout::{DeviceIdentity, Fact};
use node::NodeEvent;
use shard::Local;
use sim::{RunOutcome, SimDriver, SimHost, SimWorld};
use simnode::{Direct, DirectClient, RunningNode, SimMachine, SimPlatform, run_alone};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use writelog::Cleaning;

const LOGS: [&str; 2] = ["/log0", "/log1"];
const ORIGIN: &str = "/origin";
const BLOCK: u64 = 4096;
/// Time limit, in seconds, of the volume to go on after its devices are back.
const MOST: u64 = 90;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Away {
    LogsUnresponsive,
    LogsPulled,
    OneUnresponsive,
    OnePulled,
    OriginPulled,
    /// The origin loses acknowledged writes, and answers all the time.
    OriginForgets,
}

struct ReturnedLife {
    local: Local<SimDriver>,
    client: DirectClient,
    /// The newest version of each of a few blocks that was acknowledged.
    acknowledged: [Cell<u8>; 8],
    version: Cell<u8>,
}

impl ReturnedLife {
    async fn write(&self) -> bool {
        let env = self.local.env();
        let version = self.version.get() + 1;
        self.version.set(version);
        let block = u64::from(version) % 8;
        let mut buf = env.pool.get(BLOCK as usize).await;
        buf.fill(version);
        let write = self
            .client
            .gate()
            .write(block * BLOCK, buf.share(), Fua::Yes);
        // The reopening pauses for half a minute at most, the cleaner for four seconds.
        let limit = Nanos::from_secs(45);
        let written = env.timer.timeout(limit, write).await;
        let is_ok = written.expect("a write hangs").is_ok();
        if is_ok {
            self.acknowledged[block as usize].set(version);
        }
        is_ok
    }

    /// Each block has its last acknowledged version, or a later write.
    async fn read_back(&self) {
        for (block, least) in (0..).zip(&self.acknowledged) {
            let read = self.client.gate().read(block * BLOCK, BLOCK as usize).await;
            let bytes = read.expect("a read");
            let version = bytes[0];
            assert!(
                bytes.iter().all(|byte| *byte == version),
                "block {block} is torn"
            );
            let least = least.get();
            assert!(version >= least, "block {block}: {version} and not {least}");
        }
    }
}

/// The identity of the origin, with the serial number that udev has for it, if any.
fn origin_identity(serial: Option<&str>) -> DeviceIdentity {
    let serial = serial.map(|serial| (Fact::UdevSerial, serial.to_owned()));
    let facts = [(Fact::Path, ORIGIN.to_owned())].into_iter().chain(serial);
    DeviceIdentity::of(&facts.collect::<BTreeMap<_, _>>())
}

/// Passes the time until the devices are back.
async fn stay_away(machine: &SimMachine, life: &ReturnedLife, away: Away) {
    for round in 0..200 {
        life.local.env().timer.sleep(Nanos::from_millis(60)).await;
        if away == Away::OriginForgets {
            assert!(life.write().await);
        }
        if away == Away::OriginForgets && round % 7 == 0 && round < 150 {
            machine.forget(ORIGIN);
        }
    }
}

/// Another disk answers in the origin's place; after that, the origin with a serial number.
async fn come_after_another(machine: &SimMachine, life: &ReturnedLife) {
    machine.identify(ORIGIN, Some(DeviceIdentity::new("another")));
    life.local.env().timer.sleep(Nanos::from_secs(40)).await;
    let mut events = machine.take_events().into_iter();
    let is_open = events.any(|event| matches!(event, NodeEvent::OriginReopened { .. }));
    assert!(!is_open, "another disk was taken for the origin");
    machine.identify(ORIGIN, Some(origin_identity(Some("found by udev"))));
}

async fn live(
    machine: Rc<SimMachine>,
    config: Rc<control::config::Config>,
    local: Local<SimDriver>,
    away: Away,
) {
    let timer = local.env().timer;
    timer.sleep(Nanos(1)).await;
    let frontend = Direct::new(&local);
    let platform = SimPlatform::new(machine.clone(), local.clone());
    let started = RunningNode::start(&config, platform, frontend.clone()).await;
    let node = started.expect("a sound configuration");
    let life = ReturnedLife {
        local,
        client: frontend.client("db").expect("it is served"),
        acknowledged: Default::default(),
        version: Cell::new(0),
    };
    for _ in 0..8 {
        assert!(life.write().await);
    }
    match away {
        Away::LogsUnresponsive => LOGS.iter().for_each(|log| machine.silence(log)),
        Away::LogsPulled => LOGS.iter().for_each(|log| machine.pull(log)),
        Away::OneUnresponsive => machine.silence(LOGS[0]),
        Away::OnePulled => machine.pull(LOGS[0]),
        Away::OriginPulled => machine.pull(ORIGIN),
        Away::OriginForgets => {}
    }
    let went_on = life.write().await;
    let stays = !matches!(away, Away::LogsUnresponsive | Away::LogsPulled);
    assert_eq!(went_on, stays, "{away:?}");
    stay_away(&machine, &life, away).await;
    machine.repair();
    if away == Away::OriginPulled {
        come_after_another(&machine, &life).await;
    }
    let mut seconds = 0;
    while !life.write().await {
        seconds += 1;
        assert!(seconds < MOST, "{away:?}: writes fail for ever");
        timer.sleep(Nanos::from_secs(1)).await;
    }
    life.read_back().await;
    let log = async || {
        let status = node.status().await.expect("a status is given");
        status.volumes[0].write_back.clone().expect("its log")
    };
    while log().await.dirty_bytes > 0 {
        seconds += 1;
        assert!(seconds < MOST, "{away:?}: its data stays dirty for ever");
        timer.sleep(Nanos::from_secs(1)).await;
    }
    while log().await.copies < 2 {
        seconds += 1;
        assert!(seconds < MOST, "{away:?}: a device is never taken back");
        timer.sleep(Nanos::from_secs(1)).await;
    }
    life.read_back().await;
    if matches!(away, Away::OneUnresponsive | Away::OnePulled) {
        // The returned copy has the writes acknowledged since, so that the other is not needed.
        machine.pull(ORIGIN);
        assert!(life.write().await);
        machine.pull(LOGS[1]);
        life.read_back().await;
        machine.repair();
    }
    drop(life);
    node.stop().await.expect("its origin is there");
}

fn run(away: Away) {
    let limits = match away {
        Away::OriginForgets => "max_lag = \"1s\"\ndirty_max = \"1MiB\"",
        _ => "max_lag = \"30s\"\ndirty_max = \"1MiB\"",
    };
    let text = configuration("origin", Cleaning::Ordered, limits);
    let config = Rc::new(check_alone(&text[..], &[]).expect("a sound configuration"));
    let mut world = SimWorld::new(7);
    let machine = SimMachine::new(&mut world, &config, |device| {
        let mib = match device.name.as_str() {
            "origin" => 1,
            "ssd" => 4,
            _ => LOG_MIB,
        };
        // A slow origin has writes before their flush for a while.
        let micros = match (device.name.as_str(), away) {
            ("origin", Away::OriginForgets) => 20_000,
            _ => 100,
        };
        Ok(disk(device.name.as_str(), mib, micros))
    });
    let machine = machine.expect("a sound world");
    machine.identify(ORIGIN, Some(origin_identity(None)));
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    let given = machine.clone();
    let (outcome, _) = run_alone(&mut sim, move |local| {
        live(given.clone(), config.clone(), local, away)
    });
    assert_eq!(outcome, RunOutcome::Done, "{away:?}");
    let again = machine.take_events().into_iter().any(|event| match event {
        NodeEvent::LogReopened { .. } => away != Away::OriginPulled,
        NodeEvent::OriginReopened { .. } => {
            matches!(away, Away::OriginPulled | Away::OriginForgets)
        }
        _ => false,
    });
    assert_eq!(again, away != Away::OriginForgets, "{away:?}: opened again");
}

#[test]
fn a_log_goes_on_once_its_devices_answer_again() {
    run(Away::LogsUnresponsive);
    run(Away::LogsPulled);
}

#[test]
fn a_device_of_a_log_takes_part_again_once_it_answers() {
    run(Away::OneUnresponsive);
    run(Away::OnePulled);
}

/// The origin is there: another opening would lose the writes since, and so on without end.
#[test]
fn an_origin_that_forgot_writes_gets_them_again_and_stays_open() {
    run(Away::OriginForgets);
}

#[test]
fn an_origin_that_was_unplugged_gets_dirty_data_once_it_is_back() {
    run(Away::OriginPulled);
}
