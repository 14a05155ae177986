//! Faults of devices while a daemon runs.

use crate::devil::{Effect, Rule, Verb};
use crate::plan::{BACK, ETC, Plan, STATE, one};
use crate::standing::Standing;
use fastrand::Rng;
use std::time::Duration;

/// Targets of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The origin of a volume; the volume's clients see the fault.
    Origin,
    /// A member of an array.
    Member,
    /// A device of a pool.
    Pool,
    /// A device of the log.
    Log,
    /// The journal of write-back.
    Journal,
    /// The daemon's state.
    State,
    /// The folder of its configuration.
    Configuration,
}

/// Effects of faults.
const EFFECTS: [Effect; 5] = [
    Effect::Fail(libc::EIO),
    Effect::Fail(libc::ENOSPC),
    Effect::Fail(libc::EROFS),
    Effect::Hang,
    Effect::Late(Duration::from_millis(200)),
];

/// A fault of a device, and its duration.
pub struct Fault {
    /// Kind of the device.
    pub target: Target,
    /// Name of the device.
    pub name: String,
    /// Rule that the device follows.
    pub rule: Rule,
    /// Duration.
    pub time: Duration,
}

/// Every class of faults.
pub fn classes() -> Vec<String> {
    let targets = [
        Target::Origin,
        Target::Member,
        Target::Pool,
        Target::Log,
        Target::Journal,
        Target::State,
        Target::Configuration,
    ];
    let all = targets.iter().flat_map(|target| {
        let each = EFFECTS.iter();
        each.map(move |effect| class(*target, effect))
    });
    all.collect()
}

fn class(target: Target, effect: &Effect) -> String {
    format!("{target:?}: {effect:?}")
}

impl Fault {
    /// Draws a fault of a device that `standing` allows to be at fault.
    pub fn draw(rng: &mut Rng, plan: &Plan, standing: &Standing) -> Fault {
        let mut targets: Vec<(Target, String)> = standing
            .victims()
            .into_iter()
            .map(|(_, device)| (Target::Member, device))
            .collect();
        let origins = plan.volumes[..=BACK].iter().map(|volume| volume.origin);
        let disks = origins.filter(|origin| plan.array(origin).is_none());
        targets.extend(disks.map(|disk| (Target::Origin, disk.to_owned())));
        targets.push((Target::Pool, one(rng, &plan.pool_devices()).to_owned()));
        if standing.log_may_fail() {
            let name = standing.log();
            targets.extend([(Target::Log, name.clone()), (Target::Log, name)]);
        }
        targets.push((Target::State, STATE.into()));
        targets.push((Target::Configuration, ETC.into()));
        if plan.order == "journaled" {
            targets.push((Target::Journal, "journal".into()));
        }
        let (target, name) = targets.swap_remove(rng.usize(..targets.len()));
        Fault::of(rng, target, name)
    }

    /// Draws a fault for the start of a daemon, which has to start without that device.
    pub fn draw_at_start(rng: &mut Rng, plan: &Plan, standing: &Standing) -> Fault {
        let mut targets: Vec<(Target, String)> = standing
            .victims()
            .into_iter()
            .map(|(_, device)| (Target::Member, device))
            .collect();
        targets.push((Target::Pool, one(rng, &plan.pool_devices()).to_owned()));
        if standing.log_may_fail() {
            targets.push((Target::Log, standing.log()));
        }
        let (target, name) = targets.swap_remove(rng.usize(..targets.len()));
        Fault::of(rng, target, name)
    }

    fn of(rng: &mut Rng, target: Target, name: String) -> Fault {
        let often = [EFFECTS[0], EFFECTS[3]];
        let effect = match rng.bool() {
            true => one(rng, &often),
            false => one(rng, &EFFECTS),
        };
        let folder = matches!(target, Target::State | Target::Configuration);
        let all = match folder {
            true => vec![Verb::Read, Verb::Write, Verb::Flush, Verb::Name],
            false => vec![Verb::Read, Verb::Write, Verb::Flush],
        };
        let verbs = match effect {
            Effect::Fail(number) if number != libc::EIO => match folder {
                true => vec![Verb::Write, Verb::Name],
                false => vec![Verb::Write],
            },
            _ => match rng.u8(..5) {
                0 => vec![Verb::Read],
                1 => vec![Verb::Write],
                2 => vec![Verb::Flush],
                3 => vec![Verb::Write, Verb::Flush],
                _ => all,
            },
        };
        // An unresponsive member is lost only after its detection time.
        let longest = match (target, rng.u8(..3)) {
            (Target::Member, 0) => 9000,
            (_, 0) => 4000,
            _ => 1200,
        };
        Fault {
            target,
            name,
            rule: Rule { verbs, effect },
            time: Duration::from_millis(rng.u64(100..longest)),
        }
    }

    /// Returns the class of the fault.
    pub fn class(&self) -> String {
        class(self.target, &self.rule.effect)
    }

    /// Returns the volume whose requests may wait and fail meanwhile. With a fault of the daemon's
    /// state all may wait.
    pub fn volume(&self, plan: &Plan) -> Option<usize> {
        let mut volumes = plan.volumes.iter();
        match self.target {
            Target::Origin => volumes.position(|volume| volume.origin == self.name),
            Target::Journal => Some(BACK),
            _ => None,
        }
    }

    /// Returns true if the fault takes an origin out of service until the next start. After a
    /// failed flush or durable write it is unknown which acknowledged writes the origin has.
    pub fn lasts(&self) -> bool {
        let fails = matches!(self.rule.effect, Effect::Fail(_));
        let durable = [Verb::Write, Verb::Flush];
        let verbs = self.rule.verbs.iter();
        fails && self.target == Target::Origin && verbs.copied().any(|verb| durable.contains(&verb))
    }
}
