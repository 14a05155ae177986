//! A whole node in virtual time: an ordinary configuration, on models of drives.
//!
//! The disks below take no time; the time of a request comes from the `model` of each device, as
//! the daemon itself applies it. But the daemon would pace each partition of a drive as a drive of
//! its own: there the disk below has the model, one for all partitions. Arrays are made first, as
//! by `hotset array create`.

use crate::parted::Parted;
use crate::slowed::Slowed;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use block::{BoxDevice, Env, Gate, Geometry, Nanos, Sectors};
use control::check::check_alone;
use control::config::{Config, Device};
use control::observed::Observed;
use control::protocol::{ControlRequest, Reply};
use control::status::{NamedCounters, Status};
use drives::SsdWear;
use drives::catalogue::Drive;
use node::{Before, ReportSession};
use shard::Local;
use sim::{DiskSpec, Medium, ServiceSpan, ServiceTime, SimDriver, SimHost, SimRng, SimWorld};
use simnode::{
    Direct, DirectClient, RunningNode, SimMachine, SimPlatform, create_array, run_alone,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use trace::{TapeReader, TraceRecord};

/// Draws the initial positions of the spindles.
const PHASES: u64 = 12;
/// The buffers of a daemon by default.
const BUFFER_BYTES: usize = 256 << 20;
/// Time from the end of a daemon to the start of the next.
const RESTART: Nanos = Nanos::from_secs(10);
const MIB: Sectors = Sectors::from_mib(1);

/// A volume as clients see it.
pub type Volume = Gate<BoxDevice>;

/// A node that runs.
pub struct NodeRig {
    /// Environment of the shard that everything runs on.
    pub env: Env,
    config: Config,
    machine: Rc<SimMachine>,
    platform: SimPlatform,
    frontend: Rc<Direct>,
    clients: Vec<DirectClient>,
    media: BTreeMap<String, Medium>,
    node: RunningNode,
}

/// An observer of a node while other work runs there.
pub struct NodeWatch(RunningNode);

impl NodeWatch {
    /// Observations of a volume so far.
    pub async fn observe(&self, volume: &str) -> Result<Observed, String> {
        let volume = volume.to_owned();
        let asked = ControlRequest::Observe { volume };
        match self.0.ask(asked).await? {
            Reply::Observed(observed) => Ok(*observed),
            other => Err(format!("nothing was observed: {other:?}")),
        }
    }

    /// Counters of the node's only pool.
    pub async fn counters(&self) -> Result<NamedCounters, String> {
        let mut pools = self.status().await?.pools.into_iter();
        match (pools.next(), pools.next()) {
            (Some(pool), None) => Ok(pool.counters),
            _ => Err("the node has not one pool".into()),
        }
    }

    /// Mean seconds in which these devices had a request in flight.
    pub async fn busy_s(&self, names: &[String]) -> Result<f64, String> {
        let devices = self.status().await?.devices.into_iter();
        let named = devices.filter(|device| names.contains(&device.name));
        let busy: Vec<f64> = named.map(|device| device.busy_s).collect();
        match busy.len() == names.len() {
            true => Ok(busy.iter().sum::<f64>() / names.len() as f64),
            false => Err(format!("not all of {} are open", names.join(", "))),
        }
    }

    /// Status of the node, as in `hotset status`.
    pub async fn status(&self) -> Result<Status, String> {
        self.0.status().await
    }
}

/// Connection of a device to the machine.
pub struct Plug {
    machine: Rc<SimMachine>,
    path: String,
}

impl Plug {
    /// Unplugs the device.
    pub fn pull(&self) {
        self.machine.pull(&self.path);
    }
}

/// A recorder of the clients' requests to a volume, until dropped.
pub struct ClientTape {
    node: RunningNode,
    session: ReportSession,
    reader: TapeReader,
}

impl ClientTape {
    /// Takes the records since the last call.
    pub async fn take(&mut self) -> Result<Vec<TraceRecord>, String> {
        let asked = ControlRequest::TakeRecords;
        let records = match self.node.handle(asked, &mut self.session).await {
            Reply::Records(records) if records.dropped == 0 => records,
            Reply::Records(records) => {
                return Err(format!("{} requests were not recorded", records.dropped));
            }
            Reply::Error(what) => return Err(what),
            other => return Err(format!("nothing was recorded: {other:?}")),
        };
        let piece = STANDARD.decode(records.piece).map_err(to_message)?;
        self.reader.records(&piece).map_err(to_message)
    }
}

impl NodeRig {
    /// Begins to record the volume called `name`.
    pub async fn tape(&self, name: &str) -> Result<ClientTape, String> {
        let (node, mut session) = (self.node.clone(), ReportSession::default());
        let volume = name.to_owned();
        match node
            .handle(ControlRequest::Record { volume }, &mut session)
            .await
        {
            Reply::Error(what) => Err(what),
            _ => Ok(ClientTape {
                node,
                session,
                reader: TapeReader::default(),
            }),
        }
    }

    /// The volume called `name`.
    pub fn volume(&mut self, name: &str) -> Result<Volume, String> {
        let client = self.frontend.client(name);
        let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
        let device = BoxDevice::new(client.volume().clone());
        self.clients.push(client);
        Ok(Gate::new(device, self.env.clone()))
    }

    /// The content of the device called `name`, from behind.
    pub fn medium(&self, name: &str) -> Result<&Medium, String> {
        let found = self.media.get(name);
        found.ok_or_else(|| format!("device {name} keeps nothing"))
    }

    /// Sends an operator's request to the node.
    pub async fn control(&self, request: ControlRequest) -> Result<(), String> {
        self.node.ask(request).await.map(drop)
    }

    /// Names of the devices that are not of the only pool.
    pub fn disks(&self) -> Vec<String> {
        disks(&self.config)
            .map(|device| device.name.to_string())
            .collect()
    }

    /// Name of the origin of the volume called `name`.
    pub fn origin(&self, name: &str) -> Result<String, String> {
        let volume = self.config.volumes.iter().find(|v| v.name.as_str() == name);
        let volume = volume.ok_or_else(|| format!("there is no volume {name}"))?;
        Ok(volume.origin.to_string())
    }

    /// Looks at the node that runs now.
    pub fn watch(&self) -> NodeWatch {
        NodeWatch(self.node.clone())
    }

    /// The flash drives of the only pool, to be pulled whatever the node does then.
    pub fn flash(&self) -> Vec<Plug> {
        let names = self.config.pools[0].devices.value.iter();
        names.filter_map(|name| self.plug(name.as_str())).collect()
    }

    /// Connection of the device called `name`, if there is one.
    pub fn plug(&self, name: &str) -> Option<Plug> {
        let mut devices = self.config.devices.iter();
        let device = devices.find(|device| device.name.as_str() == name)?;
        Some(Plug {
            machine: self.machine.clone(),
            path: path_of(device),
        })
    }

    /// Ends the node in order, and starts another on the same disks. Requests still at devices end
    /// in between, as before the end of a process.
    pub async fn restart(mut self) -> Result<NodeRig, String> {
        self.clients.clear();
        self.node.stop().await?;
        // The node's pools keep their devices as long as the node exists.
        drop(self.node);
        self.env.timer.sleep(RESTART).await;
        let (platform, frontend) = (self.platform.clone(), self.frontend.clone());
        let node = RunningNode::start(&self.config, platform, frontend).await?;
        Ok(NodeRig { node, ..self })
    }
}

/// Reads a topology; the error lists all problems.
pub fn topology(text: &str) -> Result<Config, String> {
    let drives: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
    check_alone(text, &drives).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(to_message).collect();
        problems.join("; ")
    })
}

