//! The drill's world in virtual time: arrays over models of drives.

use super::setup::detection;
use super::{Cell, Counts, Row, Setup, Site, play, told};
use crate::alone::run_alone;
use block::{BoxDevice, Device, Env, Fua, Geometry, Lba, Nanos, Sectors, TargetId};
use control::config::{self, Name};
use raid::{Array, Candidate, Options, Plan, Start, Uuid, create};
use shard::Local;
use sim::model::Wear;
use sim::model::catalogue::Drive;
use sim::{Control, DiskSpec, Service, Sim, SimDriver, World};
use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What every drive is.
const MODEL: &str = "ST3500320AS";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;

/// The simulated disk of each drive.
type Disks = BTreeMap<Name, TargetId>;

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
    let mut world = World::new(seed);
    let model = Drive::named(MODEL).map_err(told)?;
    let mut disks = Disks::new();
    for (number, drive) in setup.drives().into_iter().enumerate() {
        // Spindles turn independently of each other.
        let phase = (number as f64 / 17.0).fract();
        let service = world.add_model(model.model(phase, Wear::Steady).map_err(told)?);
        let name = drive.name.as_str();
        let mut spec = DiskSpec::new(Geometry::new(name, setup.drive_size(), Sectors(1)));
        spec.service = Service::Model {
            model: service,
            unit: 0,
        };
        disks.insert(
            drive.name.value.clone(),
            world.add_disk(spec).map_err(told)?,
        );
    }
    let control = world.control();
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let setup = setup.clone();
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        live(local, control, &setup, &disks, &cell, corrupt.as_ref()).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

/// An array, and what it was made from.
struct Built {
    array: Array,
    config: config::Array,
}

struct Bench<'a> {
    setup: &'a Setup,
    env: Env,
    control: Control,
    /// What the cell pulls.
    pulled: Vec<TargetId>,
    drives: BTreeMap<Name, BoxDevice>,
    /// Those within others first.
    arrays: RefCell<Vec<Built>>,
    next: Slot<u8>,
}

fn options(array: &config::Array) -> Options {
    Options {
        // As in the daemon: the rest is for asking another member.
        patience: Some(Nanos(detection(array).0 / 10 * 9)),
        rebuild_floor: array.rebuild_rate.value.0,
        ..Options::default()
    }
}

impl Bench<'_> {
    fn fresh(&self) -> Uuid {
        self.next.set(self.next.get() + 1);
        Uuid([self.next.get(); 16])
    }

    /// The devices and arrays that an array may use: its members, then its spares.
    fn candidates(&self, array: &config::Array) -> Result<Vec<Candidate>, String> {
        let names = array.members.value.iter().chain(&array.spares.value);
        let candidate = |name: &Name| {
            let arrays = self.arrays.borrow();
            let inner = arrays.iter().find(|built| built.config.name.value == *name);
            let inner = inner.map(|built| BoxDevice::new(built.array.clone()));
            let device = inner.or_else(|| self.drives.get(name).cloned());
            Ok(Candidate {
                device: device.ok_or_else(|| format!("{name} is neither a device nor an array"))?,
                domain: self.setup.domain(name).into(),
            })
        };
        names.map(candidate).collect()
    }

    async fn make(&self, array: &config::Array) -> Result<(), String> {
        let plan = Plan {
            name: array.name.to_string(),
            level: array.level.value,
            chunk: Sectors(array.chunk.value.0 / block::SECTOR_BYTES),
            overwrite: false,
            zeroed: false,
        };
        let candidates = self.candidates(array)?;
        let (members, spares) = candidates.split_at(array.members.value.len());
        let domains: Vec<Arc<str>> = members.iter().map(|c| c.domain.clone()).collect();
        let order = raid::order(array.level.value, &domains).into_iter();
        let members = order.map(|at| members[at].clone()).collect();
        let mut fresh = || self.fresh();
        let spares = spares.to_vec();
        let made = create(
            &self.env,
            &plan,
            members,
            spares,
            &mut fresh,
            options(array),
        )
        .await;
        self.arrays.borrow_mut().push(Built {
            array: made.map_err(told)?,
            config: array.clone(),
        });
        Ok(())
    }

    /// Gives the array at `at` what it has lost, as the daemon does.
    async fn mend(&self, at: usize) -> Result<(), String> {
        let (mut array, config) = {
            let built = &self.arrays.borrow()[at];
            (built.array.clone(), built.config.clone())
        };
        // An array below it may have been put together again.
        let candidates = self.candidates(&config)?;
        if array.report().down.is_some() {
            // It lost too much to end in order.
            let _ = array.close().await;
            let (name, all) = (config.name.as_str(), candidates.clone());
            let again = raid::assemble(
                &self.env,
                Some(name),
                self.fresh(),
                all,
                Start::default(),
                options(&config),
            );
            array = again.await.map_err(told)?;
        }
        let report = array.report();
        for candidate in &candidates {
            let name = &candidate.device.geometry().name;
            let uses =
                |m: &raid::MemberReport| !m.state.is_failed() && m.device.as_ref() == Some(name);
            let used = report.members.iter().any(uses) || report.spares.contains(name);
            if !used && report.members.iter().any(|m| m.state.is_failed()) {
                // One whose place a spare took is refused. Whether all is whole is asked next.
                let _ = array.add(candidate.clone(), self.fresh(), false).await;
            }
        }
        self.arrays.borrow_mut()[at] = Built { array, config };
        Ok(())
    }

    /// The arrays that are part of no other.
    fn volumes(&self) -> Vec<Array> {
        let volumes = self.setup.volumes();
        let is_volume = |built: &&Built| {
            let name = &built.config.name.value;
            volumes.iter().any(|volume| volume.name.value == *name)
        };
        let arrays = self.arrays.borrow();
        let arrays = arrays.iter().filter(is_volume);
        arrays.map(|built| built.array.clone()).collect()
    }

    fn all(&self) -> Vec<Array> {
        let arrays = self.arrays.borrow();
        arrays.iter().map(|built| built.array.clone()).collect()
    }
}

