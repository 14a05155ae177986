//! Storms on real daemons: conditions that no simulator contains.
//!
//! A storm is a few lives of one daemon. Its files fail, hang and answer late (`devil`, `folder`).
//! Its NBD servers forget, are late and serve foreign data (`export`, `servers`). Clients write
//! stamps over NBD and check every byte by a model of the acknowledged writes (`bytes`, `client`).
//! Meanwhile operators of several kinds give commands, a volume comes and goes, and reports are
//! requested (`operator`, `kind`, `visitor`, `watch`). The daemon is paused, killed and ended at
//! any moment, within its start and within a change too (`life`). Between lives devices come back
//! blank, older or exchanged (`fate`).
//!
//! A storm's seed determines every draw (`plan`, `fault`), as far as a real machine repeats. The
//! documents' promises bound the faults at one time (`standing`).
//!
//! Invariants that are checked:
//!     every byte is one that was acknowledged, or whose write was not
//!     the daemon lives, and ends in order by SIGTERM
//!     a report comes within two seconds; a request and a command end in time once their devices
//!     answer; each limit grows with the load of the machine (`weather`)
//!     a mistake in the configuration is refused, and the daemon serves on
//!     the configuration always starts, and serves all; `hotset check` finds nothing wrong in it
//!     nothing is written but devices and files of the configuration (`bystander`)
//!     a loss is an event, and of a device that was at fault
//!     in the end the origins alone hold all acknowledged writes
//!
//! Not here: power cuts, which the simulated campaigns have; faults of two copies at once.

mod bystander;
mod bytes;
mod canary;
mod client;
mod desk;
mod devil;
mod export;
mod fate;
mod fault;
mod folder;
mod form;
mod found;
mod harm;
mod kind;
mod life;
mod machine;
mod nbd;
mod operator;
mod plan;
mod servers;
mod shell;
mod site;
mod standing;
mod visitor;
mod watch;
mod weather;
mod world;

pub use canary::StormCanary;
pub use found::{StormReport, StormViolation};

use bystander::Bystander;
use bytes::{ClientPart, SECTOR};
use export::StormExport;
use fastrand::Rng;
use folder::MountedFolder;
use found::StormFindings;
use life::Parts;
use machine::StormMachine;
use plan::{StormPlace, StormPlan, VISITOR, VOLUME_MIB};
use serde_json::json;
use site::StormSite;
use standing::{FaultStanding, list};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use visitor::origin_alone;
use weather::{TURN, Weather};
use world::StormWorld;

/// Most lives of a storm.
const LIVES: u64 = 6;
/// Clients of each volume but the visitor.
const CLIENTS: u64 = 3;

/// Attempts to create an array.
const ATTEMPTS: u32 = 5;

/// A request for storms.
pub struct StormRequest {
    /// Seed of the first storm; the next have the numbers after it.
    pub seed: u64,
    /// Time after which no storm begins.
    pub time: Duration,
    /// Most storms.
    pub storms: u64,
    /// Number of lives after which no storm begins.
    pub lives: u64,
    /// Storms at a time.
    pub threads: u64,
    /// Folder for files.
    pub folder: PathBuf,
    /// Program of the daemon.
    pub program: PathBuf,
    /// Fault to be found.
    pub canary: Option<StormCanary>,
}

/// Returns a requirement of storms that this machine lacks.
pub fn obstacle() -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some(
            "there is no /dev/fuse here: load its kernel module, or run outside the container"
                .into(),
        );
    }
    testbed::tools::missing(&["fusermount3", "setpriv"])
}

/// Every class of events.
fn classes() -> Vec<String> {
    let named = life::CLASSES.iter().chain(&fate::CLASSES);
    let mut all: Vec<String> = named.map(|class| (*class).to_owned()).collect();
    all.extend(fault::classes());
    all.extend(servers::classes());
    all.extend(operator::classes());
    all.extend(kind::classes());
    all
}

/// Runs storms; `done` is called after each. The first violation ends them.
pub fn run(
    request: &StormRequest,
    done: &(dyn Fn(u64, &str) + Sync),
) -> Result<StormReport, String> {
    if let Some(obstacle) = obstacle() {
        return Err(obstacle);
    }
    let course = StormProgress {
        begun: Instant::now(),
        seed: AtomicU64::new(request.seed),
        lives: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    let mut report = StormReport::of(classes());
    std::thread::scope(|scope| {
        let run = || run_some(request, &course, done);
        let threads: Vec<_> = (0..request.threads).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            report.add(thread.join().expect("a panic was printed")?);
        }
        Ok::<(), String>(())
    })?;
    report.count();
    Ok(report)
}

