//! Two controllers with write-back caches, a stripe of seven drives on each, mirrored by
//! hotset: the machine of the mail store and of the transactions.
//!
//! A configuration cannot say that drives share a controller: the machine below has it.

use crate::load::Place;
use crate::measured::Times;
use crate::rig::{self, Below, Rig};
use block::Nanos;
use sim::model::catalogue::controller::H710P;
use sim::model::catalogue::hdd::SAS10K_300;
use sim::model::{Controller, Hdd};
use sim::{Rng, Service, World};
use std::collections::BTreeMap;

/// The topology, as `hotset check` reads it.
pub const TOPOLOGY: &str = include_str!("../topologies/perc.toml");
/// Its volume.
pub const VOLUME: &str = "data";
/// The controllers, and the drives of each.
const SIDES: [&str; 2] = ["a", "b"];
const DRIVES: u32 = 7;
/// Draws where spindles are when time begins.
const PHASES: u64 = 15;

/// Where to look, of what is measured at these times.
pub fn place(times: Times) -> Place {
    Place {
        volumes: &[VOLUME],
        flash: "",
        advised_after: times.warm_up,
    }
}

/// Runs `work` on a node as `text` has it: what it came to, and how long it took there.
pub fn run<T: 'static>(
    seed: u64,
    text: &str,
    work: impl AsyncFnOnce(Rig) -> Result<T, String> + 'static,
) -> Result<(T, Nanos), String> {
    let to_message = |error: block::IoError| error.to_string();
    let config = rig::topology(text)?;
    let mut world = World::new(seed);
    let mut phases = Rng::fork(seed, PHASES);
    let mut below = BTreeMap::new();
    for side in SIDES {
        let mut drive = || {
            Hdd::new(
                &SAS10K_300,
                phases.below(1 << 20) as f64 / f64::from(1 << 20),
            )
        };
        let drives: Result<Vec<_>, _> = (0..DRIVES).map(|_| drive()).collect();
        let controller =
            Controller::new(&H710P, drives.map_err(to_message)?).map_err(to_message)?;
        let model = world.add_model(controller);
        for unit in 0..DRIVES {
            let disk = Below {
                sectors: SAS10K_300.capacity(),
                service: Some(Service::Model { model, unit }),
            };
            below.insert(format!("{side}{unit}"), disk);
        }
    }
    rig::run_on(world, config, &below, work)
}
