//! A drill of write-back volumes in virtual time: a node on models of drives.

use super::play::{WriteBackWorld, play};
use super::standing::VolumesStanding;
use super::{DrillLoss, DrivePart, Volumes, WriteBackCell};
use crate::row::DrillRow;
use block::{BoxDevice, Lba};
use control::config::Name;
use sim::{Medium, SimHost, SimWorld};
use simnode::modelled::{self, Modelled, ModelledDaemon};
use simnode::{SimMachine, run_alone};
use std::path::Path;

/// Models of the drives: of origins and journals, and of logs and pools.
const DISK: &str = "ST3500320AS";
const FLASH: &str = "X25-E";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;

/// Place of the byte that a canary alters.
const ALTERED: usize = 5_000_000;

fn path(drive: &str) -> String {
    format!("/simulated/{drive}")
}

/// Faults to inject.
#[derive(Clone, Copy, Default)]
struct DrillCanary {
    /// Number of the write, counted from 1, that the origin acknowledges and loses.
    dropped: Option<u64>,
    /// A byte of the content of the origin by itself is another.
    altered: bool,
}

/// Runs one cell.
pub fn run(volumes: &Volumes, seed: u64, cell: WriteBackCell) -> Result<DrillRow, String> {
    world(volumes, seed, cell, DrillCanary::default())
}

/// A cell in which the origin loses a write.
#[cfg(test)]
pub fn run_dropping(volumes: &Volumes, seed: u64) -> Result<DrillRow, String> {
    let dropped = DrillCanary {
        dropped: Some(3),
        ..DrillCanary::default()
    };
    world(volumes, seed, volumes.cells().remove(0), dropped)
}

/// A cell in which a byte of the origin alone is another.
#[cfg(test)]
pub fn run_altered(volumes: &Volumes, seed: u64) -> Result<DrillRow, String> {
    let altered = DrillCanary {
        altered: true,
        ..DrillCanary::default()
    };
    world(volumes, seed, volumes.cells().remove(0), altered)
}

fn world(
    volumes: &Volumes,
    seed: u64,
    cell: WriteBackCell,
    canary: DrillCanary,
) -> Result<DrillRow, String> {
    let source = |name: &str, _| format!("path = {:?}", path(name));
    let text = volumes.configuration(Path::new("/simulated"), source);
    let config = modelled::configuration(&text)?;
    let mut world = SimWorld::new(seed);
    let machine = modelled::machine(&mut world, &config, |number, device| {
        let part = volumes.drives[&device.name.value];
        let drive = match part {
            DrivePart::Origin | DrivePart::Journal => DISK,
            DrivePart::Log | DrivePart::Pool => FLASH,
        };
        let (phase, size) = (modelled::phase(number), volumes.size(part));
        Modelled { drive, phase, size }
    })?;
    let origins = volumes.volumes.iter().map(|volume| {
        let target = machine.target(&path(volume.origin.value.as_str()));
        world.medium(target).expect("it keeps its bytes")
    });
    let origins = origins.collect();
    let origin = machine.target(&path(volumes.volumes[0].origin.value.as_str()));
    modelled::drop_write(&mut world, origin, canary.dropped)?;
    let mut sim = SimHost::new(world).pool_bytes(BUFFER_BYTES);
    let volumes = volumes.clone();
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        let bench = WriteBackDrillBench {
            volumes,
            cell,
            canary,
            daemon: ModelledDaemon::new(config, machine, local),
            origins,
        };
        live(&bench).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

struct WriteBackDrillBench {
    volumes: Volumes,
    cell: WriteBackCell,
    canary: DrillCanary,
    daemon: ModelledDaemon,
    /// Origin of each volume.
    origins: Vec<Medium>,
}

async fn live(bench: &WriteBackDrillBench) -> Result<DrillRow, String> {
    let devices = bench.daemon.start().await?;
    let (volumes, cell) = (&bench.volumes, &bench.cell);
    let row = play(
        bench.daemon.local.env(),
        devices,
        bench,
        volumes,
        cell,
        "sim",
    )
    .await?;
    bench.daemon.stop().await?;
    Ok(row)
}

impl WriteBackDrillBench {
    fn each(&self, names: &[Name], what: impl Fn(&SimMachine, &str)) {
        for name in names {
            what(&self.daemon.machine, &path(name.as_str()));
        }
    }
}

impl WriteBackWorld for WriteBackDrillBench {
    async fn lose(&self, step: usize) -> Result<(), String> {
        let scenario = &self.cell.scenario;
        self.each(&scenario.steps[step], |machine, path| match scenario.loss {
            DrillLoss::Drives => machine.pull(path),
            DrillLoss::Path => machine.silence(path),
        });
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        let scenario = &self.cell.scenario;
        for names in &scenario.steps {
            self.each(names, |machine, path| match scenario.loss {
                DrillLoss::Drives => machine.give_back(path),
                DrillLoss::Path => {
                    machine.forget(path);
                    machine.unsilence(path);
                }
            });
        }
        Ok(())
    }

    async fn standing(&self) -> Result<VolumesStanding, String> {
        Ok(VolumesStanding::of(
            &self.volumes,
            &self.daemon.node()?.status().await?,
        ))
    }

    async fn stop(&self) -> Result<Vec<Vec<u8>>, String> {
        self.daemon.stop().await?;
        let bytes = self.volumes.size(DrivePart::Origin).bytes() as usize;
        let images = self.origins.iter().map(|origin| {
            let mut image = vec![0; bytes];
            origin.durable(Lba::ZERO, &mut image);
            image[ALTERED] ^= u8::from(self.canary.altered);
            image
        });
        Ok(images.collect())
    }

    async fn start(&self) -> Result<Vec<BoxDevice>, String> {
        self.daemon.start().await
    }
}