/// A disk of the machine that differs from the `model` of its device.
pub struct OwnModel {
    /// Size of the disk.
    pub sectors: Sectors,
    /// Service time of the disk, in place of the `model`.
    pub service: Option<ServiceTime>,
}

/// Disks of a machine, by the names of their devices.
pub type Disks = BTreeMap<String, OwnModel>;

/// Devices with paths that end in a digit, as partitions of this length of drives in `world`.
pub fn partitions(
    seed: u64,
    config: &Config,
    partition: Sectors,
    world: &mut SimWorld,
) -> Result<Disks, String> {
    let mut phases = SimRng::fork(seed, PHASES);
    let mut drives = BTreeMap::new();
    let mut below = Disks::new();
    for device in &config.devices {
        let path = path_of(device);
        let drive = path.trim_end_matches(|c: char| c.is_ascii_digit());
        let Ok(number) = path[drive.len()..].parse::<u32>() else {
            continue;
        };
        let model = match drives.get(drive) {
            Some(model) => *model,
            None => {
                let phase = phase(&mut phases);
                let heads = named(device).and_then(|drive| drive.model(phase, SsdWear::Steady));
                let model = world.add_model(Parted::new(heads.map_err(to_message)?, partition));
                drives.insert(drive.to_owned(), model);
                model
            }
        };
        let unit = number - 1;
        let service = Some(ServiceTime::Model { model, unit });
        let sectors = partition;
        below.insert(device.name.to_string(), OwnModel { sectors, service });
    }
    Ok(below)
}

