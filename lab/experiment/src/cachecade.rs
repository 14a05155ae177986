//! Web content beside an operating system, two volumes on mirrored disks that up to three
//! flash drives cache.
//!
//! Closed loops of users for 90 minutes, with no flash drive and with one, two and three;
//! and with two that cache one of the volumes only.
//!
//! The size is a tenth: of all data read, of the memory and the flash, and so of the time. Rates,
//! latencies and seeks are the whole ones, since the data is spread as the whole is.
//!
//! Not here: the server's writes (logs), and the controller's own cache.

mod ninths;

use crate::choices::choose;
use crate::content::{ContentShape, SiteContent, apart};
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::host::{PageCacheHost, page_of};
use crate::load::{self, Load as _, LoadPlace};
use crate::models::RoleModels;
use crate::pages::Front;
use crate::parameters::{COSTS, ModelParameter, ModelPart, OnMachine, micros, millis, set};
use crate::record::record;
use crate::replay::ReplayServer;
use crate::rig::{self, Disks, NodeRig};
use crate::site::{PAGE_BYTES, SiteFile};
use crate::verdict::SeedOutcome;
use crate::visitors::{
    ServedRequest, VisitCurve, VisitTally, VisitedSite, VisitorConnection, VisitorLoad, visit,
};
use crate::wire::Team;
use block::{Boundary, IoResult, Nanos, Sectors};
use control::config::Config;
use control::status::NamedCounters;
use drives::catalogue::Drive;
use drives::catalogue::link::GIGABIT;
use ninths::compare;
use sim::{SimRng, SimWorld};
use std::cell::RefCell;

/// The experiment's name in the registry.
pub const NAME: &str = "cachecade";
const FIGURES: &str = include_str!("../figures/cachecade.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "web content beside an operating system on RAID 10, cached on up to three flash drives",
    needs: "100 MB; a minute a seed",
    times: 10.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| set(CachecadeScale::QUICK, &PARAMETERS, settings).map(drop),
    run: |seed, quick, settings, done| {
        let scale = set(CachecadeScale::of(quick), &PARAMETERS, settings)?;
        run(seed, scale, done)
    },
    parts: &PARTS,
    load: Some(LoadUses {
        choose: |seed, quick, flash, choice| {
            choose(CachecadeScale::load(quick), seed, flash, choice)
        },
        record: |seed, quick, sink| record(CachecadeScale::load(quick), seed, sink),
    }),
};
/// The topology, in the form that `hotset check` reads.
pub const TOPOLOGY: &str = include_str!("../topologies/cachecade.toml");
/// A volume's part of a drive: three such parts are 100 GB.
const PARTITION: Sectors = Sectors::from_mib(32_000);
/// A flash drive, in whole MiB of its model's capacity.
const FLASH: Sectors = Sectors::from_mib(30_517);
/// The host's second volume; the content is on its first.
const OS: u64 = 1;
/// The purpose of a random stream.
const FAULTS: u64 = 6;

/// The parameters that can be set.
const PARAMETERS: [ModelParameter<CachecadeScale>; 10] = [
    ("part", 1.0..=400.0, |scale, value| {
        *scale = CachecadeScale::part(value as u32);
    }),
    ("users", 1.0..=1e4, |scale, value| {
        scale.users = value as u32
    }),
    ("think_ms", 0.0..=1e6, |scale, value| {
        scale.think = millis(value)
    }),
    ("connections", 1.0..=64.0, |scale, value| {
        scale.connections = value as u32;
    }),
    ("memory_mib", 0.25..=1e6, |scale, value| {
        scale.memory_pages = (value * 256.0) as u32;
    }),
    ("processor_us", 0.0..=1e6, |scale, value| {
        scale.processor = micros(value);
    }),
    ("os_touches", 0.0..=16.0, |scale, value| {
        scale.os_touches = value
    }),
    ("os_mib", 1.0..=1e5, |scale, value| {
        scale.os_pages = (value * 256.0) as u64
    }),
    ("span_s", 90.0..=1e5, |scale, value| {
        scale.span = millis(value * 1e3)
    }),
    ("flash_cost", COSTS, |scale, value| scale.flash_cost = value),
];

/// The parts of the model that can be left out.
const PARTS: [ModelPart; 6] = [
    ("the operating system's pages", &[("os_touches", 0.0)]),
    ("the server's page cache", &[("memory_mib", 0.25)]),
    ("the time between a user's pages", &[("think_ms", 0.0)]),
    ("four of the five users", &[("users", 1.0)]),
    ("the server's processor time", &[("processor_us", 0.0)]),
    ("the time of the flash drives", &[("flash_cost", 0.0)]),
];

/// The cached volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// Number of flash drives.
    pub drives: usize,
    /// True to cache the operating system's volume.
    pub os: bool,
    /// True to cache the content's volume.
    pub web: bool,
}

/// Every case that was published, by name.
pub const CASES: [(&str, Cached); 6] = [
    ("hdd", both(0)),
    ("ssd1", both(1)),
    ("ssd2", both(2)),
    ("ssd3", both(3)),
    (
        "web",
        Cached {
            os: false,
            ..both(2)
        },
    ),
    (
        "os",
        Cached {
            web: false,
            ..both(2)
        },
    ),
];

