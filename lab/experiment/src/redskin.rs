//! An access log replayed on Apache with a hard disk, and with two kinds of flash drives.
//!
//! Two lists: the first 300,000 requests of an hour's log, and the whole hour twice. The
//! host's page cache is empty before each. The disk is two drives that hotset's own RAID 1
//! mirrors; the flash drives are alone.
//!
//! One thread has one read in flight. Beside that read, an I/O scheduler can order only the writes
//! of the server's own log. That log stayed with the system on the disks when the files moved to
//! flash: on flash both schedulers are one run. One request is in flight to the disks, so that the
//! scheduler chooses as much as it can.
//!
//! The client's own time is included: the printed rates and times leave no other for it.
//!
//! Not here: pauses of the client or the server, of which only the spread was printed.

mod claims;
mod floor;
mod parts;
mod scale;

use crate::access_log::AccessLog;
use crate::choices::choose;
use crate::entry::{Experiment, LoadUses};
use crate::figures::PublishedFigures;
use crate::host::{PageCacheHost, PageCount};
use crate::load::{Load, LoadPlace};
use crate::parameters::set;
use crate::record::record;
use crate::replay::{ReplayMeasured, ReplayServer, replay};
use crate::rig::{self, Disks, NodeRig, OwnModel};
use crate::site::{PAGE_BYTES, SiteFile, SiteFiles, SiteShape, log_of};
use crate::slowed::Slowed;
use crate::turnstile::QueueOrder;
use crate::verdict::{SeedOutcome, Values};
use crate::visitors::VisitCurve;
use block::{Boundary, Nanos, Sectors};
use claims::claims;
use control::config::Config;
use drives::catalogue::Drive;
use drives::catalogue::link::GIGABIT;
use drives::catalogue::ssd::{X25_E, X25_M};
use drives::{Figure, SsdParameters, SsdWear};
use floor::with_lower_floor;
use futures_util::future::{Either, select, try_join};
use parts::{PARAMETERS, PARTS};
use scale::PROCESSOR;
pub use scale::RedskinScale;
use sim::{ServiceTime, SimRng, SimWorld};
use std::pin::pin;
use std::rc::Rc;

/// The experiment's name in the registry.
pub const NAME: &str = "redskin";
/// One line of the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    title: "an access log replayed on a web server with disks, and with two kinds of flash drives",
    needs: "300 MB; half a minute a seed",
    times: 1.0,
    topology: TOPOLOGY,
    figures,
    check: |settings| set(RedskinScale::QUICK, &PARAMETERS, settings).map(drop),
    run: |seed, quick, settings, done| {
        run(
            seed,
            set(RedskinScale::of(quick), &PARAMETERS, settings)?,
            done,
        )
    },
    parts: &PARTS,
    load: Some(LoadUses {
        choose: |seed, quick, flash, choice| choose(RedskinScale::load(quick), seed, flash, choice),
        record: |seed, quick, sink| record(RedskinScale::load(quick), seed, sink),
    }),
};
/// The topology, in the form that `hotset check` reads.
pub const TOPOLOGY: &str = include_str!("../topologies/redskin.toml");
const FIGURES: &str = include_str!("../figures/redskin.toml");

/// Both X25-E drives: joined to one volume, with one request at a time.
const X25_E_PAIR: SsdParameters = SsdParameters {
    sectors: Figure::datasheet(250_090_848.0, "two of 64,023 MB, as printed"),
    ..X25_E
};
/// Purposes of random streams.
const PHASES: u64 = 10;

/// The drives of the site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SiteDrive {
    /// Two mirrored disks.
    Hdd,
    /// One X25-M.
    X25M,
    /// Two X25-E, joined.
    X25E,
}

impl SiteDrive {
    /// Every one.
    pub const ALL: [SiteDrive; 3] = [SiteDrive::Hdd, SiteDrive::X25M, SiteDrive::X25E];

