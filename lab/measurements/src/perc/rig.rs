//! The evaluated machine in virtual time: a whole node, on one controller, or on two with mirrored
//! stripes.
//!
//! One controller is the same configuration without the parts of the others.

use super::scale::{DRIVE, PercScale};
use block::Env;
use control::config::{Config, Name};
use control::status::MemberStatus;
use drives::catalogue::controller::H710P;
use drives::{ControllerParameters, Figure, HddParameters};
use experiment::controllers::{SIDES, TOPOLOGY, VOLUME, machine, sides};
use experiment::models::RoleModels;
use experiment::rig::{NodeRig as Node, Volume, run_on, topology};
use sim::SimWorld;

/// Machine to build.
#[derive(Clone, Copy, Debug)]
pub struct PercSetup {
    /// Draws the spindles' phases, alike for one controller and for two.
    pub seed: u64,
    /// Controllers: 1 or 2.
    pub sides: usize,
    /// The write-back cache of each, in MB.
    pub cache_mb: f64,
    /// Cost of the disks, as a factor.
    pub disk_cost: f64,
    /// The machine, if not the published one.
    pub models: RoleModels,
}

impl PercSetup {
    /// The machine of `scale` with so many controllers.
    pub fn of(scale: &PercScale, seed: u64, sides: usize) -> PercSetup {
        PercSetup {
            seed,
            sides,
            cache_mb: scale.cache_mb,
            disk_cost: scale.disk_cost,
            models: scale.models,
        }
    }
}

/// The machine, running.
pub struct PercRig {
    pub env: Env,
    /// The volume of the requests: the stripe, or the mirror.
    pub volume: Volume,
    /// The array below the volume.
    origin: String,
    /// Names of the drives, each with the number of its controller.
    drives: Vec<(usize, String)>,
    node: Node,
}

impl PercRig {
    /// Pulls the drive of this number of a controller.
    pub fn pull(&self, side: usize, number: usize) -> Result<(), String> {
        let mut drives = self.drives.iter().filter(|drive| drive.0 == side);
        let drive = drives.nth(number).map(|(_, name)| name);
        let plug = drive.and_then(|name| self.node.plug(name));
        let plug = plug.ok_or_else(|| format!("a controller has no drive of number {number}"))?;
        plug.pull();
        Ok(())
    }

    /// The legs of the mirror, as `hotset status` has them.
    pub async fn legs(&self) -> Result<Vec<MemberStatus>, String> {
        let arrays = self.node.watch().status().await?.arrays.into_iter();
        let mut mirrors = arrays.filter(|array| array.name == self.origin);
        let mirror = mirrors.next().ok_or("one controller has no other")?;
        Ok(mirror.members)
    }
}

/// Builds the machine, runs `test` on it, and returns the result of `test`.
pub fn run<T: 'static>(
    setup: PercSetup,
    test: impl AsyncFnOnce(PercRig) -> Result<T, String> + 'static,
) -> Result<T, String> {
    let mut world = SimWorld::new(setup.seed);
    let controller = ControllerParameters {
        cache_mb: Figure {
            value: setup.cache_mb,
            ..H710P.cache_mb
        },
        ..H710P
    };
    let config = configuration(setup)?;
    let fitted = |drive: HddParameters| match drive.name == DRIVE.name {
        true => DRIVE,
        false => drive,
    };
    let cost = setup.disk_cost;
    let below = machine(setup.seed, &config, &controller, (fitted, cost), &mut world)?;
    let sides = sides(&config);
    let drives = config.devices.iter().filter_map(|device| {
        let side = sides
            .iter()
            .position(|side| *side == device.controller.value)?;
        Some((side, device.name.to_string()))
    });
    let drives = drives.collect();
    let run = run_on(world, config, &below, async move |mut node: Node| {
        let rig = PercRig {
            env: node.env.clone(),
            volume: node.volume(VOLUME)?,
            origin: node.origin(VOLUME)?,
            drives,
            node,
        };
        test(rig).await
    });
    run.map(|(came, _)| came)
}

/// The configuration with all controllers, or with the first alone.
pub fn configuration(setup: PercSetup) -> Result<Config, String> {
    let mut config = topology(&setup.models.put(TOPOLOGY, TOPOLOGY)?)?;
    let sides = sides(&config);
    if sides.len() != SIDES {
        return Err(format!(
            "give {SIDES} controllers, not {}: `controller` of each device",
            sides.len()
        ));
    }
    if setup.sides == SIDES {
        return Ok(config);
    }
    let legs = "give the volume an array of two legs, each an array on a controller of its own";
    let origin = config.volumes[0].origin.value.clone();
    let members = |config: &Config, array: &Name| {
        let mut arrays = config.arrays.iter();
        let array = arrays.find(|a| a.name.value == *array);
        array
            .map(|array| array.members.value.clone())
            .unwrap_or_default()
    };
    let leg = members(&config, &origin).first().ok_or(legs)?.clone();
    let kept = members(&config, &leg);
    config.arrays.retain(|array| array.name.value == leg);
    config
        .devices
        .retain(|device| kept.contains(&device.name.value));
    config.volumes[0].origin.value = leg;
    match config
        .devices
        .iter()
        .all(|d| d.controller.value == sides[0])
        && !kept.is_empty()
    {
        true => Ok(config),
        false => Err(legs.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::topology;

    fn of(sides: usize, own: &str) -> Result<Config, String> {
        let models = RoleModels {
            topology: topology::kept(topology::number(own)),
            ..RoleModels::OWN
        };
        let scale = PercScale {
            models,
            ..PercScale::QUICK
        };
        configuration(PercSetup::of(&scale, 1, sides))
    }

    #[test]
    fn one_controller_is_the_first_leg_alone_and_others_than_two_are_refused() {
        let one = of(1, TOPOLOGY).unwrap();
        assert_eq!((one.devices.len(), one.arrays.len()), (7, 1));
        assert_eq!(one.volumes[0].origin.value.as_str(), "stripe-a");
        let five = TOPOLOGY
            .replace(", \"a5\", \"a6\"]", "]")
            .replace(", \"b5\", \"b6\"]", "]");
        assert_eq!(of(1, &five).unwrap().devices.len(), 5);
        let both = of(2, &five).unwrap();
        assert_eq!(sides(&both), ["a", "b"]);
        let joined = TOPOLOGY.replace("controller = \"b\"", "controller = \"a\"");
        let refused = of(1, &joined).unwrap_err();
        assert!(refused.contains("give 2 controllers, not 1"), "{refused}");
        let mirror = "[[array]]\nname = \"mirror\"\nlevel = \"raid1\"\nmembers = [\"stripe-a\", \"stripe-b\"]\n";
        let flat = TOPOLOGY
            .replace(mirror, "")
            .replace("\"mirror\"", "\"stripe-a\"");
        let refused = of(1, &flat).unwrap_err();
        assert!(refused.contains("an array of two legs"), "{refused}");
    }
}
