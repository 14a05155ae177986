//! Faults of devices while a daemon runs.

use crate::devil::{Effect, Rule, Verb};
use crate::plan::{BACK, ETC, Plan, STATE, one};
use crate::standing::Standing;
use fastrand::Rng;
use std::time::Duration;

/// What is at fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The origin of a volume, whose clients see it.
    Origin,
    /// A member of an array.
    Member,
    /// A device of a pool.
    Pool,
    /// A device of the log.
    Log,
    /// The journal of write-back.
    Journal,
    /// What the daemon remembers.
    State,
    /// The folder of its configuration.
    Configuration,
}

/// What devices do wrong.
const EFFECTS: [Effect; 5] = [
    Effect::Fail(libc::EIO),
    Effect::Fail(libc::ENOSPC),
    Effect::Fail(libc::EROFS),
    Effect::Hang,
    Effect::Late(Duration::from_millis(200)),
];

/// A fault of a device, and for how long.
pub struct Fault {
    /// Of what.
    pub target: Target,
    /// Its name.
    pub name: String,
    /// What it does.
    pub rule: Rule,
    /// How long.
    pub time: Duration,
}

/// Every fault there may be.
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
    /// Draws one, of what `standing` says may be at fault.
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

    /// Draws one of what may be at fault while a daemon starts, which it has to start without.
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
        // A member that is silent is lost only after its detection.
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

    /// What it is counted as.
    pub fn class(&self) -> String {
        class(self.target, &self.rule.effect)
    }

    /// The volume whose requests may wait and fail meanwhile; of what the daemon remembers all may
    /// wait.
    pub fn volume(&self, plan: &Plan) -> Option<usize> {
        let mut volumes = plan.volumes.iter();
        match self.target {
            Target::Origin => volumes.position(|volume| volume.origin == self.name),
            Target::Journal => Some(BACK),
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