/// Progress of the storms.
struct StormProgress {
    begun: Instant,
    /// Seed of the next storm.
    seed: AtomicU64,
    lives: AtomicU64,
    over: AtomicBool,
}

/// Runs one storm after the other.
fn run_some(
    request: &StormRequest,
    course: &StormProgress,
    done: &(dyn Fn(u64, &str) + Sync),
) -> Result<StormReport, String> {
    testbed::namespace::enter()?;
    let mut report = StormReport::default();
    while !course.over.load(SeqCst) && course.lives.load(SeqCst) < request.lives {
        if report.storms > 0 && course.begun.elapsed() >= request.time {
            break;
        }
        let seed = course.seed.fetch_add(1, SeqCst);
        if seed - request.seed >= request.storms {
            break;
        }
        let before = report.lives;
        let about = storm(request, seed, &mut report);
        course.lives.fetch_add(report.lives - before, SeqCst);
        let is_over = about.is_err() || !report.violations.is_empty();
        course.over.fetch_or(is_over, SeqCst);
        done(seed, &about?);
    }
    Ok(report)
}

fn storm(request: &StormRequest, seed: u64, report: &mut StormReport) -> Result<String, String> {
    let mut rng = Rng::with_seed(seed);
    let plan = StormPlan::draw(&mut rng);
    fs::create_dir_all(&request.folder).map_err(|error| in_folder(&request.folder, &error))?;
    let folder = request.folder.canonicalize();
    let folder = folder.map_err(|error| in_folder(&request.folder, &error))?;
    let folder = folder.join(format!("storm-{seed}"));
    let machine = StormMachine::new(request.program.clone(), folder.clone());
    let mut parts = parts(&plan);
    let made = prepare(&machine, &plan, &mut parts);
    let (mounted, exports, bystanders) = made.map_err(|error| in_folder(&folder, &error))?;
    let site = StormSite::start(&machine).map_err(|error| in_folder(&folder, &error))?;
    let log = File::create(folder.join("storm.log")).map_err(|error| in_folder(&folder, &error))?;
    let (weather, found) = (Weather::new(plan.volumes.len()), StormFindings::new(log));
    let world = StormWorld {
        machine: &machine,
        site: &site,
        plan: &plan,
        devil: &mounted.devil,
        exports: &exports,
        bystanders: &bystanders,
        standing: &FaultStanding::new(),
        weather: &weather,
        found: &found,
        canary: request.canary,
    };
    for array in &plan.arrays {
        make(&machine, array.name)?;
    }
    lives(&world, &mut parts, seed, &mut rng, report);
    report.storms += 1;
    found.add_to(report, &weather);
    for (what, times) in mounted.devil.met() {
        *report.met.entry(what).or_default() += times;
    }
    drop(site);
    drop(exports);
    drop(mounted);
    if report.violations.is_empty() {
        // The remains of a storm without violations are useless.
        let _ = fs::remove_dir_all(&folder);
    }
    Ok(plan.about())
}

/// Creates an array, with several attempts: the machine may be busy.
fn make(machine: &StormMachine, array: &str) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let (status, said) = machine.command(&["array", "create", array, "--yes", "--config"])?;
        if status == 0 {
            return Ok(());
        }
        last = said;
    }
    Err(format!("array {array} cannot be made: {last}"))
}

fn lives(
    world: &StormWorld,
    parts: &mut Parts,
    seed: u64,
    rng: &mut Rng,
    report: &mut StormReport,
) {
    let lives = rng.u64(2..=LIVES);
    for life in 0..=lives {
        report.lives += 1;
        let ended = match life < lives {
            true => world.live(parts, rng),
            false => finish(world, parts),
        };
        if let Err(what) = ended {
            world.found.violation(what);
        }
        let replay = format!("hotset-lab storm --seed {seed} --storms 1");
        report
            .violations
            .extend(world.found.violations(|what, before| StormViolation {
                seed,
                life,
                about: world.plan.about(),
                what: what.to_owned(),
                before: before.to_vec(),
                replay: replay.clone(),
            }));
        if !report.violations.is_empty() {
            break;
        }
    }
}

fn in_folder(folder: &Path, error: &io::Error) -> String {
    format!("{}: {error}", folder.display())
}

