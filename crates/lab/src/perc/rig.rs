//! The evaluated machine in virtual time: one controller or two, a stripe of
//! drives on each, and a mirror of the stripes.

use super::scale::{DRIVE, DRIVES, SIDES, to_message};
use block::{BoxDevice, Env, Geometry, Sectors, TargetId};
use raid::{Array, Candidate, Level, Options, Plan, Uuid, create};
use shard::Local;
use sim::model::catalogue::controller::H710P;
use sim::model::{Controller, ControllerParameters, Figure, Hdd};
use sim::{Control, DiskSpec, Keep, Rng, Service, Sim, SimDriver, World};
use simnode::run_alone;

/// The chunk of a stripe: 64 KiB, as the controller has it by default.
const CHUNK: Sectors = Sectors(128);
/// Buffers: 256 requests of 256 KiB, and what splitting them needs.
const BUFFER_BYTES: usize = 256 << 20;
/// Draws the spindles' phases.
const PHASES: u64 = 1;

/// What is to be built.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Draws the spindles' phases, alike for one controller and for two.
    pub seed: u64,
    /// Controllers: 1 or 2.
    pub sides: usize,
    /// The write-back cache of each, in MB.
    pub cache_mb: f64,
}

/// The machine, running.
pub struct Rig {
    pub env: Env,
    /// What requests go to: the stripe, or the mirror.
    pub volume: BoxDevice,
    /// The mirror, of two controllers.
    pub mirror: Option<Array>,
    /// The drives of each side.
    pub drives: Vec<Vec<TargetId>>,
    /// Pulls drives.
    pub control: Control,
}

/// Builds the machine, runs `test` on it, and says what that returned.
pub fn run<T: 'static>(
    setup: Setup,
    test: impl AsyncFn(Rig) -> Result<T, String> + Clone + 'static,
) -> Result<T, String> {
    let mut world = World::new(setup.seed);
    let mut phases = Rng::fork(setup.seed, PHASES);
    let parameters = ControllerParameters {
        cache_mb: Figure {
            value: setup.cache_mb,
            ..H710P.cache_mb
        },
        ..H710P
    };
    let mut drives = Vec::new();
    for name in &SIDES[..setup.sides] {
        // Spindles turn independently of each other.
        let mut drive = || Hdd::new(&DRIVE, phases.below(1 << 20) as f64 / f64::from(1 << 20));
        let units: Result<Vec<_>, _> = (0..DRIVES).map(|_| drive()).collect();
        let controller =
            Controller::new(&parameters, units.map_err(to_message)?).map_err(to_message)?;
        let model = world.add_model(controller);
        let mut side = Vec::new();
        for unit in 0..DRIVES {
            let name = format!("{name}{unit}");
            let mut geometry = Geometry::new(name, DRIVE.capacity(), Sectors(1));
            geometry.rotational = true;
            let mut spec = DiskSpec::new(geometry);
            spec.service = Service::Model {
                model,
                unit: unit as u32,
            };
            spec.keep = Keep::Nothing;
            side.push(world.add_disk(spec).map_err(to_message)?);
        }
        drives.push(side);
    }
    let control = world.control();
    let mut sim = Sim::new(world).pool_bytes(BUFFER_BYTES);
    let (outcome, ended) = run_alone(&mut sim, async move |local| {
        test(assemble(&local, control, &drives).await?).await
    });
    ended.unwrap_or_else(|| Err(format!("the simulation did not end: {outcome:?}")))
}

async fn assemble(
    local: &Local<SimDriver>,
    control: Control,
    drives: &[Vec<TargetId>],
) -> Result<Rig, String> {
    let env = local.env();
    let mut last = 0;
    let mut fresh = || {
        last += 1;
        Uuid::from_bytes([last; 16])
    };
    let mut make = async |name: &str, level, members: Vec<Candidate>| {
        let plan = Plan {
            name: name.into(),
            level,
            chunk: CHUNK,
            overwrite: false,
            // To zero terabytes would take longer than all that is measured.
            zeroed: true,
        };
        let options = Options::default();
        let made = create(&env, &plan, members, Vec::new(), &mut fresh, options).await;
        made.map_err(to_message)
    };
    let mut stripes = Vec::new();
    for (name, side) in SIDES.into_iter().zip(drives) {
        let candidate = |target: &TargetId| {
            Ok::<_, String>(Candidate {
                device: BoxDevice::new(local.disk(*target).map_err(to_message)?),
                domain: name.into(),
            })
        };
        let members: Result<Vec<_>, _> = side.iter().map(candidate).collect();
        let stripe = make(&format!("stripe-{name}"), Level::Raid0, members?).await?;
        stripes.push(Candidate {
            device: BoxDevice::new(stripe),
            domain: name.into(),
        });
    }
    let (volume, mirror) = if stripes.len() == 1 {
        (stripes.remove(0).device, None)
    } else {
        let mirror = make("mirror", Level::Raid1, stripes).await?;
        (BoxDevice::new(mirror.clone()), Some(mirror))
    };
    Ok(Rig {
        env: local.env(),
        volume,
        mirror,
        drives: drives.to_vec(),
        control,
    })
}
