//! Two controllers with write-back caches, a stripe of seven drives on each, mirrored by
//! hotset: the machine of the mail store, of the transactions and of the stress workloads.
//!
//! The machine below has the drives of a configuration's controllers behind one model each. The source
//! had no cache; where choices are tried, one flash drive caches the volume.

use crate::load::{Load, LoadPlace};
use crate::measured::{LoadMeasured, Times, curve};
use crate::models::RoleModels;
use crate::parameters::OnMachine;
use crate::queries::QueryReads;
use crate::rig::{self, Disks, NodeRig, OwnModel, Volume};
use crate::slowed::Slowed;
use crate::visitors::VisitCurve;
use block::{Env, IoResult, Nanos, Sectors};
use control::config::Config;
use drives::catalogue::Drive;
use drives::catalogue::controller::H710P;
use drives::catalogue::ssd::X25_E;
use drives::{Controller, ControllerParameters, Hdd, HddParameters, SsdModel, SsdWear};
use sim::{ServiceTime, SimRng, SimWorld};

/// The topology, in the form that `hotset check` reads.
pub const TOPOLOGY: &str = include_str!("../topologies/perc.toml");
/// The topology's volume.
pub const VOLUME: &str = "data";
/// The controllers.
pub const SIDES: usize = 2;
/// The flash drive of choices.
const FLASH: &str = "ssd";
/// Draws where spindles are when time begins.
const PHASES: u64 = 15;

/// Requests to the volume.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait ControllerLoad: Copy + 'static {
    /// Counts of an interval.
    type Point: Default + Clone + 'static;

    /// Sends the requests, in the ways that `ways` draws.
    async fn ask(
        self,
        env: &Env,
        ways: u64,
        volume: Volume,
        times: Times,
    ) -> IoResult<LoadMeasured<Self::Point>>;

    /// The part of a point that is shown over time.
    fn shown(point: &Self::Point) -> QueryReads;
}

/// Workload of a run, and its times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ControllersScale<S> {
    /// The workload.
    pub shape: S,
    /// Times of the measurement.
    pub times: Times,
    /// The flash that caches the volume, if any.
    pub flash: Sectors,
    /// Models in place of the topology's own.
    pub models: RoleModels,
    /// Cost of the disks, as a factor.
    pub disk_cost: f64,
}

impl<S> OnMachine for ControllersScale<S> {
    const HAS_FLASH: bool = false;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl<S> ControllersScale<S> {
    /// Two minutes of the workload, or seconds: too little to judge by.
    pub const fn of(shape: S, quick: bool) -> ControllersScale<S> {
        let times = match quick {
            true => Times {
                warm_up: Nanos::from_secs(1),
                span: Nanos::from_secs(4),
                interval: Nanos::from_millis(200),
            },
            false => Times {
                warm_up: Nanos::from_secs(20),
                span: Nanos::from_secs(120),
                interval: Nanos::from_secs(5),
            },
        };
        ControllersScale {
            shape,
            times,
            flash: Sectors(0),
            models: RoleModels::OWN,
            disk_cost: 1.0,
        }
    }

    /// Returns the same scale with a cache of a `part`th of an X25-E of 32 GB. The store is to be
    /// such a part of the published one; the time is long enough to fill the cache.
    pub fn cached(self, part: u64) -> ControllersScale<S> {
        let times = Times {
            span: Nanos(self.times.span.0 * 2),
            ..self.times
        };
        let flash = Sectors(X25_E.capacity().0 / part);
        ControllersScale {
            times,
            flash,
            ..self
        }
    }
}

impl<S: ControllerLoad> ControllersScale<S> {
    /// Runs the workload once; returns the result, and the simulated time.
    pub fn run_one(self, seed: u64) -> Result<(LoadMeasured<S::Point>, Nanos), String> {
        self.on_node(seed, TOPOLOGY, async move |mut rig| {
            self.asked(&mut rig, seed).await
        })
    }

    async fn asked(self, rig: &mut NodeRig, ways: u64) -> Result<LoadMeasured<S::Point>, String> {
        let volume = rig.volume(VOLUME)?;
        let asked = self.shape.ask(&rig.env, ways, volume, self.times).await;
        asked.map_err(to_message)
    }