    /// Name of the drive in the figures, and of its volume.
    pub const fn name(self) -> &'static str {
        match self {
            SiteDrive::Hdd => "hdd",
            SiteDrive::X25M => "x25-m",
            SiteDrive::X25E => "x25-e",
        }
    }
}

/// Both I/O schedulers, by their names in the figures.
const SCHEDULERS: [(&str, QueueOrder); 2] = [
    ("elevator", QueueOrder::Elevator),
    ("fifo", QueueOrder::Fifo),
];

/// A list of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestList {
    /// The list's name in the figures.
    pub name: &'static str,
    /// Requests of the log.
    pub requests: u32,
    /// Number of times that the log is sent.
    pub times: u32,
    /// The mean answer, of the printed rates.
    pub mean_bytes: f64,
}

/// The first part of the log.
pub const SHORT: RequestList = RequestList {
    name: "short",
    requests: 300_000,
    times: 1,
    mean_bytes: 6_861.0,
};
/// The whole hour, twice.
pub const HOUR: RequestList = RequestList {
    name: "hour",
    requests: 1_341_489,
    times: 2,
    mean_bytes: 5_771.0,
};

/// The published figures.
pub fn figures() -> PublishedFigures {
    PublishedFigures::parse(FIGURES).expect("the shipped figures are well formed")
}

/// A site and a log of its requests, as `seed` and `ways` draw them.
struct Drawn {
    site: SiteFiles,
    log: Vec<u32>,
    times: u32,
}

impl Drawn {
    fn new(seed: u64, ways: u64, scale: RedskinScale, list: RequestList) -> Drawn {
        let shape = SiteShape {
            files: scale.files,
            mean_bytes: list.mean_bytes,
            exponent: scale.exponent,
        };
        Drawn {
            site: SiteFiles::new(seed, shape),
            log: log_of(ways, shape, list.requests / scale.divisor),
            times: list.times,
        }
    }

    /// Replays the log on a volume.
    async fn replayed(
        &self,
        rig: &mut NodeRig,
        scale: RedskinScale,
        (drive, order): (SiteDrive, QueueOrder),
    ) -> Result<(ReplayMeasured, VisitCurve, PageCount), String> {
        let volume = rig.volume(drive.name())?;
        if self.site.pages() * PAGE_BYTES > volume.bytes() {
            return Err(format!(
                "{} files do not fit on a volume of {} bytes; give fewer",
                scale.files,
                volume.bytes()
            ));
        }
        let again = (0..self.times).flat_map(|_| &self.log).enumerate();
        let sent = |n: usize| (n as f64 * scale.sent) as u64;
        let again = again.filter(|(n, _)| sent(n + 1) > sent(*n));
        let again = again.map(|(_, rank)| rank);
        // Without metadata all files have those of one page, which is read once.
        let log = again.map(|rank| match self.site.file(*rank) {
            file if scale.has_metadata => file,
            file => SiteFile {
                directory: 0,
                inode: 0,
                ..file
            },
        });
        if !scale.heads_far {
            // Two reads at once are one for each of the mirrored disks.
            let read = || volume.read(0, PAGE_BYTES as usize);
            try_join(read(), read()).await.map_err(to_message)?;
        }
        let host = PageCacheHost::new(volume, scale.memory_pages).scheduled(order);
        let mut server = ReplayServer::behind(&GIGABIT, scale.processor);
        if !scale.has_way {
            (server.round_trip, server.rate_mb_s) = (Nanos::ZERO, f64::INFINITY);
        }
        let written = AccessLog::new(self.site.pages());
        let both = (server, scale.client);
        let replay = pin!(replay(&rig.env, &host, both, log, || written.line()));
        let replayed = match drive == SiteDrive::Hdd && scale.has_log {
            false => replay.await,
            true => match select(replay, pin!(written.write_back(&rig.env, &host))).await {
                Either::Left((replayed, _)) => replayed,
                Either::Right((ended, _)) => Err(ended.expect_err("it writes for ever")),
            },
        };
        let (measured, curve) = replayed.map_err(to_message)?;
        Ok((measured, curve, host.counts()))
    }
}

