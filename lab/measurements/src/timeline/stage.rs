//! The node of a timeline: a write-back volume on models of drives.

use super::{BLOCK_BYTES, TimelineSample};
use block::{BoxDevice, Nanos, Sectors};
use control::config::{Config, Device};
use control::protocol::ControlRequest;
use control::status::Status;
use shard::Local;
use sim::{Medium, SimDriver, SimWorld};
use simnode::SimMachine;
use simnode::modelled::{self, Modelled, ModelledDaemon};
use std::rc::Rc;

/// The set-up of the drill: two copies of a log, each beside a half of a cache, before a disk.
const SET_UP: &str = drill::WRITE_BACK;
const ORIGIN: &str = "origin";
const LOGS: [&str; 2] = ["log-a", "log-b"];
/// Models of the origin, and of logs and caches.
const DISK: &str = "ST3500320AS";
const FLASH: &str = "X25-E";
/// Size of the origin: random places are far apart for the heads.
const ORIGIN_SIZE: Sectors = Sectors::from_mib(2048);
const LOG_SIZE: Sectors = Sectors::from_mib(128);
const CACHE_SIZE: Sectors = Sectors::from_mib(64);

pub(super) struct TimelineStage(ModelledDaemon);

/// The disks, before anything runs on them.
pub(super) struct TimelineDisks {
    config: Config,
    machine: Rc<SimMachine>,
    pub(super) origin: Medium,
}

impl TimelineDisks {
    /// Creates the disks in `world`; the origin acknowledges the write of the number `dropped`,
    /// counted from 1, and loses it.
    pub(super) fn new(world: &mut SimWorld, dropped: Option<u64>) -> Result<TimelineDisks, String> {
        let config = modelled::configuration(SET_UP)?;
        let machine = modelled::machine(world, &config, |_, device| {
            let (drive, size) = match device.name.as_str() {
                ORIGIN => (DISK, ORIGIN_SIZE),
                name if LOGS.contains(&name) => (FLASH, LOG_SIZE),
                _ => (FLASH, CACHE_SIZE),
            };
            let phase = 0.0;
            Modelled { drive, phase, size }
        })?;
        let target = machine.target(&path(&config, ORIGIN));
        let origin = world.medium(target).expect("it keeps its bytes");
        modelled::drop_write(world, target, dropped)?;
        Ok(TimelineDisks {
            config,
            machine,
            origin,
        })
    }

    /// Returns a stage on these disks; nothing runs yet.
    pub(super) fn stage(self, local: Local<SimDriver>) -> TimelineStage {
        TimelineStage(ModelledDaemon::new(self.config, self.machine, local))
    }
}

/// The path of the device called `name`.
fn path(config: &Config, name: &str) -> String {
    let named = |device: &&Device| device.name.as_str() == name;
    let device = config.devices.iter().find(named);
    let path = device.and_then(|device| device.path.as_ref());
    path.expect("the set-up has it").value.display().to_string()
}

impl TimelineStage {
    /// The limit of the lag that is configured.
    pub(super) fn max_lag_s(&self) -> f64 {
        self.0.config.volumes[0].max_lag.value.as_secs_f64()
    }

    /// Starts the daemon; returns the volume.
    pub(super) async fn start(&self) -> Result<BoxDevice, String> {
        let mut volumes = self.0.start().await?;
        Ok(volumes.remove(0))
    }

    /// Ends the daemon in order.
    pub(super) async fn stop(&self) -> Result<(), String> {
        self.0.stop().await
    }

    /// Unplugs the second device of the log.
    pub(super) fn lose(&self) {
        self.0.machine.pull(&path(&self.0.config, LOGS[1]));
    }

    pub(super) fn give_back(&self) {
        self.0.machine.give_back(&path(&self.0.config, LOGS[1]));
    }

    /// Gives the log up; returns once the origin answers writes.
    pub(super) async fn detach(&self) -> Result<(), String> {
        let volume = self.0.config.volumes[0].name.to_string();
        let request = ControlRequest::set_mode(volume, "write-through");
        self.0.node()?.ask(request).await.map(drop)
    }

    /// The state of the volume, and the blocks that the origin has got since the daemon started;
    /// none while no daemon runs.
    pub(super) async fn look(&self, now: Nanos) -> Result<Option<(TimelineSample, u64)>, String> {
        match self.0.node() {
            Err(_) => Ok(None),
            Ok(node) => Ok(Some(sample(&node.status().await?, now))),
        }
    }
}

fn sample(status: &Status, now: Nanos) -> (TimelineSample, u64) {
    let log = status.volumes.iter().find_map(|v| v.write_back.as_ref());
    let mut origins = status.devices.iter().filter(|d| d.name == ORIGIN);
    let written = origins.next().map_or(0, |origin| origin.write_total.bytes);
    let sample = TimelineSample {
        at_s: now.as_secs_f64(),
        dirty_bytes: log.map_or(0, |log| log.dirty_bytes),
        lag_s: log.map_or(0.0, |log| log.lag_s),
        copies: log.map_or(0, |log| log.copies),
        ..TimelineSample::default()
    };
    (sample, written / BLOCK_BYTES as u64)
}