const fn both(drives: usize) -> Cached {
    Cached {
        drives,
        os: true,
        web: true,
    }
}

/// Size and parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CachecadeScale {
    /// The files of the volume of web content.
    pub shape: ContentShape,
    /// Users, fitted.
    pub users: u32,
    /// Mean time that users think between two pages.
    pub think: Nanos,
    /// Connections of a user.
    pub connections: u32,
    /// The time over which users begin.
    pub ramp: Nanos,
    /// Length of the run.
    pub span: Nanos,
    /// Time covered by a point of the curves.
    pub interval: Nanos,
    /// The server's memory for pages.
    pub memory_pages: u32,
    /// The server's processor for a request.
    pub processor: Nanos,
    /// Pages of the operating system's volume that a request touches, on average.
    pub os_touches: f64,
    /// Pages of the operating system's volume that are touched at all.
    pub os_pages: u64,
    /// The size of a flash drive.
    pub flash: Sectors,
    /// Models in place of the topology's own.
    pub models: RoleModels,
    /// Cost of the flash drives, as a factor.
    pub flash_cost: f64,
    /// Lines of the pool's section of the configuration, beside its defaults.
    pub pool: &'static str,
}

impl OnMachine for CachecadeScale {
    const HAS_FLASH: bool = true;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl CachecadeScale {
    /// One `part`-th of the published size.
    pub const fn part(part: u32) -> CachecadeScale {
        let of = part as u64;
        CachecadeScale {
            shape: ContentShape {
                pages: 80_000 / part,
                images: 1_400_000 / part,
                // 40 GB in 1,480,000 files.
                file_bytes: 27_027.0,
                images_per_page: [11, 12],
                spread: of,
            },
            users: 5,
            think: Nanos::from_millis(20),
            connections: 2,
            ramp: Nanos::from_millis(60_000 / of),
            span: Nanos::from_millis(90 * 60_000 / of),
            interval: Nanos::from_millis(60_000 / of),
            // 6 GiB of 8 GB.
            memory_pages: (6 << 18) / part,
            processor: Nanos::from_micros(200),
            os_touches: 1.0,
            // 2 GiB.
            os_pages: (2 << 18) / of,
            flash: Sectors(FLASH.0 / of),
            models: RoleModels::OWN,
            flash_cost: 1.0,
            pool: "",
        }
    }

    const fn of(quick: bool) -> CachecadeScale {
        if quick {
            CachecadeScale::QUICK
        } else {
            CachecadeScale::FULL
        }
    }

    /// Size for choices: the quick form has half a drive, so that a choice may have twice that.
    const fn load(quick: bool) -> CachecadeScale {
        let half = CachecadeScale {
            flash: Sectors(FLASH.0 / 2),
            ..CachecadeScale::QUICK
        };
        if quick {
            half
        } else {
            CachecadeScale::part(40)
        }
    }

    /// A tenth.
    pub const FULL: CachecadeScale = CachecadeScale::part(10);
    /// A four-hundredth on whole flash drives, and seconds: too little to judge by.
    pub const QUICK: CachecadeScale = CachecadeScale {
        span: Nanos::from_secs(18),
        interval: Nanos::from_millis(200),
        flash: FLASH,
        ..CachecadeScale::part(400)
    };
}

/// The server, and its content.
struct ServerContents {
    content: SiteContent,
    front: Front,
    faults: RefCell<SimRng>,
    os_touches: f64,
    os_pages: u64,
    spread: u64,
}

impl VisitedSite for ServerContents {
    type Item = SiteFile;

    fn page(&self, rng: &mut SimRng, items: &mut Vec<SiteFile>) {
        self.content.draw(rng, items);
    }

    async fn answer(&self, file: SiteFile, on: VisitorConnection) -> IoResult<ServedRequest> {
        self.front.take(on).await;
        let mut left = self.os_touches;
        while left > 0.0 {
            let page = {
                let mut rng = self.faults.borrow_mut();
                let touched = rng.below(1 << 20) as f64 / f64::from(1 << 20) < left;
                touched.then(|| apart(rng.below(self.os_pages), self.spread))
            };
            if let Some(page) = page {
                self.front.host.read(page_of(OS, page), 1).await?;
            }
            left -= 1.0;
        }
        self.front.send(file, on).await
    }
}

/// The topology of a case.
pub fn topology(cached: Cached, pool: &str) -> String {
    let drives: Vec<String> = (0..cached.drives).map(|n| format!("\"ssd{n}\"")).collect();
    let all = "devices = [\"ssd0\", \"ssd1\", \"ssd2\"]";
    let mut text = TOPOLOGY.replace(all, &format!("devices = [{}]", drives.join(", ")));
    text = text.replace("[[pool]]\n", &format!("[[pool]]\n{pool}\n"));
    for (name, on) in [("os", cached.os), ("web", cached.web)] {
        if !on || cached.drives == 0 {
            let volume = format!("[[volume]]\nname = \"{name}\"\n");
            text = text.replace(&volume, &format!("{volume}mode = \"pass-through\"\n"));
        }
    }
    text
}

/// Result of a case.
#[derive(Clone, PartialEq, Debug)]
pub struct Ran {
    /// Observations of the users.
    pub curve: VisitCurve,
    /// Counters of the pool.
    pub counters: NamedCounters,
}

/// Lets the users visit; returns the result, and the simulated time.
pub fn run_one(
    seed: u64,
    scale: CachecadeScale,
    cached: Cached,
    progress: impl Fn(&VisitTally) + 'static,
) -> Result<(Ran, Nanos), String> {
    let text = topology(cached, scale.pool);
    scale.on_node(seed, &text, async move |mut rig| {
        let curve = visited(&mut rig, seed, seed, scale, &progress).await?;
        let counters = rig.watch().counters().await?;
        Ok(Ran { curve, counters })
    })
}

/// The load runs on two flash drives.
impl load::Load for CachecadeScale {
    fn place(&self) -> LoadPlace {
        LoadPlace {
            volumes: &["web", "os"],
            advised_after: Nanos(self.span.0 / 9),
        }
    }

