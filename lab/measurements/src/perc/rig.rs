//! The evaluated machine in virtual time: a whole node, on one controller, or on two with mirrored
//! stripes.
//!
//! One controller is the same configuration without the parts of the other.

use super::scale::DRIVE;
use block::Env;
use control::status::MemberStatus;
use drives::catalogue::controller::H710P;
use drives::{ControllerParameters, Figure};
use experiment::controllers::{SIDES, TOPOLOGY, VOLUME, machine};
use experiment::rig::{NodeRig as Node, Volume, run_on, topology};
use sim::SimWorld;

/// The array over both controllers.
const MIRROR: &str = "mirror";

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
}

/// The machine, running.
pub struct PercRig {
    pub env: Env,
    /// The volume of the requests: the stripe, or the mirror.
    pub volume: Volume,
    node: Node,
}

impl PercRig {
    /// Pulls the drive of this number of a controller.
    pub fn pull(&self, side: usize, number: usize) -> Result<(), String> {
        let name = format!("{}{number}", SIDES[side]);
        let plug = self.node.plug(&name);
        plug.ok_or_else(|| format!("there is no drive {name}"))?
            .pull();
        Ok(())
    }

    /// The legs of the mirror, as `hotset status` has them.
    pub async fn legs(&self) -> Result<Vec<MemberStatus>, String> {
        let arrays = self.node.watch().status().await?.arrays.into_iter();
        let mut mirrors = arrays.filter(|array| array.name == MIRROR);
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
    let sides = &SIDES[..setup.sides];
    let below = machine(
        setup.seed,
        sides,
        &controller,
        (&DRIVE, setup.disk_cost),
        &mut world,
    )?;
    let config = topology(&configuration(sides))?;
    let run = run_on(world, config, &below, async move |mut node: Node| {
        let rig = PercRig {
            env: node.env.clone(),
            volume: node.volume(VOLUME)?,
            node,
        };
        test(rig).await
    });
    run.map(|(came, _)| came)
}

/// The configuration with these controllers.
fn configuration(sides: &[&str]) -> String {
    let [one] = sides else {
        return TOPOLOGY.into();
    };
    let of = |side: &str| format!("stripe-{side}");
    let others = SIDES.iter().filter(|side| *side != one);
    let gone: Vec<_> = others
        .flat_map(|side| [format!("controller = \"{side}\""), of(side)])
        .collect();
    let sections = TOPOLOGY.split("\n\n");
    let kept = sections.filter(|section| !gone.iter().any(|gone| section.contains(gone)));
    let kept: Vec<_> = kept.collect();
    let mirrored = format!("origin = \"{MIRROR}\"");
    kept.join("\n\n")
        .replace(&mirrored, &format!("origin = \"{}\"", of(one)))
}