    /// The result over time.
    pub fn curve(self, measured: &LoadMeasured<S::Point>) -> VisitCurve {
        curve(self.times.interval, measured.points.iter().map(S::shown))
    }
}

/// Nothing is cached, unless there is flash.
impl<S: ControllerLoad> Load for ControllersScale<S> {
    fn place(&self) -> LoadPlace {
        LoadPlace {
            volumes: &[VOLUME],
            advised_after: self.times.warm_up,
        }
    }

    const PUBLISHED: &str = TOPOLOGY;

    fn topology(&self) -> String {
        if self.flash == Sectors(0) {
            return TOPOLOGY.into();
        }
        let drive = format!(
            "[[device]]\nname = \"{FLASH}\"\npath = \"/dev/{FLASH}\"\nmodel = \"X25-E\"\n\n"
        );
        TOPOLOGY
            .replacen("[[device]]", &format!("{drive}[[device]]"), 1)
            .replace("devices = []", &format!("devices = [\"{FLASH}\"]"))
            .replace("mode = \"pass-through\"\n", "")
    }

    fn with_flash(self, percent: u64) -> ControllersScale<S> {
        let flash = Sectors(self.flash.0 * percent / 100);
        ControllersScale { flash, ..self }
    }

    fn below(self, seed: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String> {
        let mut below = machine(seed, config, &H710P, (|drive| drive, self.disk_cost), world)?;
        let cached = &config.pools[0].devices.value;
        for name in cached {
            let ssd = SsdModel::new(&X25_E, SsdWear::Steady).map_err(to_message)?;
            let model = world.add_model(ssd);
            let ssd = OwnModel {
                sectors: Sectors(self.flash.0 / cached.len() as u64 / 2048 * 2048),
                service: Some(ServiceTime::Model { model, unit: 0 }),
            };
            below.insert(name.to_string(), ssd);
        }
        Ok(below)
    }

    async fn work(self, rig: &mut NodeRig, _: u64, ways: u64) -> Result<VisitCurve, String> {
        Ok(self.curve(&self.asked(rig, ways).await?))
    }
}

/// The disks of `config` in `world`, behind their controllers: each of its model once `fitted`, at so
/// many times the cost. Spindles turn independently of each other.
pub fn machine(
    seed: u64,
    config: &Config,
    controller: &ControllerParameters,
    (fitted, cost): (impl Fn(HddParameters) -> HddParameters, f64),
    world: &mut SimWorld,
) -> Result<Disks, String> {
    let mut phases = SimRng::fork(seed, PHASES);
    let mut below = Disks::new();
    for side in sides(config) {
        let of_side = rig::disks(config).filter(|device| device.controller.value == side);
        let (mut units, mut disks) = (Vec::new(), Vec::new());
        for (unit, device) in (0..).zip(of_side) {
            let Drive::Hdd(drive) = rig::named(device).map_err(to_message)? else {
                return Err(format!(
                    "{} is no disk; give it a disk's model",
                    device.name.value
                ));
            };
            let drive = fitted(drive);
            let phase = rig::phase(&mut phases);
            let disk = Hdd::new(&drive, phase).map_err(to_message)?;
            units.push((unit, device, drive.capacity()));
            disks.push(Slowed::new(disk, cost));
        }
        let controller = Controller::new(controller, disks);
        let model = world.add_model(controller.map_err(to_message)?);
        for (unit, device, sectors) in units {
            let service = Some(ServiceTime::Model { model, unit });
            below.insert(device.name.to_string(), OwnModel { sectors, service });
        }
    }
    Ok(below)
}

/// The controllers of the disks of `config`.
pub fn sides(config: &Config) -> Vec<String> {
    let mut sides: Vec<String> = Vec::new();
    for device in rig::disks(config) {
        if !sides.contains(&device.controller.value) {
            sides.push(device.controller.value.clone());
        }
    }
    sides
}

fn to_message(error: block::IoError) -> String {
    error.to_string()
}
