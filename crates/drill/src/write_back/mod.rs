//! Drills of write-back volumes: the devices of their logs, the controllers of these, and the way
//! to their origins.
//!
//! Each volume is as its configuration has it (order, journal, limits, controllers), on small
//! drives of the drill's own. Each device has one drive, and so has each array that is a part of
//! the volume. The volume's pool takes everything, so that its reads need no origin.
//!
//! Not here: frontends, and volumes of other modes.

mod play;
mod real;
#[cfg(feature = "simulated")]
mod sim;
mod standing;

pub(super) use real::WriteBackStage;
#[cfg(feature = "simulated")]
pub(super) use sim::run as simulated;
#[cfg(all(test, feature = "simulated"))]
pub(super) use sim::{run_altered, run_dropping};

use super::load::{BLOCK_BYTES, Habit};
use block::{Nanos, SECTOR_BYTES, Sectors};
use control::check::domain;
use control::config::{Config, Name, Pool, Volume, VolumeMode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use writelog::Cleaning;

/// Time limits of a log device before it is lost, the second as a number of the longest hits of the
/// pool (`docs/write-back.md`, Losses).
const ANSWER_MAX: Nanos = Nanos::from_secs(5);
const ANSWER_HITS: u64 = 10;
/// Time that pulled log devices stay away.
const AWAY: Nanos = Nanos::from_secs(3);
/// Time that an origin stays away beyond the longest permitted wait.
const LONGER: Nanos = Nanos::from_secs(1);
/// An origin is away for this part of `max_lag` at most. The search for the origin lasts as long as
/// its absence, and from a half of `max_lag` on writes would wait.
const AWAY_PART: u64 = 4;
/// Least `dirty_max`, in multiples of the data that clients write, for the same reason.
const DIRTY_TIMES: u64 = 2;

const ORIGIN_MIB: u64 = 12;
/// The part of the origin that is only read: a whole region of the pool's write-intent bitmap.
const QUIET_MIB: u64 = 4;
/// Twice the data that clients write while an origin is away.
const LOG_MIB: u64 = 128;
const JOURNAL_MIB: u64 = 32;
/// Room on a pool device for all but lines, and the lines of a pool in quarters of all content, so
/// that each pool device has some.
const POOL_MIB: u64 = 1;
const LINES: u64 = 5;

/// The clients of a write-back volume.
const HABIT: Habit = Habit {
    rest: Nanos::from_millis(8),
    flush_every: 64,
    quiet_blocks: (QUIET_MIB << 20) / BLOCK_BYTES as u64,
};

/// Purpose of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DrivePart {
    Origin,
    Log,
    Journal,
    Pool,
}

/// The write-back volumes of a configuration.
#[derive(Clone)]
pub(super) struct Volumes {
    config: Config,
    volumes: Vec<Volume>,
    drives: BTreeMap<Name, DrivePart>,
}

/// Kind of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DrillLoss {
    /// Drives are pulled.
    Drives,
    /// Requests to an origin get no answer, until the origin is back.
    Path,
}

/// A loss to play.
#[derive(Clone, Debug)]
pub(super) struct WriteBackScenario {
    pub(super) name: String,
    pub(super) side: String,
    pub(super) loss: DrillLoss,
    /// Drives lost one step after the other, each once the origin has the dirty data of the step
    /// before.
    pub(super) steps: Vec<Vec<Name>>,
}

/// One cell.
#[derive(Clone, Debug)]
pub(super) struct WriteBackCell {
    pub(super) scenario: WriteBackScenario,
    pub(super) io: bool,
}

impl Volumes {
    /// Takes the write-back volumes of a configuration that agrees with itself.
    pub(super) fn new(config: Config) -> Volumes {
        let volumes = config.volumes.iter();
        let volumes = volumes.filter(|v| v.in_force() == VolumeMode::WriteBack);
        let mut all = Volumes {
            volumes: volumes.cloned().collect(),
            drives: BTreeMap::new(),
            config,
        };
        let mut drives = BTreeMap::new();
        for volume in &all.volumes {
            drives.insert(volume.origin.value.clone(), DrivePart::Origin);
            let log = volume.log.value.iter();
            drives.extend(log.map(|name| (name.clone(), DrivePart::Log)));
            let journal = journal(volume).into_iter();
            drives.extend(journal.map(|name| (name.clone(), DrivePart::Journal)));
        }
        for pool in all.pools() {
            let devices = pool.devices.value.iter();
            drives.extend(devices.map(|name| (name.clone(), DrivePart::Pool)));
        }
        all.drives = drives;
        all
    }