/// Replays `list` on `drive`; returns the results of the load tool, and the counts of pages.
pub fn run_list(
    seed: u64,
    scale: RedskinScale,
    drive: SiteDrive,
    list: RequestList,
) -> Result<(ReplayMeasured, PageCount), String> {
    let drawn = Rc::new(Drawn::new(seed, seed, scale, list));
    run_drawn(seed, scale, (drive, QueueOrder::Elevator), drawn)
}

fn run_drawn(
    seed: u64,
    scale: RedskinScale,
    on: (SiteDrive, QueueOrder),
    drawn: Rc<Drawn>,
) -> Result<(ReplayMeasured, PageCount), String> {
    let replayed = async move |mut rig: NodeRig| {
        let (measured, _, pages) = drawn.replayed(&mut rig, scale, on).await?;
        Ok((measured, pages))
    };
    Ok(scale.on_node(seed, TOPOLOGY, replayed)?.0)
}

/// The short list on the disks; with choices, the X25-M caches them.
impl Load for RedskinScale {
    fn place(&self) -> LoadPlace {
        LoadPlace {
            volumes: &["hdd"],
            advised_after: Nanos::from_secs(1200 / u64::from(self.divisor)),
        }
    }

    const PUBLISHED: &str = TOPOLOGY;

    fn topology(&self) -> String {
        let moved = "[[volume]]\nname = \"x25-m\"\norigin = \"x25-m\"\npool = \"flash\"\n\
                     mode = \"pass-through\"\n";
        let disks = "origin = \"disks\"\npool = \"flash\"\n";
        TOPOLOGY
            .replace(moved, "")
            .replace("devices = []", "devices = [\"x25-m\"]")
            .replace(&format!("{disks}mode = \"pass-through\"\n"), disks)
    }

    fn with_flash(self, percent: u64) -> RedskinScale {
        let flash_percent = self.flash_percent * percent / 100;
        RedskinScale {
            flash_percent,
            ..self
        }
    }

    fn below(self, seed: u64, config: &Config, world: &mut SimWorld) -> Result<Disks, String> {
        let flash = X25_M.capacity().0 / u64::from(self.divisor) * self.flash_percent / 100;
        let cached = &config.pools[0].devices.value;
        let drives = cached.len().max(1) as u64;
        let flash = Sectors(flash / drives / 2048 * 2048);
        let mut phases = SimRng::fork(seed, PHASES);
        let mut below = Disks::new();
        for device in &config.devices {
            let drive = match rig::named(device).map_err(to_message)? {
                // A pair is joined to one drive.
                Drive::Ssd(ssd) if ssd.name == X25_E.name && device.model_disks.value == 2 => {
                    Drive::Ssd(X25_E_PAIR)
                }
                drive => drive,
            };
            let (phase, cost) = match &drive {
                Drive::Hdd(_) => (rig::phase(&mut phases), self.disk_cost),
                Drive::Ssd(_) => (0.0, self.flash_cost),
            };
            let sectors = match &drive {
                Drive::Ssd(ssd) if ssd.name == X25_M.name => flash,
                drive => drive.capacity(),
            };
            let drive = drive.model(phase, SsdWear::Steady).map_err(to_message)?;
            let model = world.add_model(Slowed::new(drive, cost));
            let disk = OwnModel {
                sectors,
                service: Some(ServiceTime::Model { model, unit: 0 }),
            };
            below.insert(device.name.to_string(), disk);
        }
        Ok(below)
    }

    async fn work(self, rig: &mut NodeRig, seed: u64, ways: u64) -> Result<VisitCurve, String> {
        let drawn = Drawn::new(seed, ways, self, SHORT);
        let on = (SiteDrive::Hdd, QueueOrder::Elevator);
        Ok(drawn.replayed(rig, self, on).await?.1)
    }
}

