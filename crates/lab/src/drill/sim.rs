//! The drill's world in virtual time: a node whose drives are models of drives.

use super::play::{Counts, Site, look, play};
use super::row::{Row, to_message};
use super::setup::{Cell, Setup};
use block::{BoxDevice, Device, Env, Fua, Geometry, Lba, Nanos, Sectors};
use control::check::check_alone;
use control::config::{Config, Name};
use control::protocol::{Reply, Request};
use control::status::Array;
use node::Before;
use shard::Local;
use sim::model::Wear;
use sim::model::catalogue::Drive;
use sim::{DiskSpec, Service, Sim, SimDriver, World};
use simnode::{Direct, Machine, Running, SimPlatform, create_array, run_alone};
use std::path::Path;
use std::rc::Rc;

/// What every drive is.
const MODEL: &str = "ST3500320AS";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;
/// How often the end of a scrub is looked for.
const LOOK: Nanos = Nanos::from_millis(50);

fn path(drive: &str) -> String {
    format!("/simulated/{drive}")
}

/// Runs one cell.
pub fn run(setup: &Setup, seed: u64, cell: Cell) -> Result<Row, String> {
    world(setup, seed, cell, None)
}

/// A cell in which somebody changes content behind the arrays' back.
#[cfg(test)]
pub fn run_corrupt(setup: &Setup, seed: u64) -> Result<Row, String> {
    let cells = setup.cells().into_iter();
    let mut singles = cells.filter(|cell| cell.scenario.drives.len() == 1);
    let cell = singles.next().ok_or("no single drive is pulled")?;
    world(setup, seed, cell, Some(Name::new("b0")?))
}

fn world(setup: &Setup, seed: u64, cell: Cell, corrupt: Option<Name>) -> Result<Row, String> {
    let source = |name: &str| format!("path = {:?}", path(name));
    let text = setup.configuration(Path::new("/simulated"), source);
    let config = check_alone(&text, &[]).map_err(|problems| {
        let problems = problems.iter().map(to_message);
        problems.collect::<Vec<_>>().join("; ")
    })?;
    let mut world = World::new(seed);
    let model = Drive::named(MODEL).map_err(to_message)?;
    let mut models = Vec::new();
    for number in 0..config.devices.len() {
        // Spindles turn independently of each other.
        let phase = (number as f64 / 17.0).fract();
        models.push(world.add_model(model.model(phase, Wear::Steady).map_err(to_message)?));
    }
    let mut models = models.into_iter();
    let machine = Machine::new(&mut world, &config, |device| {
        let name = device.name.as_str();
        let mut spec = DiskSpec::new(Geometry::new(name, setup.drive_size(), Sectors(1)));
        let model = models.next().expect("one for each");
        spec.service = Service::Model { model, unit: 0 };
        Ok(spec)
    });
    let machine = machine.map_err(to_message)?;
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let setup = setup.clone();
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        live(local, machine, &config, &setup, &cell, corrupt).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

struct Bench<'a> {
    setup: &'a Setup,
    env: Env,
    machine: Rc<Machine>,
    node: Running,
    /// The paths of what the cell pulls.
    pulled: Vec<String>,
}

async fn live(
    local: Local<SimDriver>,
    machine: Rc<Machine>,
    config: &Config,
    setup: &Setup,
    cell: &Cell,
    corrupt: Option<Name>,
) -> Result<Row, String> {
    let env = local.env();
    let platform = SimPlatform::new(machine.clone(), local.clone());
    for array in setup.arrays() {
        create_array(config, platform.clone(), &array.name.value, Before::Used).await?;
    }
    let frontend = Direct::new(env.clone());
    let node = Running::start(config, platform, frontend.clone()).await?;
    if let Some(name) = corrupt {
        let victim = local
            .disk(machine.target(&path(name.as_str())))
            .map_err(to_message)?;
        let env = env.clone();
        env.spawn.clone().spawn(async move {
            // After the content is there, and before it is read.
            env.timer.sleep(Nanos::from_secs(3)).await;
            let mut buf = env.pool.get(4096).await;
            buf.fill(0);
            // What it says does not matter: the drill must see the bytes.
            let _ = victim.write(Lba(4096), buf.share(), Fua::No).await;
        });
    }
    let mut volumes = Vec::new();
    let mut clients = Vec::new();
    for volume in setup.volumes() {
        let name = &volume.name.value;
        let client = frontend.client(name.as_str());
        let client = client.ok_or_else(|| format!("volume {name} is not served"))?;
        volumes.push(BoxDevice::new(client.gate().device().clone()));
        clients.push(client);
    }
    let drives = cell.scenario.drives.iter();
    let site = Bench {
        setup,
        env: env.clone(),
        machine,
        node: node.clone(),
        pulled: drives.map(|drive| path(drive.as_str())).collect(),
    };
    let row = play(env, volumes, &site, setup, cell, "sim").await?;
    drop(clients);
    node.stop().await?;
    Ok(row)
}

impl Bench<'_> {
    async fn ask(&self, request: Request) -> Result<Vec<Array>, String> {
        match self.node.ask(request).await? {
            Reply::Status(status) => Ok(status.arrays),
            _ => Ok(Vec::new()),
        }
    }

    async fn scrub_one(&self, array: &str) -> Result<u64, String> {
        let request = Request::Scrub {
            array: array.to_owned(),
            repair: false,
        };
        self.ask(request).await?;
        loop {
            let arrays = self.ask(Request::Status).await?;
            let found = arrays.into_iter().find(|found| found.name == array);
            match found.and_then(|found| found.scrub) {
                Some(scrub) if scrub.running => self.env.timer.sleep(LOOK).await,
                Some(scrub) => return scrub.error.map_or(Ok(scrub.mismatches), Err),
                None => return Err(format!("array {array} runs no more")),
            }
        }
    }
}

impl Site for Bench<'_> {
    async fn pull(&self) -> Result<(), String> {
        self.pulled.iter().for_each(|path| self.machine.pull(path));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        let pulled = self.pulled.iter();
        pulled.for_each(|path| self.machine.give_back(path));
        Ok(())
    }

    async fn is_whole(&self) -> Result<bool, String> {
        Ok(look(self.setup, &self.ask(Request::Status).await?).0)
    }

    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        let mut differ = Vec::new();
        for name in self.setup.redundant() {
            differ.push((name.to_string(), self.scrub_one(name.as_str()).await?));
        }
        Ok(differ)
    }

    async fn counts(&self) -> Result<Counts, String> {
        Ok(look(self.setup, &self.ask(Request::Status).await?).1)
    }
}