/// Makes devices, bystanders and the configuration, mounts the devices and serves exports. An
/// origin that is no array has data, by which it is recognised; all else is blank.
fn prepare(
    machine: &StormMachine,
    plan: &StormPlan,
    parts: &mut Parts,
) -> io::Result<(MountedFolder, Vec<StormExport>, Vec<Bystander>)> {
    let folder = &machine.folder;
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (back, devices) = (machine.back(), folder.join("devices"));
    fs::create_dir_all(back.join(plan::STATE))?;
    fs::create_dir_all(back.join(plan::ETC))?;
    fs::create_dir_all(&devices)?;
    for device in &plan.devices {
        File::create(back.join(&device.name))?.set_len(device.mib << 20)?;
    }
    for (volume, parts) in plan.volumes.iter().zip(parts) {
        if plan.array(volume.origin).is_none() {
            let bytes: Vec<Vec<u8>> = parts.iter_mut().map(ClientPart::fill).collect();
            fs::write(back.join(volume.origin), bytes.concat())?;
        }
    }
    let bystanders = Bystander::all(&back)?;
    let texts = plan.configuration(folder, &devices);
    for (file, text) in plan::FILES.iter().zip(texts) {
        if !text.is_empty() {
            let path = back.join(plan::ETC).join(file);
            fs::create_dir_all(path.parent().expect("it is in a folder"))?;
            fs::write(path, text)?;
        }
    }
    let mounted = MountedFolder::new(&back, &devices)?;
    let exported = plan.devices.iter();
    let exported = exported.filter(|device| device.place == StormPlace::Export);
    let serve = |device: &plan::StormDevice| {
        let socket = folder.join(format!("{}.sock", device.name));
        StormExport::new(&device.name, &back, socket, &mounted.devil)
    };
    let exports = exported.map(serve).collect::<io::Result<_>>()?;
    Ok((mounted, exports, bystanders))
}

fn parts(plan: &StormPlan) -> Parts {
    let of = |number: usize| {
        let clients = if number == VISITOR { 1 } else { CLIENTS };
        let each = (VOLUME_MIB << 20) / SECTOR as u64 / clients;
        let part = |client| ClientPart::new(number as u8, client * each..(client + 1) * each);
        (0..clients).map(part).collect()
    };
    (0..plan.volumes.len()).map(of).collect()
}

/// Runs a last life without faults, in which arrays become whole, and their copies agree. Then the
/// origins alone are compared, without the pools and the log.
fn finish(world: &StormWorld, parts: &mut Parts) -> Result<(), String> {
    world.found.next_life();
    world.machine.mark();
    let mut process = world.start(parts, None)?;
    world.make_whole()?;
    world
        .plan
        .arrays
        .iter()
        .try_for_each(|array| compare(world, array.name))?;
    for volume in &world.plan.volumes {
        if !world
            .machine
            .has_volume(volume.name)
            .map_err(|error| error.to_string())?
        {
            continue;
        }
        let set = json!({
            "request": "set-mode", "volume": volume.name, "mode": "pass-through"
        });
        let answer = world.machine.change(&set, world.weather);
        let answer = answer.map_err(|error| format!("{set}: {error}"))?;
        if let Some(error) = answer.get("error") {
            return Err(format!("{set}: {error}"));
        }
    }
    world.end(&mut process)?;
    drop(process);
    for (number, (volume, parts)) in world.plan.volumes.iter().zip(&*parts).enumerate() {
        if world.plan.array(volume.origin).is_none() {
            origin_alone(world, number, parts)?;
        }
    }
    // All data is read through volumes without a pool.
    let mut process = world.start(parts, None)?;
    world.end(&mut process)?;
    let back = world.machine.back();
    world
        .bystanders
        .iter()
        .try_for_each(|bystander| bystander.check(&back))
}

/// Compares the copies of an array.
fn compare(world: &StormWorld, array: &str) -> Result<(), String> {
    let scrub = json!({"request": "scrub", "array": array, "repair": false});
    let begun = Instant::now();
    let answer = world.machine.ask(&scrub, world.weather);
    let answer = answer.map_err(|error| format!("{scrub}: {error}"))?;
    if let Some(error) = answer.get("error") {
        return Err(format!("{scrub}: {error}"));
    }
    loop {
        let status = world.machine.status(world.weather);
        let status = status.map_err(|error| format!("no report: {error}"))?;
        let mut arrays = list(&status, "arrays").iter();
        let array = arrays.find(|known| known["name"] == array);
        let scrub = &array.ok_or("an array is not reported")?["scrub"];
        if scrub["running"] == false {
            world.found.met("copies are compared");
            return match (scrub["mismatches"].as_u64(), scrub["error"].as_str()) {
                (Some(0), None) => Ok(()),
                _ => Err(format!("copies differ: {scrub}")),
            };
        }
        if world.weather.overdue(begun, TURN).is_some() {
            return Err(format!("a scrub does not end: {scrub}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
