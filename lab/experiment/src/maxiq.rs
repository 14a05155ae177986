//! Web sites on a parity array, without and with one flash drive as its cache.
//!
//! Closed loops of 1,500 users for 90 minutes, and then, on the same node, shorter ones of 500
//! to 2,500. Without the cache the node serves its volume in pass-through.
//!
//! The size is a half: of the sites, of the memory and the flash, and so of the time. Users, think
//! times, rates, latencies and seeks are the whole ones, since sites lie all over the disks.
//!
//! Not here: memory and processor of the clients, and the controller's own write cache,
//! which reads do not use.

use crate::choices::choose;
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::host::PageCacheHost;
use crate::load::{self, Load as _, LoadPlace};
use crate::models::RoleModels;
use crate::pages::{Front, PageFileSet, PageServer, PagesShape};
use crate::parameters::{COSTS, ModelParameter, ModelPart, OnMachine, micros, millis, set};
use crate::record::record;
use crate::replay::ReplayServer;
use crate::rig::{self, Disks, NodeRig};
use crate::site::PAGE_BYTES;
use crate::totals::totals;
use crate::verdict::{ResultTable, SeedOutcome};
use crate::visitors::{VisitCurve, VisitTally, VisitorLoad, visit};
use crate::wire::Team;
use block::{Boundary, Nanos, Sectors};
use control::config::Config;
use drives::catalogue::link::GIGABIT;
use sim::SimWorld;
use std::rc::Rc;

