//! What a storm is made of: its devices, its configuration, and what happens, all drawn from its seed.

use crate::devil::{Effect, Rule, Verb};
use fastrand::Rng;
use std::path::Path;
use std::time::Duration;

/// A volume and what it is made of.
pub struct Volume {
    /// Its name.
    pub name: &'static str,
    /// Its origin's device.
    pub origin: &'static str,
    /// How it uses the pool.
    pub mode: &'static str,
    /// The size of its origin.
    pub mib: u64,
}

/// One storm's daemon.
pub struct Plan {
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// Devices by name, each a file of that size.
    pub files: Vec<(&'static str, u64)>,
    line_size: &'static str,
    policy: &'static str,
    order: &'static str,
    max_lag: &'static str,
    dirty_max: &'static str,
    pool_devices: usize,
}

/// The devices that a log is on.
pub const LOGS: [&str; 2] = ["log0", "log1"];
const POOLS: [&str; 2] = ["ssd0", "ssd1"];
/// The folder of what the daemon remembers.
pub const STATE: &str = "state";

fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

impl Plan {
    /// The plan of a storm: a volume whose writes go through, and one that is written back.
    pub fn draw(rng: &mut Rng) -> Plan {
        let pool_devices = rng.usize(1..=2);
        let order = one(rng, &["ordered", "coalesced", "journaled"]);
        let volumes = vec![
            Volume {
                name: "through",
                origin: "disk0",
                mode: one(rng, &["write-through", "write-through", "write-around"]),
                mib: 24,
            },
            Volume {
                name: "back",
                origin: "disk1",
                mode: "write-back",
                mib: 24,
            },
        ];
        let mut files = vec![("disk0", 24), ("disk1", 24)];
        files.extend(POOLS[..pool_devices].iter().map(|name| (*name, 32)));
        let log_mib = one(rng, &[10, 16, 33]);
        files.extend(LOGS.map(|name| (name, log_mib)));
        if order == "journaled" {
            files.push(("journal", 20));
        }
        Plan {
            volumes,
            files,
            line_size: one(rng, &["4KiB", "64KiB", "256KiB"]),
            policy: one(rng, &["auto", "lru"]),
            order,
            max_lag: one(rng, &["3s", "30s", "300s"]),
            dirty_max: one(rng, &["1MiB", "4MiB", "64MiB"]),
            pool_devices,
        }
    }

    /// The daemon's configuration: its sockets in `folder`, its devices and its state in `devices`.
    pub fn configuration(&self, folder: &Path, devices: &Path) -> String {
        let (dir, at) = (folder.display(), devices.display());
        let mut text = format!(
            "[daemon]\ncontrol = \"{dir}/control\"\nstate = \"{at}/{STATE}\"\nbuffers = \"32MiB\"\n\
             stop = \"20s\"\ngrace = \"2s\"\n[[listen]]\nunix = \"{dir}/nbd\"\n"
        );
        for (name, _) in &self.files {
            text += &format!(
                "[[device]]\nname = \"{name}\"\npath = \"{at}/{name}\"\ncontroller = \"of-{name}\"\n"
            );
        }
        text += &format!(
            "[[pool]]\nname = \"fast\"\ndevices = {:?}\nline_size = \"{}\"\npolicy = \"{}\"\n\
             hit_latency_max = \"1s\"\n",
            self.pool(),
            self.line_size,
            self.policy
        );
        for volume in &self.volumes {
            text += &format!(
                "[[volume]]\nname = \"{}\"\norigin = \"{}\"\npool = \"fast\"\nmode = \"{}\"\n",
                volume.name, volume.origin, volume.mode
            );
            if volume.mode == "write-back" {
                text += &format!(
                    "log = {LOGS:?}\nwrite_back = \"{}\"\nmax_lag = \"{}\"\ndirty_max = \"{}\"\n",
                    self.order, self.max_lag, self.dirty_max
                );
                if self.order == "journaled" {
                    text += "journal = \"journal\"\n";
                }
            }
        }
        text
    }

    /// The devices of its pool.
    pub fn pool(&self) -> &'static [&'static str] {
        &POOLS[..self.pool_devices]
    }

    /// What the storm is about, in a line.
    pub fn about(&self) -> String {
        format!(
            "{} and {} (max_lag {}, dirty_max {}), {} pool devices, lines of {}, {}",
            self.volumes[0].mode,
            self.order,
            self.max_lag,
            self.dirty_max,
            self.pool_devices,
            self.line_size,
            self.policy
        )
    }
}

/// What is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The origin of a volume, whose clients see it.
    Origin,
    /// A device of the pool.
    Pool,
    /// A device of the log.
    Log,
    /// The journal of write-back.
    Journal,
    /// What the daemon remembers.
    State,
}

/// A fault of a device, and for how long.
pub struct Fault {
    /// Of what.
    pub target: Target,
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub rule: Rule,
    /// How long.
    pub time: Duration,
}

impl Fault {
    /// Draws one. `log` is the copy of the log that may be at fault in this life.
    pub fn draw(rng: &mut Rng, plan: &Plan, log: usize) -> Fault {
        let mut targets = vec![
            (Target::Origin, "disk0"),
            (Target::Origin, "disk1"),
            (Target::Pool, one(rng, plan.pool())),
            (Target::Log, LOGS[log]),
            (Target::Log, LOGS[log]),
            (Target::State, STATE),
        ];
        if plan.order == "journaled" {
            targets.push((Target::Journal, "journal"));
        }
        let (target, name) = one(rng, &targets);
        let effect = one(
            rng,
            &[
                Effect::Fail(libc::EIO),
                Effect::Fail(libc::EIO),
                Effect::Fail(libc::ENOSPC),
                Effect::Fail(libc::EROFS),
                Effect::Hang,
                Effect::Hang,
                Effect::Late(Duration::from_millis(200)),
            ],
        );
        let all = vec![Verb::Read, Verb::Write, Verb::Flush];
        let verbs = match effect {
            Effect::Fail(number) if number != libc::EIO => vec![Verb::Write, Verb::Name],
            _ => match rng.u8(..5) {
                0 => vec![Verb::Read],
                1 => vec![Verb::Write],
                2 => vec![Verb::Flush],
                3 => vec![Verb::Write, Verb::Flush],
                _ => all,
            },
        };
        Fault {
            target,
            name,
            rule: Rule { verbs, effect },
            time: Duration::from_millis(rng.u64(100..4000)),
        }
    }

    /// The volume whose requests may wait and fail meanwhile; of what the daemon remembers all may
    /// wait.
    pub fn volume(&self, plan: &Plan) -> Option<usize> {
        let mut volumes = plan.volumes.iter();
        match self.target {
            Target::Origin => volumes.position(|volume| volume.origin == self.name),
            Target::Journal => volumes.position(|volume| volume.mode == "write-back"),
            _ => None,
        }
    }

    /// Whether it takes an origin out of service until the next start: after a flush or a durable write
    /// that failed, nobody knows what of the acknowledged writes is there.
    pub fn lasts(&self) -> bool {
        let fails = matches!(self.rule.effect, Effect::Fail(_));
        let durable = [Verb::Write, Verb::Flush];
        let verbs = self.rule.verbs.iter();
        fails && self.target == Target::Origin && verbs.copied().any(|verb| durable.contains(&verb))
    }
}
