//! The node of a timeline: a write-back volume on models of drives.

use super::{BLOCK_BYTES, Sample};
use block::{BoxDevice, Geometry, IoResult, Nanos, Sectors};
use control::check::check_alone;
use control::config::{Config, Device};
use control::protocol::Request;
use control::status::Status;
use shard::Local;
use sim::model::Wear;
use sim::model::catalogue::Drive;
use sim::{DiskSpec, Effect, Medium, Ops, Plan, Rule, Service, SimDriver, When, World};
use simnode::{Client, Direct, Machine, Running, SimPlatform};
use std::cell::RefCell;
use std::rc::Rc;

/// The set-up of the drill: two copies of a log, each beside a half of a cache, before a disk.
const SET_UP: &str = include_str!("../drill/write_back.toml");
const ORIGIN: &str = "origin";
const LOGS: [&str; 2] = ["log-a", "log-b"];
/// What the origin is, and what logs and caches are on.
const DISK: &str = "ST3500320AS";
const FLASH: &str = "X25-E";
/// Random places of it are far apart for the heads.
const ORIGIN_SIZE: Sectors = Sectors::from_mib(2048);
const LOG_SIZE: Sectors = Sectors::from_mib(128);
const CACHE_SIZE: Sectors = Sectors::from_mib(64);

pub(super) struct Stage {
    config: Config,
    machine: Rc<Machine>,
    local: Local<SimDriver>,
    node: RefCell<Option<(Running, Client)>>,
}

/// The disks, before anything runs on them.
pub(super) struct Disks {
    config: Config,
    machine: Rc<Machine>,
    pub(super) origin: Medium,
}

impl Disks {
    /// In `world`; the origin acknowledges the write of the number `dropped`, counted from 1,
    /// and loses it.
    pub(super) fn new(world: &mut World, dropped: Option<u64>) -> Result<Disks, String> {
        let config = check_alone(SET_UP, &[]).map_err(|problems| {
            let problems = problems.iter().map(ToString::to_string);
            problems.collect::<Vec<_>>().join("; ")
        })?;
        let mut models = Vec::new();
        for device in &config.devices {
            let name = if device.name.as_str() == ORIGIN {
                DISK
            } else {
                FLASH
            };
            let model = Drive::named(name).and_then(|drive| drive.model(0.0, Wear::Steady));
            models.push(world.add_model(model.map_err(|error| error.to_string())?));
        }
        let mut models = models.into_iter();
        let machine = Machine::new(world, &config, |device| {
            let size = match device.name.as_str() {
                ORIGIN => ORIGIN_SIZE,
                name if LOGS.contains(&name) => LOG_SIZE,
                _ => CACHE_SIZE,
            };
            let mut spec = DiskSpec::new(Geometry::new(device.name.as_str(), size, Sectors(1)));
            let model = models.next().expect("one for each");
            spec.service = Service::Model { model, unit: 0 };
            IoResult::Ok(spec)
        });
        let machine = machine.map_err(|error| error.to_string())?;
        let target = machine.target(&path(&config, ORIGIN));
        let origin = world.medium(target).expect("it keeps its bytes");
        let mut plan = Plan::default();
        plan.rules.extend(dropped.map(|write| Rule {
            disk: target,
            ops: Ops::Writes,
            within: None,
            when: When::Nth(write),
            effect: Effect::Drop,
        }));
        world.set_plan(plan).map_err(|error| error.to_string())?;
        Ok(Disks {
            config,
            machine,
            origin,
        })
    }

    /// A stage that they are on; nothing runs yet.
    pub(super) fn stage(self, local: Local<SimDriver>) -> Stage {
        Stage {
            config: self.config,
            machine: self.machine,
            local,
            node: RefCell::default(),
        }
    }
}

/// The path of the device called `name`.
fn path(config: &Config, name: &str) -> String {
    let named = |device: &&Device| device.name.as_str() == name;
    let device = config.devices.iter().find(named);
    let path = device.and_then(|device| device.path.as_ref());
    path.expect("the set-up has it").value.display().to_string()
}

impl Stage {
    /// The limit of the lag that is configured.
    pub(super) fn max_lag_s(&self) -> f64 {
        self.config.volumes[0].max_lag.value.as_secs_f64()
    }

    /// Starts the daemon; the volume.
    pub(super) async fn start(&self) -> Result<BoxDevice, String> {
        let platform = SimPlatform::new(self.machine.clone(), self.local.clone());
        let frontend = Direct::new(self.local.env());
        let node = Running::start(&self.config, platform, frontend.clone()).await?;
        let name = self.config.volumes[0].name.as_str();
        let client = frontend.client(name);
        let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
        let device = BoxDevice::new(client.gate().device().clone());
        *self.node.borrow_mut() = Some((node, client));
        Ok(device)
    }

    /// Ends it in order.
    pub(super) async fn stop(&self) -> Result<(), String> {
        let (node, client) = self.node.take().ok_or("the node does not run")?;
        drop(client);
        node.stop().await
    }

    fn node(&self) -> Result<Running, String> {
        let node = self.node.borrow();
        let (node, _) = node.as_ref().ok_or("the node does not run")?;
        Ok(node.clone())
    }

    /// Unplugs the second device of the log.
    pub(super) fn lose(&self) {
        self.machine.pull(&path(&self.config, LOGS[1]));
    }

    pub(super) fn give_back(&self) {
        self.machine.give_back(&path(&self.config, LOGS[1]));
    }

    /// Gives the log up; returns once the origin answers writes.
    pub(super) async fn detach(&self) -> Result<(), String> {
        let request = Request::SetMode {
            volume: self.config.volumes[0].name.to_string(),
            mode: "write-through".into(),
        };
        self.node()?.ask(request).await.map(drop)
    }

    /// How the volume stands, and the blocks that the origin has got since the daemon started;
    /// nothing while none runs.
    pub(super) async fn look(&self, now: Nanos) -> Result<Option<(Sample, u64)>, String> {
        match self.node() {
            Err(_) => Ok(None),
            Ok(node) => Ok(Some(sample(&node.status().await?, now))),
        }
    }
}

fn sample(status: &Status, now: Nanos) -> (Sample, u64) {
    let log = status.volumes.iter().find_map(|v| v.write_back.as_ref());
    let mut origins = status.devices.iter().filter(|d| d.name == ORIGIN);
    let written = origins.next().map_or(0, |origin| origin.write_total.bytes);
    let sample = Sample {
        at_s: now.as_secs_f64(),
        dirty_bytes: log.map_or(0, |log| log.owed_bytes),
        lag_s: log.map_or(0.0, |log| log.lag_s),
        copies: log.map_or(0, |log| log.copies),
        ..Sample::default()
    };
    (sample, written / BLOCK_BYTES as u64)
}