/// The experiment's name in the registry.
pub const NAME: &str = "maxiq";
const FIGURES: &str = include_str!("../figures/maxiq.toml");
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "web sites on RAID 5 of three disks, with and without a flash drive as their cache",
    needs: "300 MB; a minute and a half a seed",
    times: 2.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| set(MaxiqScale::QUICK, &PARAMETERS, settings).map(drop),
    run: |seed, quick, settings, done| {
        run(
            seed,
            set(MaxiqScale::of(quick), &PARAMETERS, settings)?,
            done,
        )
    },
    parts: &PARTS,
    load: Some(LoadUses {
        choose: |seed, quick, flash, choice| choose(MaxiqScale::load(quick), seed, flash, choice),
        record: |seed, quick, sink| record(MaxiqScale::load(quick), seed, sink),
    }),
};
/// Users of the long run.
pub const USERS: u32 = 1_500;
/// Sites with their pages in a table, as the source sampled them.
const FIRST_SITES: u32 = 30;
/// The most flash drives.
const FLASH_MAX: u64 = 4;
const VOLUME: &str = "sites";
/// The parameters that can be set.
const PARAMETERS: [ModelParameter<MaxiqScale>; 12] = [
    ("part", 1.0..=100.0, |scale, value| {
        *scale = MaxiqScale::part(value as u32)
    }),
    ("pages", 1.0..=100.0, |scale, value| {
        scale.pages = value as u32
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
    ("ramp_s", 1.0..=1e4, |scale, value| {
        scale.ramp = millis(value * 1e3)
    }),
    ("span_s", 10.0..=1e5, |scale, value| {
        scale.span = millis(value * 1e3)
    }),
    ("sweep_follows", 0.0..=1.0, |scale, value| {
        scale.sweep_follows = value != 0.0;
    }),
    ("flash_cost", COSTS, |scale, value| scale.flash_cost = value),
    ("disk_cost", COSTS, |scale, value| scale.disk_cost = value),
];
/// The parts of the model that can be left out.
const PARTS: [ModelPart; 5] = [
    (
        "the long run before the sweep, which fills the cache",
        &[("sweep_follows", 0.0)],
    ),
    ("the server's page cache", &[("memory_mib", 0.25)]),
    ("five of a user's six connections", &[("connections", 1.0)]),
    ("the server's processor time", &[("processor_us", 0.0)]),
    ("the time of the flash drive", &[("flash_cost", 0.0)]),
];
/// The topology, in the form that `hotset check` reads.
pub const TOPOLOGY: &str = include_str!("../topologies/maxiq.toml");
/// A flash drive, in whole MiB of its model's capacity.
const FLASH: Sectors = Sectors::from_mib(30_517);

/// Size and parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MaxiqScale {
    /// Sites.
    pub sites: u32,
    /// HTML files of a site, fitted; the site has 17.5 images for each.
    pub pages: u32,
    /// The mean size of a file.
    pub file_bytes: f64,
    /// Users of the long run.
    pub users: u32,
    /// Mean time that users think between two pages.
    pub think: Nanos,
    /// Connections of a user.
    pub connections: u32,
    /// The time over which users begin.
    pub ramp: Nanos,
    /// The long run.
    pub span: Nanos,
    /// A run of the sweep.
    pub sweep_span: Nanos,
    /// The sweep comes after the long run, on the same node; else each of its runs has a new one.
    pub sweep_follows: bool,
    /// Time covered by a point of the curves.
    pub interval: Nanos,
    /// The server's memory for pages.
    pub memory_pages: u32,
    /// The size of the flash drive.
    pub flash: Sectors,
    /// Models in place of the topology's own.
    pub models: RoleModels,
    /// Cost of the flash drive, as a factor.
    pub flash_cost: f64,
    /// Cost of the disks, as a factor.
    pub disk_cost: f64,
    /// The server's processor for a request.
    pub processor: Nanos,
    /// Users of the sweep are divided by this.
    pub divisor: u32,
}

impl OnMachine for MaxiqScale {
    const HAS_FLASH: bool = true;

    fn machine(&mut self) -> &mut RoleModels {
        &mut self.models
    }
}

impl MaxiqScale {
    /// One `part`-th of the published size.
    pub const fn part(part: u32) -> MaxiqScale {
        let of = part as u64;
        MaxiqScale {
            sites: 8_300 / part,
            pages: 8,
            // 128.7 KB a page of 12.5 files: see the figures.
            file_bytes: 10_296.0,
            users: USERS,
            think: Nanos::from_millis(10_340),
            connections: 6,
            ramp: Nanos::from_secs(300 / of),
            span: Nanos::from_secs(90 * 60 / of),
            sweep_span: Nanos::from_secs(5 * 60 / of),
            sweep_follows: true,
            interval: Nanos::from_secs(60 / of),
            // 1 GiB of 2 GB.
            memory_pages: (1 << 18) / part,
            flash: Sectors(FLASH.0 / of),
            models: RoleModels::OWN,
            flash_cost: 1.0,
            disk_cost: 1.0,
            processor: Nanos::from_micros(200),
            divisor: 1,
        }
    }

    const fn of(quick: bool) -> MaxiqScale {
        if quick {
            MaxiqScale::QUICK
        } else {
            MaxiqScale::FULL
        }
    }

    /// A thirty-second part, with an eighth of the users and an eighth of their think time. The
    /// request rate is the same, and the data in flight is no larger a part of the memory.
    const fn load(quick: bool) -> MaxiqScale {
        if quick {
            return MaxiqScale::QUICK;
        }
        let part = MaxiqScale::part(32);
        MaxiqScale {
            users: part.users / 8,
            think: Nanos(part.think.0 / 8),
            ..part
        }
    }

    /// A sixteenth of the sites and of the time, of so many of the users that data in flight is no
    /// larger a part of the memory; a run that is as small already stays as it is.
    const fn lesser(self) -> MaxiqScale {
        if self.sites < 1_000 {
            return self;
        }
        MaxiqScale {
            sites: self.sites / 16,
            users: self.users.div_ceil(8),
            think: Nanos(self.think.0 / 8),
            ramp: Nanos(self.ramp.0 / 16),
            span: Nanos(self.span.0 / 16),
            interval: Nanos(self.interval.0 / 16),
            memory_pages: self.memory_pages / 16,
            flash: Sectors(self.flash.0 / 16),
            ..self
        }
    }

    /// A run of the sweep.
    const fn sweep(self, users: u32) -> MaxiqScale {
        MaxiqScale {
            users: users / self.divisor,
            ramp: Nanos(self.ramp.0 / 5),
            span: self.sweep_span,
            ..self
        }
    }

    /// Half of the published size.
    pub const FULL: MaxiqScale = MaxiqScale::part(2);
    /// A few sites and minutes: too little to judge by.
    pub const QUICK: MaxiqScale = MaxiqScale {
        sites: 83,
        users: 60,
        think: Nanos::from_millis(500),
        ramp: Nanos::from_secs(5),
        span: Nanos::from_secs(60),
        sweep_span: Nanos::from_secs(15),
        interval: Nanos::from_secs(5),
        memory_pages: 1 << 11,
        flash: FLASH,
        divisor: 25,
        ..MaxiqScale::part(1)
    };
}

/// Users of the sweep.
pub const SWEEP: [u32; 5] = [500, 1_000, 1_500, 2_000, 2_500];

/// Lets `users` visit for `span`, without or with the cache; returns their observations, and the
/// simulated time.
pub fn run_one(
    seed: u64,
    scale: MaxiqScale,
    cached: bool,
    users: u32,
    span: Nanos,
    progress: impl Fn(&VisitTally) + 'static,
) -> Result<(VisitCurve, Nanos), String> {
    let scale = MaxiqScale {
        users,
        span,
        ..scale
    };
    scale.on_node(seed, &topology(cached), async move |mut rig| {
        let visited = visited(&mut rig, seed, seed, scale, &progress).await;
        visited.map(|(curve, _)| curve)
    })
}

fn topology(cached: bool) -> String {
    match cached {
        true => TOPOLOGY.to_owned(),
        false => TOPOLOGY.replace("[[volume]]\n", "[[volume]]\nmode = \"pass-through\"\n"),
    }
}

/// The long run and those of the sweep.
struct MaxiqRuns {
    /// Their curves.
    curves: Vec<VisitCurve>,
    /// Share of the long run in which the disks were busy.
    busy: f64,
    /// Pages of the first sites in the long run.
    first: Vec<VisitTally>,
}

/// The long run and those of the sweep, and the time all took.
fn run_all(seed: u64, scale: MaxiqScale, cached: bool) -> Result<(MaxiqRuns, Nanos), String> {
    let text = topology(cached);
    let (mut runs, mut took) = scale.on_node(seed, &text, async move |mut rig| {
        let disks = rig.disks();
        let (began, before) = (rig.env.timer.now(), rig.watch().busy_s(&disks).await?);
        let (long, first) = visited(&mut rig, seed, seed, scale, &|_| ()).await?;
        let mut curves = vec![long];
        let busy_s = rig.watch().busy_s(&disks).await? - before;
        let busy = busy_s / seconds(rig.env.timer.now() - began);
        if scale.sweep_follows {
            for (n, users) in (1..).zip(SWEEP) {
                let ways = seed + (n << 32);
                let sweep = scale.sweep(users);
                curves.push(visited(&mut rig, seed, ways, sweep, &|_| ()).await?.0);
            }
        }
        Ok(MaxiqRuns {
            curves,
            busy,
            first,
        })
    })?;
    if !scale.sweep_follows {
        for users in SWEEP {
            let short = scale.sweep(users);
            let (curve, more) = run_one(seed, short, cached, short.users, short.span, |_| ())?;
            runs.curves.push(curve);
            took += more;
        }
    }
    Ok((runs, took))
}

impl load::Load for MaxiqScale {
    fn place(&self) -> LoadPlace {
        LoadPlace {
            volumes: &[VOLUME],
            advised_after: Nanos(self.span.0 / 9),
        }
    }

    const PUBLISHED: &str = TOPOLOGY;

    fn topology(&self) -> String {
        TOPOLOGY.into()
    }

    fn with_flash(self, percent: u64) -> MaxiqScale {
        let flash = Sectors(self.flash.0 * percent / 100);
        MaxiqScale { flash, ..self }
    }

    fn below(self, _: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String> {
        let mut below = rig::flash(config, self.flash, self.flash_cost, world)?;
        below.extend(rig::drives(
            rig::disks(config),
            None,
            self.disk_cost,
            world,
        )?);
        Ok(below)
    }

    async fn work(self, rig: &mut NodeRig, seed: u64, ways: u64) -> Result<VisitCurve, String> {
        let visited = visited(rig, seed, ways, self, &|_| ()).await;
        visited.map(|(curve, _)| curve)
    }
}

/// Lets the users visit the sites that `seed` has laid out, in the ways that `ways` draws; returns
/// their observations, and the pages of each of the first sites.
async fn visited(
    rig: &mut NodeRig,
    seed: u64,
    ways: u64,
    scale: MaxiqScale,
    progress: &dyn Fn(&VisitTally),
) -> Result<(VisitCurve, Vec<VisitTally>), String> {
    let volume = rig.volume(VOLUME)?;
    let shape = PagesShape {
        sections: scale.sites,
        pages: scale.pages,
        images: scale.pages * 35 / 2,
        file_bytes: scale.file_bytes,
        images_per_page: [11, 12],
    };
    let env = rig.env.clone();
    let pages = PageFileSet::new(seed, shape, volume.bytes() / PAGE_BYTES)?;
    let watched = Rc::new(pages.first(FIRST_SITES));
    let web = PageServer {
        pages: Rc::new(pages),
        watched: watched.clone(),
        front: Front {
            env: env.clone(),
            host: PageCacheHost::new(volume, scale.memory_pages),
            server: ReplayServer::behind(&GIGABIT, scale.processor),
            team: Team::new(1, &GIGABIT),
        },
    };
    let load = VisitorLoad {
        users: scale.users,
        think: scale.think,
        ramp: scale.ramp,
        span: scale.span,
        connections: scale.connections,
        interval: scale.interval,
    };
    let curve = visit(&env, ways, load, web, progress).await;
    let curve = curve.map_err(|error| error.to_string())?;
    Ok((curve, watched.tallies()))
}

/// Everything that was printed, measured with one seed. Calls `done` after each part.
pub fn run(seed: u64, scale: MaxiqScale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let mut measured = SeedOutcome::default();
    let mut first = Vec::new();
    for (name, cached) in [("off", false), ("on", true)] {
        let (runs, took) = run_all(seed, scale, cached)?;
        measured.virtual_s += seconds(took);
        first.push(runs.first);
        let mut curves = runs.curves.into_iter();
        let curve = curves.next().expect("there is a long run");
        let (sum, span_s) = curve.whole();
        let mbps = sum.bytes as f64 * 8e-6 / span_s;
        let rate = sum.pages as f64 / span_s;
        if !cached {
            // The published value follows from the interactive law.
            measured.set("implied.pages", rate);
            let all_there = seconds(scale.ramp) * 2.0;
            let (steady, s) = curve.over(all_there, f64::INFINITY);
            let cycle = f64::from(scale.users) * s / steady.pages as f64;
            measured.set("implied.think", cycle - steady.response_s());
            measured.set("implied.page_kb", sum.bytes as f64 / 1e3 / sum.pages as f64);
            measured.set("claim.bottleneck", runs.busy);
        }
        for (figure, value) in [
            ("mbps", mbps),
            ("mbps.average", mbps),
            ("ttfb", sum.first_byte_s()),
            ("page.min", sum.page_s_min),
            ("page.mean", sum.response_s()),
            ("page.max", sum.page_s_max),
        ] {
            measured.set(format!("{figure}.{name}"), value);
        }
        let long = format!("{} users, cache {name}", scale.users);
        measured.curves.push((long, curve));
        for (users, curve) in SWEEP.into_iter().zip(curves) {
            // The first half is warm-up.
            let (sum, _) = curve.over(seconds(scale.sweep_span) / 2.0, f64::INFINITY);
            measured.set(format!("sweep.{users}.{name}"), sum.first_byte_s());
            let name = format!("sweep, {users} users, cache {name}");
            measured.curves.push((name, curve));
        }
        done(&format!("seed {seed}: cache {name}, and its sweep"));
    }
    compare(&mut measured);
    let long = |(name, _): &&(String, VisitCurve)| !name.starts_with("sweep");
    let long: Vec<_> = measured.curves.iter().filter(long).cloned().collect();
    let (more, took) = more_flash(seed, scale)?;
    measured.virtual_s += seconds(took);
    done(&format!("seed {seed}: one to {FLASH_MAX} flash drives"));
    measured.tables = vec![totals(90.0, &long), of_first_sites(&first), more];
    Ok(measured)
}

/// Pages of the first sites, without and with the cache.
fn of_first_sites(runs: &[Vec<VisitTally>]) -> ResultTable {
    let line = |n: usize| {
        let cells = runs.iter().flat_map(|sites| {
            let times = match sites[n].pages {
                0 => ["-".to_owned(), "-".to_owned()],
                _ => [sites[n].response_s(), sites[n].page_s_max].map(|s| format!("{s:.2}")),
            };
            [sites[n].pages.to_string()].into_iter().chain(times)
        });
        [(n + 1).to_string()].into_iter().chain(cells).collect()
    };
    let head = [
        "site",
        "pages, off",
        "mean s",
        "longest s",
        "pages, on",
        "mean s",
        "longest s",
    ];
    let lines = (0..FIRST_SITES as usize).map(line).collect();
    ResultTable::new(format!("The first {FIRST_SITES} sites"), &head, lines)
}

/// The topology with so many flash drives.
fn with_flash_drives(drives: u64) -> String {
    let mut text = topology(true);
    let names: Vec<String> = (1..=drives).map(|n| format!("ssd{n}")).collect();
    text = text.replace("devices = [\"ssd\"]", &format!("devices = {names:?}"));
    let device = "name = \"ssd\"\npath = \"/dev/sdd\"\nmodel = \"X25-E\"\n";
    let each = names.iter().map(|name| {
        let own = device.replace("\"ssd\"", &format!("{name:?}"));
        own.replace("/dev/sdd", &format!("/dev/{name}"))
    });
    let each: Vec<String> = each.collect();
    text.replace(device, &each.join("\n[[device]]\n"))
}

/// One to [`FLASH_MAX`] whole flash drives, which the source offers and did not measure.
fn more_flash(seed: u64, scale: MaxiqScale) -> Result<(ResultTable, Nanos), String> {
    let part = scale.lesser();
    let (mut lines, mut all) = (Vec::new(), Nanos::ZERO);
    for drives in 1..=FLASH_MAX {
        let flash = Sectors(part.flash.0 * drives);
        let with = MaxiqScale { flash, ..part };
        let ran = with.on_node(seed, &with_flash_drives(drives), async move |mut rig| {
            visited(&mut rig, seed, seed, with, &|_| ()).await
        });
        let ((curve, _), took) = ran?;
        all += took;
        let thirds = [0.0, 1.0, 2.0].map(|third| {
            let third_s = seconds(part.span) / 3.0;
            let (sum, s) = curve.over(third * third_s, (third + 1.0) * third_s);
            format!("{:.1}", sum.pages as f64 / s)
        });
        let response = format!("{:.2}", curve.whole().0.response_s());
        lines.push(
            [drives.to_string()]
                .into_iter()
                .chain(thirds)
                .chain([response])
                .collect(),
        );
    }
    let head = [
        "flash drives",
        "pages/s, first third",
        "second",
        "last",
        "mean page, s",
    ];
    let title = "One to four flash drives, of a smaller part of the sites and users; not printed";
    Ok((ResultTable::new(title, &head, lines), all))
}

/// Sets the figures that are printed as ratios and claims.
fn compare(measured: &mut SeedOutcome) {
    let of = |figure: &str| measured.values[figure];
    let faster = |figure: &str| of(&format!("{figure}.off")) / of(&format!("{figure}.on"));
    let sweep = |users: u32| faster(&format!("sweep.{users}"));
    let most = SWEEP.map(sweep).into_iter().fold(0.0, f64::max);
    let better = SWEEP.iter().filter(|users| sweep(**users) > 1.0).count();
    let at = |name: &str| SWEEP.map(|users| of(&format!("sweep.{users}.{name}")));
    let ratios = [
        ("gain.mbps", of("mbps.on") / of("mbps.off")),
        ("gain.ttfb", faster("ttfb")),
        ("gain.page.min", faster("page.min")),
        ("gain.page.mean", faster("page.mean")),
        ("gain.page.max", faster("page.max")),
        ("gain.sweep.2500", sweep(2_500)),
        ("claim.order", better as f64),
        ("claim.gain_at_load", sweep(2_500) / most),
        ("claim.users", users_at_equal_response(at("off"), at("on"))),
    ];
    for (name, value) in ratios {
        measured.set(name, value);
    }
}

/// Ratio of users with the cache to the 1,500 users without it, at the same response time, between
/// the points of the sweep.
fn users_at_equal_response(off: [f64; 5], on: [f64; 5]) -> f64 {
    let target = off[2];
    let mut users = f64::from(SWEEP[0]);
    for (ends, times) in SWEEP.windows(2).zip(on.windows(2)) {
        let (from, to) = (f64::from(ends[0]), f64::from(ends[1]));
        if times[1] <= target {
            users = to;
        } else if times[0] <= target {
            users = from + (to - from) * (target - times[0]) / (times[1] - times[0]);
        }
    }
    users / f64::from(SWEEP[2])
}

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

fn seconds(span: Nanos) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;

    const DISKS: [&str; 3] = ["disk0", "disk1", "disk2"];

    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, MaxiqScale::QUICK, &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), true, 0.0).unwrap();
        assert_eq!(rows.len(), 35);
        let sites = &outcome.tables[1].lines;
        let pages = |column: usize| -> u64 {
            let cells = sites
                .iter()
                .map(|line| line[column].parse::<u64>().unwrap());
            cells.sum()
        };
        // 30 of 83 sites, drawn uniformly.
        let all = outcome.curves[0].1.whole().0.pages;
        let share = pages(1) as f64 / all as f64 / (30.0 / 83.0);
        assert!(sites.len() == 30 && (share - 1.0).abs() < 0.2, "{share}");
        assert!(pages(4) > pages(1), "{sites:?}");
        assert_eq!(outcome.tables[2].lines.len(), 4);
        assert!(outcome.values["gain.mbps"] > 1.2, "{outcome:?}");
        assert_eq!(outcome, run(1, MaxiqScale::QUICK, &|_| ()).unwrap());
    }

    #[test]
    fn a_pool_has_as_many_flash_drives_as_were_asked_for() {
        for drives in 1..=FLASH_MAX {
            let config = rig::topology(&with_flash_drives(drives)).unwrap();
            let pool: Vec<_> = config.pools[0].devices.value.iter().collect();
            assert_eq!(pool.len() as u64, drives);
            let is_flash = |name: &str| !DISKS.contains(&name);
            let devices = config.devices.iter().map(|device| device.name.as_str());
            assert_eq!(devices.filter(|name| is_flash(name)).count() as u64, drives);
        }
    }

    /// Users in flight and thinking users are all users: N = X (R + Z).
    #[test]
    fn the_interactive_law_holds_on_the_whole_node() {
        let scale = MaxiqScale::QUICK;
        let (users, span) = (scale.users, scale.span);
        let (curve, took) = run_one(1, scale, false, users, span, |_| ()).unwrap();
        assert!(took >= span && took < span + Nanos::from_secs(5), "{took}");
        let (sum, s) = curve.over(seconds(scale.span) / 2.0, f64::INFINITY);
        let users = sum.pages as f64 / s * (sum.response_s() + seconds(scale.think));
        let law = users / f64::from(scale.users);
        assert!((law - 1.0).abs() < 0.05, "{law}");
    }
}
