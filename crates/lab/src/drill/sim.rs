//! The drill's world in virtual time: arrays over models of drives.

use super::{Cell, Counts, DETECTION, DRIVE_MIB, Row, SIDES, STRIPE, Site, drive, play, told};
use block::{BoxDevice, Device, Env, Fua, Geometry, Lba, Nanos, Sectors, ShardId, TargetId};
use raid::{Array, Candidate, Level, Options, Plan, Uuid, create};
use shard::{Local, Mesh, Shard};
use sim::model::Wear;
use sim::model::catalogue::Drive;
use sim::{Control, DiskSpec, Service, Sim, SimDriver, World};
use std::cell::{Cell as Slot, RefCell};
use std::rc::Rc;

/// What every drive is.
const MODEL: &str = "ST3500320AS";
/// Buffers of the simulated daemon.
const BUFFER_BYTES: usize = 64 << 20;

/// Runs one cell.
pub fn run(seed: u64, cell: Cell) -> Result<Row, String> {
    world(seed, cell, false)
}

/// A cell in which somebody changes content behind the arrays' back.
#[cfg(test)]
pub fn run_corrupt(seed: u64) -> Result<Row, String> {
    let cell = Cell {
        scenario: super::Scenario::OsDrive,
        side: 0,
        io: false,
    };
    world(seed, cell, true)
}

fn world(seed: u64, cell: Cell, corrupt: bool) -> Result<Row, String> {
    let mut world = World::new(seed);
    let model = Drive::named(MODEL).map_err(told)?;
    let mut disks = Vec::new();
    for side in 0..SIDES.len() {
        for number in 0..=STRIPE {
            // Spindles turn independently of each other.
            let phase = (side * (STRIPE + 1) + number) as f64 / 17.0;
            let service = world.add_model(model.model(phase, Wear::Steady).map_err(told)?);
            let sectors = Sectors::from_mib(DRIVE_MIB);
            let mut spec = DiskSpec::new(Geometry::new(drive(side, number), sectors, Sectors(1)));
            spec.service = Service::Model {
                model: service,
                unit: 0,
            };
            disks.push(world.add_disk(spec).map_err(told)?);
        }
    }
    let control = world.control();
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let ended = Rc::new(RefCell::new(None));
    let (told, disks) = (ended.clone(), Rc::new(disks));
    let outcome = sim.drive(1, |_, driver| {
        let (told, disks, control) = (told.clone(), disks.clone(), control.clone());
        let depth = shard::Config::default();
        Shard::boot(
            ShardId(0),
            driver,
            Mesh::new(1),
            depth,
            move |local| async move {
                let ended = live(local, control, &disks, cell, corrupt).await;
                *told.borrow_mut() = Some(ended);
            },
        )
    });
    let ended = ended.take();
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

struct Bench {
    env: Env,
    control: Control,
    /// What the cell pulls.
    pulled: Vec<TargetId>,
    /// The mirrors, with the devices of their members by role.
    mirrors: Vec<(Array, Vec<Candidate>)>,
    next: Slot<u8>,
}

impl Bench {
    fn fresh(&self) -> Uuid {
        self.next.set(self.next.get() + 1);
        Uuid([self.next.get(); 16])
    }

    async fn make(
        &self,
        name: &str,
        level: Level,
        members: Vec<Candidate>,
    ) -> Result<Array, String> {
        let plan = Plan {
            name: name.into(),
            level,
            chunk: Sectors(128),
            overwrite: false,
            zeroed: false,
        };
        let options = Options {
            patience: Some(Nanos(DETECTION.0 / 10 * 9)),
            ..Options::default()
        };
        let mut fresh = || self.fresh();
        let made = create(&self.env, &plan, members, Vec::new(), &mut fresh, options).await;
        made.map_err(told)
    }
}

async fn live(
    local: Local<SimDriver>,
    control: Control,
    disks: &[TargetId],
    cell: Cell,
    corrupt: bool,
) -> Result<Row, String> {
    let of = |side: usize, number: usize| disks[side * (STRIPE + 1) + number];
    let candidate = |side: usize, number: usize| {
        Ok::<_, String>(Candidate {
            device: BoxDevice::new(local.disk(of(side, number)).map_err(told)?),
            domain: SIDES[side].into(),
        })
    };
    let drives = cell.scenario.drives().into_iter();
    let mut site = Bench {
        env: local.env(),
        control,
        pulled: drives.map(|number| of(cell.side, number)).collect(),
        mirrors: Vec::new(),
        next: Slot::new(0),
    };
    let (mut stripes, mut system) = (Vec::new(), Vec::new());
    for (side, name) in SIDES.into_iter().enumerate() {
        let members: Result<Vec<_>, _> = (1..=STRIPE).map(|n| candidate(side, n)).collect();
        let stripe = site
            .make(&format!("stripe-{name}"), Level::Raid0, members?)
            .await?;
        stripes.push(Candidate {
            device: BoxDevice::new(stripe),
            domain: name.into(),
        });
        system.push(candidate(side, 0)?);
    }
    for (name, members) in [("data", stripes), ("os", system)] {
        let mirror = site.make(name, Level::Raid1, members.clone()).await?;
        site.mirrors.push((mirror, members));
    }
    let volumes = site
        .mirrors
        .iter()
        .map(|(array, _)| BoxDevice::new(array.clone()));
    let volumes = volumes.collect();
    if corrupt {
        let (env, victim) = (site.env.clone(), candidate(1, 0)?.device);
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
    play(local.env(), volumes, &site, cell, "sim").await
}

impl Site for Bench {
    async fn pull(&self) -> Result<(), String> {
        self.pulled.iter().for_each(|disk| self.control.kill(*disk));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), String> {
        self.pulled
            .iter()
            .for_each(|disk| self.control.revive(*disk));
        self.env.timer.sleep(Nanos::from_millis(1)).await;
        for (mirror, members) in &self.mirrors {
            for (role, member) in mirror.report().members.iter().enumerate() {
                if member.state.is_failed() {
                    let back = members[role].clone();
                    let added = mirror.add(back, self.fresh(), false).await;
                    added.map_err(told)?;
                }
            }
        }
        Ok(())
    }

    async fn is_whole(&self) -> Result<bool, String> {
        Ok(self.mirrors.iter().all(|(mirror, _)| mirror.is_settled()))
    }

    async fn scrub(&self) -> Result<u64, String> {
        let mut differ = 0;
        for (mirror, _) in &self.mirrors {
            differ += mirror.scrub(false).await.map_err(told)?.mismatches;
        }
        Ok(differ)
    }

    async fn counts(&self) -> Result<Counts, String> {
        let mirrors = self.mirrors.iter().map(|(mirror, _)| mirror.report());
        let members = mirrors.flat_map(|report| {
            report.members.into_iter().map(move |member| {
                let domain = member.domain.as_deref().unwrap_or("-").to_owned();
                let name = format!("{} on {domain}", report.name);
                (name, member.counts.reads, member.counts.writes)
            })
        });
        Ok(members.collect())
    }
}
