//! Storms on real daemons: what no simulator contains.
//!
//! A storm is a few lives of one daemon on a folder whose files fail, hang and answer late
//! (`devil`). Clients write stamps over NBD and check every byte by a model of what was
//! acknowledged (`bytes`, `client`); operators give commands meanwhile and reports are asked for
//! (`operator`); the daemon is paused, killed and ended at any moment, within its start too
//! (`life`). All is drawn from the storm's seed (`plan`), as far as a real machine repeats.
//!
//! Invariants that are checked:
//!     every byte is one that was acknowledged, or whose write was not
//!     the daemon lives, and ends in order by SIGTERM
//!     a report comes within two seconds; a request and a command end in time once their devices
//!     answer; each limit grows with the load of the machine (`weather`)
//!     the configuration always starts, and serves all
//!     a loss is an event, and of a device that was at fault
//!     in the end the origins alone hold all that was acknowledged
//!
//! Not here: power cuts, which the simulated campaigns have; faults of two copies at once.

mod bytes;
mod client;
mod devil;
mod folder;
mod found;
mod life;
mod machine;
mod nbd;
mod operator;
mod plan;
mod weather;
mod world;

pub use found::{Report, Violation};

use bytes::{Part, SECTOR};
use devil::{Effect, Rule, Verb};
use fastrand::Rng;
use folder::Mounted;
use found::Found;
use life::Parts;
use machine::Machine;
use plan::Plan;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weather::Weather;
use world::World;

/// Lives of a storm, at the most.
const LIVES: u64 = 6;
/// Clients of each volume.
const CLIENTS: u64 = 3;

/// Which storms.
pub struct Request {
    /// The first storm's seed; the next have the numbers after it.
    pub seed: u64,
    /// No storm begins after this time.
    pub time: Duration,
    /// At most so many.
    pub storms: u64,
    /// Where files go.
    pub folder: PathBuf,
    /// The daemon's program.
    pub program: PathBuf,
    /// Whether an origin loses writes that it acknowledges, which has to be found.
    pub canary: bool,
}

/// What is missing here for storms.
pub fn obstacle() -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some(
            "there is no /dev/fuse here: load its kernel module, or run outside the container"
                .into(),
        );
    }
    testbed::tools::missing(&["fusermount3", "setpriv"])
}

/// Runs storms; `done` hears of each.
pub fn run(request: &Request, done: &dyn Fn(u64, &str)) -> Result<Report, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    testbed::namespace::enter()?;
    let (begun, mut report) = (Instant::now(), Report::default());
    for seed in (request.seed..).take(request.storms as usize) {
        if report.storms > 0 && begun.elapsed() >= request.time {
            break;
        }
        let about = storm(request, seed, &mut report)?;
        done(seed, &about);
        if !report.violations.is_empty() {
            break;
        }
    }
    Ok(report)
}

fn storm(request: &Request, seed: u64, report: &mut Report) -> Result<String, String> {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::draw(&mut rng);
    fs::create_dir_all(&request.folder).map_err(|error| in_folder(&request.folder, &error))?;
    let folder = request.folder.canonicalize();
    let folder = folder.map_err(|error| in_folder(&request.folder, &error))?;
    let folder = folder.join(format!("storm-{seed}"));
    let mounted = prepare(&folder, &plan).map_err(|error| in_folder(&folder, &error))?;
    let machine = Machine {
        program: request.program.clone(),
        folder: folder.clone(),
    };
    let (weather, found) = (Weather::new(plan.volumes.len()), Found::new());
    let world = World {
        machine: &machine,
        plan: &plan,
        devil: &mounted.devil,
        weather: &weather,
        found: &found,
    };
    let mut parts = parts(&plan);
    if request.canary {
        let rule = Rule {
            verbs: vec![Verb::Write],
            effect: Effect::Forget,
        };
        mounted.devil.set(plan.volumes[0].origin, Some(rule));
    }
    let about = plan.about();
    let lives = rng.u64(2..=LIVES);
    for life in 0..=lives {
        report.lives += 1;
        let ended = match life < lives {
            true => world.live(&mut parts, &mut rng),
            false => finish(&world, &mut parts),
        };
        if let Err(what) = ended {
            found.violation(what);
        }
        let replay = format!("hotset-lab storm --seed {seed} --storms 1");
        report
            .violations
            .extend(found.violations(|what, before| Violation {
                seed,
                life,
                about: about.clone(),
                what: what.to_owned(),
                before: before.to_vec(),
                replay: replay.clone(),
            }));
        if !report.violations.is_empty() {
            break;
        }
    }
    report.storms += 1;
    found.add_to(report, &weather);
    for (what, times) in mounted.devil.met() {
        *report.met.entry(what).or_default() += times;
    }
    drop(mounted);
    if report.violations.is_empty() {
        // What is left is of no use to anybody.
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(about)
}

fn in_folder(folder: &Path, error: &io::Error) -> String {
    format!("{}: {error}", folder.display())
}

/// Makes blank devices and the configuration, and mounts the devices.
fn prepare(folder: &Path, plan: &Plan) -> io::Result<Mounted> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (back, devices) = (folder.join("back"), folder.join("devices"));
    fs::create_dir_all(back.join(plan::STATE))?;
    fs::create_dir_all(&devices)?;
    for (name, mib) in &plan.files {
        File::create(back.join(name))?.set_len(mib << 20)?;
    }
    let text = plan.configuration(folder, &devices);
    fs::write(folder.join("hotset.toml"), text)?;
    Mounted::new(&back, &devices)
}

fn parts(plan: &Plan) -> Parts {
    let of = |(number, volume): (usize, &plan::Volume)| {
        let each = (volume.mib << 20) / SECTOR as u64 / CLIENTS;
        let part = |client| Part::new(number as u8, client * each..(client + 1) * each);
        (0..CLIENTS).map(part).collect()
    };
    plan.volumes.iter().enumerate().map(of).collect()
}

/// A last life, in which nothing goes wrong; then the origins alone are compared.
fn finish(world: &World, parts: &mut Parts) -> Result<(), String> {
    world.found.next_life();
    let mut process = world.start(parts)?;
    for volume in &world.plan.volumes {
        let set = serde_json::json!({
            "request": "set-mode", "volume": volume.name, "mode": "pass-through"
        });
        let answer = world.machine.ask(&set, world.weather);
        let answer = answer.map_err(|error| format!("{set}: {error}"))?;
        if let Some(error) = answer.get("error") {
            return Err(format!("{set}: {error}"));
        }
    }
    world.end(&mut process)?;
    for (volume, parts) in world.plan.volumes.iter().zip(parts) {
        let path = world.machine.folder.join("back").join(volume.origin);
        let mut file = File::open(&path).map_err(|error| in_folder(&path, &error))?;
        for part in parts {
            let sectors = part.sectors();
            let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
            file.read_exact(&mut bytes)
                .map_err(|error| in_folder(&path, &error))?;
            let right = part.check(sectors.start, &bytes);
            right.map_err(|what| format!("the origin alone: {what}"))?;
        }
    }
    Ok(())
}