    const PUBLISHED: &str = TOPOLOGY;

    fn topology(&self) -> String {
        topology(both(2), "")
    }

    fn with_flash(self, percent: u64) -> CachecadeScale {
        let flash = Sectors(self.flash.0 * percent / 100);
        CachecadeScale { flash, ..self }
    }

    fn below(self, seed: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String> {
        let drives = config.devices.iter();
        let drives = drives.filter(|device| matches!(rig::named(device), Ok(Drive::Ssd(_))));
        let mut below = rig::partitions(seed, config, PARTITION, world)?;
        below.extend(rig::drives(
            drives,
            Some(self.flash),
            self.flash_cost,
            world,
        )?);
        Ok(below)
    }

    async fn work(self, rig: &mut NodeRig, seed: u64, ways: u64) -> Result<VisitCurve, String> {
        visited(rig, seed, ways, self, &|_| ()).await
    }
}

/// Lets the users visit the content that `seed` has laid out, in the ways that `ways` draws.
async fn visited(
    rig: &mut NodeRig,
    seed: u64,
    ways: u64,
    scale: CachecadeScale,
    progress: &dyn Fn(&VisitTally),
) -> Result<VisitCurve, String> {
    let (web, os) = (rig.volume("web")?, rig.volume("os")?);
    let content = SiteContent::new(seed, scale.shape, web.bytes() / PAGE_BYTES)?;
    let env = rig.env.clone();
    let site = ServerContents {
        content,
        front: Front {
            env: env.clone(),
            host: PageCacheHost::over(vec![web, os], scale.memory_pages),
            server: ReplayServer::behind(&GIGABIT, scale.processor),
            team: Team::new(4, &GIGABIT),
        },
        faults: RefCell::new(SimRng::fork(ways, FAULTS)),
        os_touches: scale.os_touches,
        os_pages: scale.os_pages,
        spread: scale.shape.spread,
    };
    let load = VisitorLoad {
        users: scale.users,
        think: scale.think,
        ramp: scale.ramp,
        span: scale.span,
        connections: scale.connections,
        interval: scale.interval,
    };
    let curve = visit(&env, ways, load, site, progress).await;
    curve.map_err(|error| error.to_string())
}

/// Everything that was printed, measured with one seed. Calls `done` after each part.
pub fn run(seed: u64, scale: CachecadeScale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let mut measured = SeedOutcome::default();
    for (name, cached) in CASES {
        let (ran, took) = run_one(seed, scale, cached, |_| ())?;
        measured.virtual_s += took.0 as f64 / 1e9;
        measured.curves.push((name.to_owned(), ran.curve));
        done(&format!("seed {seed}: {name}"));
    }
    compare(&mut measured);
    Ok(measured)
}

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;

    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, CachecadeScale::QUICK, &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), true, 0.0).unwrap();
        assert_eq!(rows.len(), figures().printed.len());
        assert!(outcome.values["gain.ssd1"] > 1.2, "{:?}", outcome.values);
        let volumes = ["claim.both", "claim.content"].map(|figure| outcome.values[figure]);
        assert!(volumes.iter().all(|gain| *gain > 1.0), "{volumes:?}");
        let again = || run_one(1, CachecadeScale::QUICK, both(1), |_| ()).unwrap();
        assert_eq!(again(), again());
    }

    #[test]
    fn a_case_has_its_drives_and_its_volumes() {
        for (name, cached) in CASES {
            let config = rig::topology(&topology(cached, "")).unwrap();
            assert_eq!(config.pools[0].devices.value.len(), cached.drives, "{name}");
            let cached_volumes = config.volumes.iter();
            let cached_volumes = cached_volumes.filter(|v| v.mode.value.name() == "write-through");
            let wanted = match cached.drives {
                0 => 0,
                _ => usize::from(cached.os) + usize::from(cached.web),
            };
            assert_eq!(cached_volumes.count(), wanted, "{name}");
        }
    }
}