async fn live(
    local: Local<SimDriver>,
    control: Control,
    setup: &Setup,
    disks: &Disks,
    cell: &Cell,
    corrupt: Option<&Name>,
) -> Result<Row, String> {
    let mut drives = BTreeMap::new();
    for (name, disk) in disks {
        drives.insert(
            name.clone(),
            BoxDevice::new(local.disk(*disk).map_err(told)?),
        );
    }
    let site = Bench {
        setup,
        env: local.env(),
        control,
        pulled: cell
            .scenario
            .drives
            .iter()
            .map(|name| disks[name])
            .collect(),
        drives,
        arrays: RefCell::default(),
        next: Slot::new(0),
    };
    for array in setup.arrays() {
        site.make(array).await?;
    }
    if let Some(name) = corrupt {
        let (env, victim) = (site.env.clone(), site.drives[name].clone());
        let timer = env.timer.clone();
        env.spawn.clone().spawn(async move {
            // After the content is there, and before it is read.
            timer.sleep(Nanos::from_secs(3)).await;
            let mut buf = env.pool.get(4096).await;
            buf.fill(0);
            // What it says does not matter: the drill must see the bytes.
            let _ = victim.write(Lba(4096), buf.share(), Fua::No).await;
        });
    }
    let volumes = site.volumes().into_iter().map(BoxDevice::new).collect();
    play(local.env(), volumes, &site, setup, cell, "sim").await
}

impl Site for Bench<'_> {
    async fn pull(&self) -> Result<(), String> {
        self.pulled.iter().for_each(|disk| self.control.kill(*disk));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        self.pulled
            .iter()
            .for_each(|disk| self.control.revive(*disk));
        self.env.timer.sleep(Nanos::from_millis(1)).await;
        let arrays = self.arrays.borrow().len();
        for at in 0..arrays {
            self.mend(at).await?;
        }
        Ok(())
    }

    async fn is_whole(&self) -> Result<bool, String> {
        let is_whole = |array: &Array| array.is_settled() && array.report().down.is_none();
        Ok(self.all().iter().all(is_whole))
    }

    async fn scrub(&self) -> Result<Vec<(String, u64)>, String> {
        let mut differ = Vec::new();
        let redundant = |array: &&Array| array.report().level.is_redundant();
        for array in self.all().iter().filter(redundant) {
            let found = array.scrub(false).await.map_err(told)?;
            differ.push((array.report().name.to_string(), found.mismatches));
        }
        Ok(differ)
    }

    async fn counts(&self) -> Result<Counts, String> {
        let volumes = self.volumes();
        let reports = volumes.iter().map(Array::report);
        let members = reports.flat_map(|report| {
            report.members.into_iter().map(move |member| {
                let device = member.device.as_deref().unwrap_or("-").to_owned();
                let name = format!("{} on {device}", report.name);
                (name, member.counts.reads, member.counts.writes)
            })
        });
        Ok(members.collect())
    }
}
