//! A drill of write-back volumes in virtual time: a node on models of drives.

use super::play::{Site, play};
use super::standing::Standing;
use super::{Cell, Loss, Part, Volumes};
use crate::drill::row::{Row, to_message};
use block::{BoxDevice, Geometry, IoResult, Lba, Sectors};
use control::check::check_alone;
use control::config::{Config, Name};
use shard::Local;
use sim::model::Wear;
use sim::model::catalogue::Drive;
use sim::{DiskSpec, Effect, Medium, Ops, Plan, Rule, Service, Sim, SimDriver, When, World};
use simnode::{Client, Direct, Machine, Running, SimPlatform, run_alone};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// What origins and journals are, and what logs and pools are on.
const DISK: &str = "ST3500320AS";
const FLASH: &str = "X25-E";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;

/// Which byte a canary alters.
const ALTERED: usize = 5_000_000;

fn path(drive: &str) -> String {
    format!("/simulated/{drive}")
}

/// What is made to go wrong.
#[derive(Clone, Copy, Default)]
struct Canary {
    /// The origin acknowledges this write of all, counted from 1, and loses it.
    dropped: Option<u64>,
    /// A byte of what the origin holds by itself is another.
    altered: bool,
}

/// Runs one cell.
pub fn run(volumes: &Volumes, seed: u64, cell: Cell) -> Result<Row, String> {
    world(volumes, seed, cell, Canary::default())
}

/// A cell in which the origin loses a write.
#[cfg(test)]
pub fn run_dropping(volumes: &Volumes, seed: u64) -> Result<Row, String> {
    let dropped = Canary {
        dropped: Some(3),
        ..Canary::default()
    };
    world(volumes, seed, volumes.cells().remove(0), dropped)
}

/// A cell in which a byte of the origin alone is another.
#[cfg(test)]
pub fn run_altered(volumes: &Volumes, seed: u64) -> Result<Row, String> {
    let altered = Canary {
        altered: true,
        ..Canary::default()
    };
    world(volumes, seed, volumes.cells().remove(0), altered)
}

fn world(volumes: &Volumes, seed: u64, cell: Cell, canary: Canary) -> Result<Row, String> {
    let source = |name: &str, _| format!("path = {:?}", path(name));
    let text = volumes.configuration(Path::new("/simulated"), source);
    let config = check_alone(&text[..], &[]).map_err(|problems| {
        let problems = problems.iter().map(to_message);
        problems.collect::<Vec<_>>().join("; ")
    })?;
    let mut world = World::new(seed);
    let mut models = Vec::new();
    for (number, device) in config.devices.iter().enumerate() {
        let part = volumes.drives[&device.name.value];
        let name = match part {
            Part::Origin | Part::Journal => DISK,
            Part::Log | Part::Pool => FLASH,
        };
        // Spindles turn independently of each other.
        let phase = (number as f64 / 17.0).fract();
        let model = Drive::named(name).and_then(|drive| drive.model(phase, Wear::Steady));
        models.push((part, world.add_model(model.map_err(to_message)?)));
    }
    let mut models = models.into_iter();
    let machine = Machine::new(&mut world, &config, |device| {
        let (part, model) = models.next().expect("one for each");
        let geometry = Geometry::new(device.name.as_str(), volumes.size(part), Sectors(1));
        let mut spec = DiskSpec::new(geometry);
        spec.service = Service::Model { model, unit: 0 };
        IoResult::Ok(spec)
    });
    let machine = machine.map_err(to_message)?;
    let origins = volumes.volumes.iter().map(|volume| {
        let target = machine.target(&path(volume.origin.value.as_str()));
        world.medium(target).expect("it keeps its bytes")
    });
    let origins = origins.collect();
    let mut plan = Plan::default();
    plan.rules.extend(canary.dropped.map(|write| Rule {
        disk: machine.target(&path(volumes.volumes[0].origin.value.as_str())),
        ops: Ops::Writes,
        within: None,
        when: When::Nth(write),
        effect: Effect::Drop,
    }));
    world.set_plan(plan).map_err(to_message)?;
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let volumes = volumes.clone();
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        let bench = Bench {
            volumes,
            cell,
            canary,
            config,
            machine,
            local,
            origins,
            node: RefCell::default(),
        };
        live(&bench).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

struct Bench {
    volumes: Volumes,
    cell: Cell,
    canary: Canary,
    config: Config,
    machine: Rc<Machine>,
    local: Local<SimDriver>,
    /// Of each volume.
    origins: Vec<Medium>,
    node: RefCell<Option<(Running, Vec<Client>)>>,
}

async fn live(bench: &Bench) -> Result<Row, String> {
    let devices = bench.start().await?;
    let (volumes, cell) = (&bench.volumes, &bench.cell);
    let row = play(bench.local.env(), devices, bench, volumes, cell, "sim").await?;
    bench.stop().await?;
    Ok(row)
}

impl Bench {
    fn node(&self) -> Result<Running, String> {
        let node = self.node.borrow();
        let node = node.as_ref().ok_or("the node does not run")?;
        Ok(node.0.clone())
    }

    fn each(&self, names: &[Name], what: impl Fn(&Machine, &str)) {
        for name in names {
            what(&self.machine, &path(name.as_str()));
        }
    }
}

impl Site for Bench {
    async fn lose(&self, step: usize) -> Result<(), String> {
        let scenario = &self.cell.scenario;
        self.each(&scenario.steps[step], |machine, path| match scenario.loss {
            Loss::Drives => machine.pull(path),
            Loss::Path => machine.silence(path),
        });
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        let scenario = &self.cell.scenario;
        for names in &scenario.steps {
            self.each(names, |machine, path| match scenario.loss {
                Loss::Drives => machine.give_back(path),
                Loss::Path => {
                    machine.forget(path);
                    machine.unsilence(path);
                }
            });
        }
        Ok(())
    }

    async fn standing(&self) -> Result<Standing, String> {
        Ok(Standing::of(&self.volumes, &self.node()?.status().await?))
    }

    async fn stop(&self) -> Result<Vec<Vec<u8>>, String> {
        let (node, clients) = self.node.take().ok_or("the node does not run")?;
        drop(clients);
        node.stop().await?;
        let bytes = self.volumes.size(Part::Origin).bytes() as usize;
        let images = self.origins.iter().map(|origin| {
            let mut image = vec![0; bytes];
            origin.durable(Lba::ZERO, &mut image);
            image[ALTERED] ^= u8::from(self.canary.altered);
            image
        });
        Ok(images.collect())
    }

    async fn start(&self) -> Result<Vec<BoxDevice>, String> {
        let platform = SimPlatform::new(self.machine.clone(), self.local.clone());
        let frontend = Direct::new(self.local.env());
        let node = Running::start(&self.config, platform, frontend.clone()).await?;
        let mut devices = Vec::new();
        let mut clients = Vec::new();
        for volume in &self.volumes.volumes {
            let name = volume.name.value.as_str();
            let client = frontend.client(name);
            let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
            devices.push(BoxDevice::new(client.gate().device().clone()));
            clients.push(client);
        }
        *self.node.borrow_mut() = Some((node, clients));
        Ok(devices)
    }
}