/// The flash drives of the only pool, all of this size together, at so many times the cost of
/// their models.
pub fn flash(
    config: &Config,
    size: Sectors,
    cost: f64,
    world: &mut SimWorld,
) -> Result<Disks, String> {
    let number = config.pools[0].devices.value.len().max(1) as u64;
    drives(pooled(config), Some(Sectors(size.0 / number)), cost, world)
}

/// Gives the flash drives of the only pool the part of their models' capacity that those of
/// another configuration have.
pub fn share_flash(
    (other, sizes): (&Config, &Disks),
    (config, below): (&Config, &mut Disks),
) -> Result<(), String> {
    let capacity = |device: &Device| {
        let drive = named(device).map_err(to_message)?;
        Ok::<_, String>(u128::from(drive.capacity().0))
    };
    let unsized_flash = "the load gives its flash no size";
    let (mut given, mut full) = (0, 0);
    for device in pooled(other) {
        let size = sizes.get(device.name.as_str()).ok_or(unsized_flash)?;
        given += u128::from(size.sectors.0);
        full += capacity(device)?;
    }
    for device in pooled(config) {
        let sectors = given * capacity(device)? / full;
        let disk = below.get_mut(device.name.as_str()).ok_or(unsized_flash)?;
        disk.sectors = Sectors(sectors as u64 / MIB.0 * MIB.0);
    }
    Ok(())
}

fn is_of_pool(config: &Config, device: &Device) -> bool {
    let mut names = config.pools[0].devices.value.iter();
    names.any(|name| name.as_str() == device.name.as_str())
}

/// The devices of the only pool.
fn pooled(config: &Config) -> impl Iterator<Item = &Device> {
    let devices = config.devices.iter();
    devices.filter(|device| is_of_pool(config, device))
}

/// The devices that are not of the only pool.
pub fn disks(config: &Config) -> impl Iterator<Item = &Device> {
    let devices = config.devices.iter();
    devices.filter(|device| !is_of_pool(config, device))
}

/// Draws the phase of a spindle.
pub fn phase(phases: &mut SimRng) -> f64 {
    phases.below(1 << 20) as f64 / f64::from(1 << 20)
}

/// These devices, of this size or that of their models, at so many times the cost of their models.
pub fn drives<'a>(
    devices: impl Iterator<Item = &'a Device>,
    size: Option<Sectors>,
    cost: f64,
    world: &mut SimWorld,
) -> Result<Disks, String> {
    let drive = |device: &Device| -> block::IoResult<(String, OwnModel)> {
        let model = named(device)?;
        let sectors = size.map_or_else(|| stripes(device), Ok)?;
        // At its own cost the daemon paces the device.
        let service = match cost == 1.0 {
            true => None,
            false => {
                let drive = Slowed::new(model.model(0.0, SsdWear::Steady)?, cost);
                let model = world.add_model(drive);
                Some(ServiceTime::Model { model, unit: 0 })
            }
        };
        Ok((device.name.to_string(), OwnModel { sectors, service }))
    };
    let drives: block::IoResult<Disks> = devices.map(drive).collect();
    drives.map_err(to_message)
}

