//! Faults of devices while a daemon runs.

use crate::devil::{DevilEffect, DevilRule, DevilVerb};
use crate::plan::{BACK, ETC, STATE, StormPlan, one};
use crate::standing::FaultStanding;
use fastrand::Rng;
use std::time::Duration;

/// Targets of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultTarget {
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
const EFFECTS: [DevilEffect; 5] = [
    DevilEffect::Fail(libc::EIO),
    DevilEffect::Fail(libc::ENOSPC),
    DevilEffect::Fail(libc::EROFS),
    DevilEffect::Hang,
    DevilEffect::Late(Duration::from_millis(200)),
];

/// A fault of a device, and its duration.
pub struct StormFault {
    /// Kind of the device.
    pub target: FaultTarget,
    /// Name of the device.
    pub name: String,
    /// Rule that the device follows.
    pub rule: DevilRule,
    /// Duration.
    pub time: Duration,
}

/// Every class of faults.
pub fn classes() -> Vec<String> {
    let targets = [
        FaultTarget::Origin,
        FaultTarget::Member,
        FaultTarget::Pool,
        FaultTarget::Log,
        FaultTarget::Journal,
        FaultTarget::State,
        FaultTarget::Configuration,
    ];
    let all = targets.iter().flat_map(|target| {
        let each = EFFECTS.iter();
        each.map(move |effect| class(*target, effect))
    });
    all.collect()
}

fn class(target: FaultTarget, effect: &DevilEffect) -> String {
    format!("{target:?}: {effect:?}")
}

impl StormFault {
    /// Draws a fault of a device that `standing` allows to be at fault.
    pub fn draw(rng: &mut Rng, plan: &StormPlan, standing: &FaultStanding) -> StormFault {
        let mut targets: Vec<(FaultTarget, String)> = standing
            .victims()
            .into_iter()
            .map(|(_, device)| (FaultTarget::Member, device))
            .collect();
        let origins = plan.volumes[..=BACK].iter().map(|volume| volume.origin);
        let disks = origins.filter(|origin| plan.array(origin).is_none());
        targets.extend(disks.map(|disk| (FaultTarget::Origin, disk.to_owned())));
        targets.push((FaultTarget::Pool, one(rng, &plan.pool_devices()).to_owned()));
        if standing.log_may_fail() {
            let name = standing.log();
            targets.extend([(FaultTarget::Log, name.clone()), (FaultTarget::Log, name)]);
        }
        targets.push((FaultTarget::State, STATE.into()));
        targets.push((FaultTarget::Configuration, ETC.into()));
        if plan.order == "journaled" {
            targets.push((FaultTarget::Journal, "journal".into()));
        }
        let (target, name) = targets.swap_remove(rng.usize(..targets.len()));
        StormFault::of(rng, target, name)
    }

    /// Draws a fault for the start of a daemon, which has to start without that device.
    pub fn draw_at_start(rng: &mut Rng, plan: &StormPlan, standing: &FaultStanding) -> StormFault {
        let mut targets: Vec<(FaultTarget, String)> = standing
            .victims()
            .into_iter()
            .map(|(_, device)| (FaultTarget::Member, device))
            .collect();
        targets.push((FaultTarget::Pool, one(rng, &plan.pool_devices()).to_owned()));
        if standing.log_may_fail() {
            targets.push((FaultTarget::Log, standing.log()));
        }
        let (target, name) = targets.swap_remove(rng.usize(..targets.len()));
        StormFault::of(rng, target, name)
    }

    fn of(rng: &mut Rng, target: FaultTarget, name: String) -> StormFault {
        let often = [EFFECTS[0], EFFECTS[3]];
        let effect = match rng.bool() {
            true => one(rng, &often),
            false => one(rng, &EFFECTS),
        };
        let folder = matches!(target, FaultTarget::State | FaultTarget::Configuration);
        let all = match folder {
            true => vec![
                DevilVerb::Read,
                DevilVerb::Write,
                DevilVerb::Flush,
                DevilVerb::Name,
            ],
            false => vec![DevilVerb::Read, DevilVerb::Write, DevilVerb::Flush],
        };
        let verbs = match effect {
            DevilEffect::Fail(number) if number != libc::EIO => match folder {
                true => vec![DevilVerb::Write, DevilVerb::Name],
                false => vec![DevilVerb::Write],
            },
            _ => match rng.u8(..5) {
                0 => vec![DevilVerb::Read],
                1 => vec![DevilVerb::Write],
                2 => vec![DevilVerb::Flush],
                3 => vec![DevilVerb::Write, DevilVerb::Flush],
                _ => all,
            },
        };
        // An unresponsive member is lost only after its detection time.
        let longest = match (target, rng.u8(..3)) {
            (FaultTarget::Member, 0) => 9000,
            (_, 0) => 4000,
            _ => 1200,
        };
        StormFault {
            target,
            name,
            rule: DevilRule { verbs, effect },
            time: Duration::from_millis(rng.u64(100..longest)),
        }
    }

    /// Returns the class of the fault.
    pub fn class(&self) -> String {
        class(self.target, &self.rule.effect)
    }

    /// Returns the volume whose requests may wait and fail meanwhile. With a fault of the daemon's
    /// state all may wait.
    pub fn volume(&self, plan: &StormPlan) -> Option<usize> {
        let mut volumes = plan.volumes.iter();
        match self.target {
            FaultTarget::Origin => volumes.position(|volume| volume.origin == self.name),
            FaultTarget::Journal => Some(BACK),
            _ => None,
        }
    }

    /// Returns true if the fault takes an origin out of service until the next start. After a
    /// failed flush or durable write it is unknown which acknowledged writes the origin has.
    pub fn lasts(&self) -> bool {
        let fails = matches!(self.rule.effect, DevilEffect::Fail(_));
        let durable = [DevilVerb::Write, DevilVerb::Flush];
        let verbs = self.rule.verbs.iter();
        fails
            && self.target == FaultTarget::Origin
            && verbs.copied().any(|verb| durable.contains(&verb))
    }
}