    /// Tests for no volumes.
    pub(super) fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        let used = |pool: &&Pool| {
            let mut volumes = self.volumes.iter();
            volumes.any(|volume| volume.pool.value == pool.name.value)
        };
        self.config.pools.iter().filter(used)
    }

    fn pool(&self, volume: &Volume) -> &Pool {
        let mut pools = self.pools();
        let found = pools.find(|pool| pool.name.value == volume.pool.value);
        found.expect("each has one that is configured")
    }

    /// The size of a drive.
    fn size(&self, part: DrivePart) -> Sectors {
        let mib = match part {
            DrivePart::Origin => ORIGIN_MIB,
            DrivePart::Log => LOG_MIB,
            DrivePart::Journal => JOURNAL_MIB,
            DrivePart::Pool => {
                let lines = ORIGIN_MIB * self.volumes.len() as u64 * LINES / 4;
                let devices = self.pools().map(|pool| pool.devices.value.len() as u64);
                POOL_MIB + lines.div_ceil(devices.filter(|n| *n > 0).min().unwrap_or(1))
            }
        };
        Sectors((mib << 20) / SECTOR_BYTES)
    }

    /// The longest that a device of the log of `volume` may take.
    fn answer(&self, volume: &Volume) -> Nanos {
        let hit = nanos(self.pool(volume).hit_latency_max.value);
        ANSWER_MAX.max(Nanos(hit.0.saturating_mul(ANSWER_HITS)))
    }

    fn answer_max(&self) -> Nanos {
        let each = self.volumes.iter().map(|volume| self.answer(volume));
        each.max().unwrap_or(ANSWER_MAX)
    }

    /// The longest time that a request may take: until a log device is lost, and then until all
    /// dirty data is written back. The write-back takes `max_lag` at most.
    pub(super) fn limit(&self, loss: DrillLoss) -> Nanos {
        let lag = self.volumes.iter().map(|v| nanos(v.max_lag.value)).max();
        match loss {
            DrillLoss::Drives => self.answer_max() + lag.unwrap_or(Nanos::ZERO),
            DrillLoss::Path => self.answer_max(),
        }
    }

    /// Time that the drives lost last stay away.
    pub(super) fn away(&self, loss: DrillLoss) -> Nanos {
        match loss {
            DrillLoss::Drives => AWAY,
            DrillLoss::Path => self.limit(DrillLoss::Path) + LONGER,
        }
    }

    /// The scenarios to run, and a sentence for each that would stop a volume by design.
    pub(super) fn scenarios(&self) -> (Vec<WriteBackScenario>, Vec<String>) {
        let (mut run, mut not_run) = (Vec::new(), Vec::new());
        let side = |name: &Name| domain(&self.config, name);
        let drives = |name: String, side: String, steps: Vec<Vec<Name>>| WriteBackScenario {
            name,
            side,
            loss: DrillLoss::Drives,
            steps,
        };
        for volume in &self.volumes {
            let (of, log) = (&volume.name.value, &volume.log.value);
            for one in log {
                let name = format!("a device of the log ({of})");
                run.push(drives(name, side(one), vec![vec![one.clone()]]));
            }
            for last in log {
                let first = log.iter().filter(|other| *other != last).cloned().collect();
                let name = format!("a device of the log after the other ({of})");
                run.push(drives(name, side(last), vec![first, vec![last.clone()]]));
            }
        }
        let logs = self.drives_of(DrivePart::Log);
        let sides: BTreeSet<String> = logs.iter().map(|name| side(name)).collect();
        for controller in sides {
            let all: Vec<Name> = self.drives.keys().cloned().collect();
            let here: Vec<Name> = all.into_iter().filter(|n| side(n) == controller).collect();
            let origin = here
                .iter()
                .find(|name| self.drives[name] == DrivePart::Origin);
            match origin {
                Some(origin) => not_run.push(format!(
                    "a whole controller of side {controller}: {origin} is an origin, which comes back at a start alone"
                )),
                None if here.len() > 1 => {
                    run.push(drives("a whole controller".into(), controller, vec![here]));
                }
                None => {}
            }
        }
        for volume in &self.volumes {
            let (name, origin) = (&volume.name.value, &volume.origin.value);
            let what = format!("the path of the origin ({name})");
            match self.cannot_wait(volume) {
                Some(why) => not_run.push(format!("{what} of side {}: {why}", side(origin))),
                None => run.push(WriteBackScenario {
                    name: what,
                    side: side(origin),
                    loss: DrillLoss::Path,
                    steps: vec![vec![origin.clone()]],
                }),
            }
        }
        (run, not_run)
    }

    fn drives_of(&self, part: DrivePart) -> Vec<&Name> {
        let drives = self.drives.iter().filter(|(_, of)| **of == part);
        drives.map(|(name, _)| name).collect()
    }

    /// The reason why clients of `volume` would wait for an origin that is away.
    fn cannot_wait(&self, volume: &Volume) -> Option<String> {
        if self.pool(volume).devices.value.is_empty() {
            return Some("its pool has no device for what is read".into());
        }
        let lag = AWAY_PART * self.away(DrillLoss::Path).0;
        if nanos(volume.max_lag.value).0 < lag {
            let lag_s = lag.div_ceil(1_000_000_000);
            return Some(format!("writes would wait: `max_lag` is under {lag_s} s"));
        }
        let written_mib = ORIGIN_MIB - QUIET_MIB;
        let dirty_mib = DIRTY_TIMES * written_mib;
        (volume.dirty_max.value.0 < dirty_mib << 20)
            .then(|| format!("writes would wait: `dirty_max` is under {dirty_mib} MiB"))
    }

    /// Every cell: each scenario without and with clients.
    pub(super) fn cells(&self) -> Vec<WriteBackCell> {
        let each = self.scenarios().0.into_iter().flat_map(|scenario| {
            [false, true].map(|io| WriteBackCell {
                scenario: scenario.clone(),
                io,
            })
        });
        each.collect()
    }

    /// A configuration of the volumes for a daemon in `directory`, with the place of each drive
    /// by `source`.
    pub(super) fn configuration(
        &self,
        directory: &Path,
        source: impl Fn(&str, DrivePart) -> String,
    ) -> String {
        let dir = directory.display();
        let mut text = format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{dir}/state\"\n[[listen]]\nunix = \"{dir}/nbd\"\n"
        );
        for (name, part) in &self.drives {
            let (source, controller) = (source(name.as_str(), *part), domain(&self.config, name));
            text +=
                &format!("[[device]]\nname = \"{name}\"\n{source}\ncontroller = {controller:?}\n");
        }
        let names = |all: &[Name]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        for pool in self.pools() {
            text += &format!(
                "[[pool]]\nname = \"{}\"\ndevices = {:?}\nhit_latency_max = \"{}ms\"\nsequential = \"0B\"\n",
                pool.name.value,
                names(&pool.devices.value),
                pool.hit_latency_max.value.as_millis(),
            );
        }
        for volume in &self.volumes {
            text += &format!(
                "[[volume]]\nname = \"{}\"\norigin = \"{}\"\npool = \"{}\"\nmode = \"write-back\"\nwrite_back = \"{}\"\n\
                 log = {:?}\nmax_lag = \"{}ms\"\ndirty_max = \"{}B\"\n",
                volume.name.value,
                volume.origin.value,
                volume.pool.value,
                volume.write_back.value.name(),
                names(&volume.log.value),
                volume.max_lag.value.as_millis(),
                volume.dirty_max.value.0,
            );
            if let Some(journal) = journal(volume) {
                text += &format!("journal = \"{journal}\"\n");
            }
        }
        text
    }

    /// A line for each.
    pub(super) fn about(&self) -> Vec<String> {
        let each = self.volumes.iter().map(|volume| {
            let log: Vec<&str> = volume.log.value.iter().map(Name::as_str).collect();
            let (name, order) = (&volume.name.value, volume.write_back.value.name());
            format!("{name}: write-back, {order}, log on {}", log.join(" and "))
        });
        each.collect()
    }
}

/// The device of the volume's journal, if there is one.
fn journal(volume: &Volume) -> Option<&Name> {
    let journaled = volume.write_back.value == Cleaning::Journaled;
    let journal = volume.journal.as_ref().filter(|_| journaled);
    journal.map(|journal| &journal.value)
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
