//! The drill's world in virtual time: a node on models of drives.

use super::play::{Counts, DrillWorld, look, play};
use super::row::{DrillRow, to_message};
use super::setup::{DrillCell, DrillSetup};
use block::{Device, Fua, Lba, Nanos};
use control::config::Name;
use control::protocol::{ControlRequest, Reply};
use control::status::ArrayReport;
use node::Before;
use sim::{SimHost, SimWorld};
use simnode::modelled::{self, Modelled, ModelledDaemon};
use simnode::{create_array, run_alone};
use std::path::Path;

/// Model of every drive.
const MODEL: &str = "ST3500320AS";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;
/// Interval of checks for the end of a scrub.
const LOOK: Nanos = Nanos::from_millis(50);

fn path(drive: &str) -> String {
    format!("/simulated/{drive}")
}

/// Runs one cell.
pub fn run(setup: &DrillSetup, seed: u64, cell: DrillCell) -> Result<DrillRow, String> {
    world(setup, seed, cell, None)
}

/// Runs a cell in which content changes behind the arrays' back.
#[cfg(test)]
pub fn run_corrupt(setup: &DrillSetup, seed: u64) -> Result<DrillRow, String> {
    let cells = setup.cells().into_iter();
    let mut singles = cells.filter(|cell| cell.scenario.drives.len() == 1);
    let cell = singles.next().ok_or("no single drive is pulled")?;
    world(setup, seed, cell, Some(Name::new("b0")?))
}

fn world(
    setup: &DrillSetup,
    seed: u64,
    cell: DrillCell,
    corrupt: Option<Name>,
) -> Result<DrillRow, String> {
    let source = |name: &str| format!("path = {:?}", path(name));
    let text = setup.configuration(Path::new("/simulated"), source);
    let config = modelled::configuration(&text)?;
    let mut world = SimWorld::new(seed);
    let machine = modelled::machine(&mut world, &config, |number, _| Modelled {
        drive: MODEL,
        phase: modelled::phase(number),
        size: setup.drive_size(),
    })?;
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    let setup = setup.clone();
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        live(
            ModelledDaemon::new(config, machine, local),
            &setup,
            &cell,
            corrupt,
        )
        .await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

struct DrillBench<'a> {
    setup: &'a DrillSetup,
    daemon: ModelledDaemon,
    /// The paths of the drives that the cell pulls.
    pulled: Vec<String>,
}

async fn live(
    daemon: ModelledDaemon,
    setup: &DrillSetup,
    cell: &DrillCell,
    corrupt: Option<Name>,
) -> Result<DrillRow, String> {
    let env = daemon.local.env();
    for array in setup.arrays() {
        let name = &array.name.value;
        create_array(&daemon.config, daemon.platform(), name, Before::Used).await?;
    }
    let volumes = daemon.start().await?;
    if let Some(name) = corrupt {
        let victim = daemon.machine.target(&path(name.as_str()));
        let victim = daemon.local.disk(victim).map_err(to_message)?;
        let env = env.clone();
        env.spawn.clone().spawn(async move {
            // After the content is written, and before it is read.
            env.timer.sleep(Nanos::from_secs(3)).await;
            let mut buf = env.pool.get(4096).await;
            buf.fill(0);
            // The result of the write does not matter: the drill must see the bytes.
            let _ = victim.write(Lba(4096), buf.share(), Fua::No).await;
        });
    }
    let drives = cell.scenario.drives.iter();
    let site = DrillBench {
        setup,
        daemon,
        pulled: drives.map(|drive| path(drive.as_str())).collect(),
    };
    let row = play(env, volumes, &site, setup, cell, "sim").await?;
    site.daemon.stop().await?;
    Ok(row)
}

impl DrillBench<'_> {
    async fn ask(&self, request: ControlRequest) -> Result<Vec<ArrayReport>, String> {
        match self.daemon.node()?.ask(request).await? {
            Reply::Status(status) => Ok(status.arrays),
            _ => Ok(Vec::new()),
        }
    }

    async fn scrub_one(&self, array: &str) -> Result<u64, String> {
        let request = ControlRequest::Scrub {
            array: array.to_owned(),
            repair: false,
        };
        self.ask(request).await?;
        loop {
            let arrays = self.ask(ControlRequest::Status).await?;
            let found = arrays.into_iter().find(|found| found.name == array);
            match found.and_then(|found| found.scrub) {
                Some(scrub) if scrub.running => self.daemon.local.env().timer.sleep(LOOK).await,
                Some(scrub) => return scrub.error.map_or(Ok(scrub.mismatches), Err),
                None => return Err(format!("array {array} runs no more")),
            }
        }
    }
}

impl DrillWorld for DrillBench<'_> {
    async fn pull(&self) -> Result<(), String> {
        self.pulled
            .iter()
            .for_each(|path| self.daemon.machine.pull(path));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        let pulled = self.pulled.iter();
        pulled.for_each(|path| self.daemon.machine.give_back(path));
        Ok(())
    }

    async fn is_whole(&self) -> Result<bool, String> {
        Ok(look(self.setup, &self.ask(ControlRequest::Status).await?).0)
    }

    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        let mut differ = Vec::new();
        for name in self.setup.redundant() {
            differ.push((name.to_string(), self.scrub_one(name.as_str()).await?));
        }
        Ok(differ)
    }

    async fn counts(&self) -> Result<Counts, String> {
        Ok(look(self.setup, &self.ask(ControlRequest::Status).await?).1)
    }
}
