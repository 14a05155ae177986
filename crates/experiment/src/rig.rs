//! A whole node in virtual time: what an ordinary configuration says, on models of drives.
//!
//! The disks below take no time; what a request takes is the `model` of each device, as the
//! daemon itself applies it. Arrays are made first, as by `hotset array create`.

use block::{Env, Gate, Geometry, Nanos, Sectors};
use control::check::check_alone;
use control::config::{Config, Device};
use node::{Devices, Door, Node, Source};
use shard::Local;
use sim::model::catalogue::Drive;
use sim::{DiskSpec, Service, Sim, SimDriver, Span, World};
use simnode::{Client, Direct, Machine, SimPlatform, run_alone};
use std::rc::Rc;

/// The buffers of a daemon by default.
const BUFFER_BYTES: usize = 256 << 20;
const MIB: Sectors = Sectors::from_mib(1);

/// A volume as its clients reach it.
pub type Volume = Gate<Door<SimDriver>>;

/// A node that runs.
pub struct Rig {
    /// Of the shard that everything runs on.
    pub env: Env,
    frontend: Rc<Direct>,
    clients: Vec<Client>,
    _node: Rc<Node<SimPlatform>>,
}

impl Rig {
    /// The volume called `name`.
    pub fn volume(&mut self, name: &str) -> Result<Volume, String> {
        let client = self.frontend.client(name);
        let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
        let gate = client.gate().clone();
        self.clients.push(client);
        Ok(gate)
    }
}

/// Reads a topology; the error says all that is wrong with it.
pub fn topology(text: &str) -> Result<Config, String> {
    let drives: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
    check_alone(text, &drives).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(told).collect();
        problems.join("; ")
    })
}

/// Runs `work` on a node as `config` has it: what it came to, and how long it took there.
pub fn run<T: 'static>(
    seed: u64,
    config: Config,
    work: impl AsyncFnOnce(Rig) -> Result<T, String> + 'static,
) -> Result<(T, Nanos), String> {
    let mut world = World::new(seed);
    let machine = Machine::new(&mut world, &config, disk).map_err(told)?;
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        let timer = local.env().timer;
        let rig = start(local, machine, &config).await?;
        let began = timer.now();
        let came = work(rig).await?;
        Ok((came, timer.now() - began))
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

fn disk(device: &Device) -> block::IoResult<DiskSpec> {
    let name = device.name.as_str();
    let model = device.model.as_ref().map_or("", |model| model.as_str());
    // Whole stripes, which are at most 1 MiB long.
    let stripes = Drive::named(model)?.capacity().0 / MIB.0;
    let sectors = stripes * MIB.0 * u64::from(device.model_disks.value);
    let mut spec = DiskSpec::new(Geometry::new(name, Sectors(sectors), Sectors(1)));
    spec.service = Service::uniform(Span::exactly(Nanos::ZERO));
    Ok(spec)
}

async fn start(
    local: Local<SimDriver>,
    machine: Rc<Machine>,
    config: &Config,
) -> Result<Rig, String> {
    let platform = SimPlatform::new(machine, local.clone());
    for array in &config.arrays {
        let devices = Devices::new(config, platform.clone());
        let Some(Source::Array(array)) = devices.find(&array.name.value) else {
            return Err(format!("no array is named {}", array.name.value));
        };
        // To make parity of new drives agree takes hours, which are not measured.
        devices.create(&array, true).await.map_err(told)?.keep();
        devices.stop().await.map_err(told)?;
    }
    let env = local.env();
    let frontend = Direct::new(env.clone());
    let node = Node::start(config, platform, vec![frontend.clone()]).await?;
    Node::supervise(&node);
    Ok(Rig {
        env,
        frontend,
        clients: Vec::new(),
        _node: node,
    })
}

fn told(error: impl ToString) -> String {
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
