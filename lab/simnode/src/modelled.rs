//! Nodes on models of drives, in virtual time.
//!
//! Not here: the choice of drives, and the load.

use crate::{Direct, DirectClient, RunningNode, SimMachine, SimPlatform};
use block::{BoxDevice, Geometry, IoResult, Sectors, TargetId};
use control::check::check_alone;
use control::config::{Config, Device};
use drives::SsdWear;
use drives::catalogue::Drive;
use shard::Local;
use sim::{
    DiskSpec, FaultEffect, FaultPlan, FaultRule, OpFilter, ServiceTime, SimDriver, SimWorld, When,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The model of a node's device.
pub struct Modelled {
    /// A drive of the catalogue.
    pub drive: &'static str,
    /// The first angle of the drive's platters: a part of a turn.
    pub phase: f64,
    /// The size of the device.
    pub size: Sectors,
}

/// Parses a configuration; the error lists all problems.
pub fn configuration(text: &str) -> Result<Config, String> {
    check_alone(text, &[]).map_err(|problems| {
        let problems = problems.iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("; ")
    })
}

/// The phase of the drive of this number: spindles turn independently of each other.
pub fn phase(number: usize) -> f64 {
    (number as f64 / 17.0).fract()
}

/// The machine of a configuration. `modelled` gives the model of each device by its number.
pub fn machine(
    world: &mut SimWorld,
    config: &Config,
    modelled: impl Fn(usize, &Device) -> Modelled,
) -> Result<Rc<SimMachine>, String> {
    let mut specs = Vec::new();
    for (number, device) in config.devices.iter().enumerate() {
        let Modelled { drive, phase, size } = modelled(number, device);
        let model = Drive::named(drive).and_then(|drive| drive.model(phase, SsdWear::Steady));
        let model = world.add_model(model.map_err(|error| error.to_string())?);
        let mut spec = DiskSpec::new(Geometry::new(device.name.as_str(), size, Sectors(1)));
        spec.service = ServiceTime::Model { model, unit: 0 };
        specs.push(spec);
    }
    let mut specs = specs.into_iter();
    let spec = |_: &Device| IoResult::Ok(specs.next().expect("one for each"));
    SimMachine::new(world, config, spec).map_err(|error| error.to_string())
}

/// Has a disk acknowledge the write of this number, counted from 1, and lose the write.
pub fn drop_write(world: &mut SimWorld, disk: TargetId, number: Option<u64>) -> Result<(), String> {
    let rule = number
        .map(|write| FaultRule::new(disk, OpFilter::Writes, When::Nth(write), FaultEffect::Drop));
    let mut plan = FaultPlan::default();
    plan.rules.extend(rule);
    world.set_plan(plan).map_err(|error| error.to_string())
}

/// A daemon on such a machine, which is started and ended any number of times.
pub struct ModelledDaemon {
    /// The configuration of its starts.
    pub config: Config,
    /// Its disks.
    pub machine: Rc<SimMachine>,
    /// The shard of the daemon.
    pub local: Local<SimDriver>,
    running: RefCell<Option<(RunningNode, Vec<DirectClient>)>>,
}

impl ModelledDaemon {
    /// A daemon that does not run yet.
    pub fn new(config: Config, machine: Rc<SimMachine>, local: Local<SimDriver>) -> ModelledDaemon {
        ModelledDaemon {
            config,
            machine,
            local,
            running: RefCell::default(),
        }
    }

    /// The daemon's machine, as seen by the next node.
    pub fn platform(&self) -> SimPlatform {
        SimPlatform::new(self.machine.clone(), self.local.clone())
    }

    /// Starts the daemon. Returns its volumes, in the order of the configuration.
    pub async fn start(&self) -> Result<Vec<BoxDevice>, String> {
        let frontend = Direct::new(&self.local);
        let node = RunningNode::start(&self.config, self.platform(), frontend.clone()).await?;
        let mut devices = Vec::new();
        let mut clients = Vec::new();
        for volume in &self.config.volumes {
            let name = volume.name.as_str();
            let client = frontend.client(name);
            let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
            devices.push(BoxDevice::new(client.volume().clone()));
            clients.push(client);
        }
        *self.running.borrow_mut() = Some((node, clients));
        Ok(devices)
    }

    /// The node that runs.
    pub fn node(&self) -> Result<RunningNode, String> {
        let running = self.running.borrow();
        let (node, _) = running.as_ref().ok_or("the daemon does not run")?;
        Ok(node.clone())
    }

    /// Ends the daemon in order.
    pub async fn stop(&self) -> Result<(), String> {
        let running = self.running.take().ok_or("the daemon does not run")?;
        let (node, clients) = running;
        drop(clients);
        node.stop().await
    }
}