/// Runs `work` on a node with the configuration `config`, in a world with the disks `below`;
/// returns the result, and the simulated time.
pub fn run_on<T: 'static>(
    mut world: SimWorld,
    mut config: Config,
    below: &Disks,
    work: impl AsyncFnOnce(NodeRig) -> Result<T, String> + 'static,
) -> Result<(T, Nanos), String> {
    let spec = |device: &Device| match below.get(device.name.as_str()) {
        None => disk(device),
        Some(below) => {
            let mut geometry = Geometry::new(device.name.as_str(), below.sectors, Sectors(1));
            geometry.rotational = matches!(named(device), Ok(Drive::Hdd(_)));
            let mut spec = DiskSpec::new(geometry);
            let none = ServiceTime::uniform(ServiceSpan::exactly(Nanos::ZERO));
            spec.service = below.service.unwrap_or(none);
            Ok(spec)
        }
    };
    let machine = SimMachine::new(&mut world, &config, spec).map_err(to_message)?;
    let medium = |device: &Device| {
        let medium = world.medium(machine.target(&path_of(device)));
        medium.map(|medium| (device.name.to_string(), medium))
    };
    let media = config.devices.iter().filter_map(medium).collect();
    for device in &mut config.devices {
        let replaced = below.get(device.name.as_str());
        if replaced.is_some_and(|below| below.service.is_some()) {
            device.model = None;
        }
    }
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        let timer = local.env().timer;
        let rig = start(local, machine, &config, media).await?;
        let began = timer.now();
        let came = work(rig).await?;
        Ok((came, timer.now() - began))
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

fn path_of(device: &Device) -> String {
    let path = device.path.as_ref();
    path.map_or(String::new(), |path| path.value.display().to_string())
}

/// The drive of a device's model.
pub fn named(device: &Device) -> block::IoResult<Drive> {
    Drive::named(device.model.as_ref().map_or("", |model| model.as_str()))
}

/// Whole stripes of a device, which are at most 1 MiB long.
fn stripes(device: &Device) -> block::IoResult<Sectors> {
    let stripes = named(device)?.capacity().0 / MIB.0;
    Ok(Sectors(
        stripes * MIB.0 * u64::from(device.model_disks.value),
    ))
}

fn disk(device: &Device) -> block::IoResult<DiskSpec> {
    let name = device.name.as_str();
    let mut spec = DiskSpec::new(Geometry::new(name, stripes(device)?, Sectors(1)));
    spec.service = ServiceTime::uniform(ServiceSpan::exactly(Nanos::ZERO));
    Ok(spec)
}

async fn start(
    local: Local<SimDriver>,
    machine: Rc<SimMachine>,
    config: &Config,
    media: BTreeMap<String, Medium>,
) -> Result<NodeRig, String> {
    let platform = SimPlatform::new(machine.clone(), local.clone());
    for array in &config.arrays {
        // To zero terabytes would take longer than all that is measured.
        let before = Before::Zeroes;
        create_array(config, platform.clone(), &array.name.value, before).await?;
    }
    let env = local.env();
    let frontend = Direct::new(&local);
    let node = RunningNode::start(config, platform.clone(), frontend.clone()).await?;
    Ok(NodeRig {
        env,
        config: config.clone(),
        machine,
        platform,
        frontend,
        clients: Vec::new(),
        media,
        node,
    })
}

fn to_message(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_a_sound_configuration_of_models() {
        let text = crate::maxiq::TOPOLOGY;
        let config = topology(text).unwrap();
        assert!(config.devices.iter().all(|device| device.model.is_some()));
        let error = topology(&text.replace("X25-E", "floppy")).unwrap_err();
        assert!(error.contains("floppy"), "{error}");
    }
}