/// Everything that was printed, measured with one seed. Calls `done` after each part.
pub fn run(seed: u64, scale: RedskinScale, done: &dyn Fn(&str)) -> Result<SeedOutcome, String> {
    let mut virtual_s = 0.0;
    let mut values = Values::new();
    for list in [SHORT, HOUR] {
        let drawn = Rc::new(Drawn::new(seed, seed, scale, list));
        for drive in SiteDrive::ALL {
            let name = drive.name();
            let mut ran = None;
            for (scheduler, order) in SCHEDULERS {
                // The disk ran the hour with one of them only.
                if list == HOUR && drive == SiteDrive::Hdd && scheduler == "fifo" {
                    continue;
                }
                let measured = match ran {
                    Some(measured) if drive != SiteDrive::Hdd => measured,
                    _ => run_drawn(seed, scale, (drive, order), drawn.clone())?.0,
                };
                if ran.is_none() || drive == SiteDrive::Hdd {
                    virtual_s += measured.span_s;
                }
                ran = Some(measured);
                let taken = ("tt", measured.span_s * f64::from(scale.divisor) / 60.0);
                for (measure, value) in measured.named().into_iter().chain([taken]) {
                    // The time taken was printed of the hour alone.
                    if measure == "tt" && list != HOUR {
                        continue;
                    }
                    values.insert(format!("{}.{name}.{scheduler}.{measure}", list.name), value);
                }
            }
            done(&format!("seed {seed}: {} list on {name}", list.name));
        }
    }
    with_lower_floor(&mut values, PROCESSOR);
    claims(&mut values);
    Ok(SeedOutcome {
        values,
        virtual_s,
        ..SeedOutcome::default()
    })
}

fn to_message(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::rows;
    use floor::FITTED;

    /// A hundredth of the load: every figure has its row, and the drives are in their order.
    #[test]
    fn the_short_form_measures_every_printed_figure() {
        let outcome = run(1, RedskinScale::QUICK, &|_| ()).unwrap();
        let rows = rows(NAME, &figures(), std::slice::from_ref(&outcome), true, 0.0).unwrap();
        assert_eq!(rows.len(), 82);
        let ours = |name: &str| outcome.values[name];
        assert!(ours("claim.gap.short") > ours("claim.gap.hour"));
        assert!(ours("claim.gap.hour") > 2.0);
        assert!(ours("claim.x25-e") > 1.0);
        assert_eq!(outcome, run(1, RedskinScale::QUICK, &|_| ()).unwrap());
        assert_ne!(outcome, run(2, RedskinScale::QUICK, &|_| ()).unwrap());
    }

    /// Checks that without memory the second time is as slow as the first.
    #[test]
    fn the_gap_closes_because_of_the_page_cache() {
        let none = RedskinScale {
            memory_pages: 64,
            ..RedskinScale::QUICK
        };
        let pages = |scale| run_list(1, scale, SiteDrive::X25M, HOUR).unwrap().1;
        let (without, with) = (pages(none), pages(RedskinScale::QUICK));
        assert_eq!(without.asked, with.asked);
        assert!(without.missed > with.missed * 2, "{without:?} {with:?}");
    }

    /// The computed rate is the rate of a server with that floor.
    #[test]
    fn what_is_worked_out_is_what_is_simulated() {
        for (drive, within) in [
            (SiteDrive::X25M, 1e-6),
            (SiteDrive::X25E, 1e-6),
            (SiteDrive::Hdd, 0.01),
        ] {
            let tps = |processor| {
                let scale = RedskinScale {
                    processor,
                    ..RedskinScale::QUICK
                };
                run_list(1, scale, drive, SHORT).unwrap().0.tps
            };
            let mut values = Values::from([("a.tps".to_owned(), tps(PROCESSOR))]);
            with_lower_floor(&mut values, PROCESSOR);
            let ratio = values["floor.a.tps"] / tps(FITTED);
            assert!((ratio - 1.0).abs() < within, "{drive:?}: {ratio}");
            assert!((values["a.tps"] / tps(FITTED) - 1.0).abs() > within);
        }
    }
}
