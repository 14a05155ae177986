//! Operators of the daemon: their commands, in any order.
//!
//! Invariant: a change that would take a device from its user is refused.
//!
//! Not here: the ways of a command to the daemon (`kind`).

use crate::kind::OperatorKind;
use crate::plan::{BACK, BYSTANDERS, LENT, LOGS, StormArray, one};
use crate::standing::list;
use crate::weather::TURN;
use crate::world::StormWorld;
use fastrand::Rng;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Requests without a change.
const LOOKS: [&str; 4] = ["configuration", "observe", "explain", "ping"];
/// Requests for a change.
const CHANGES: &[&str] = &[
    "reload",
    "set-mode",
    "set-off",
    "invalidate",
    "quiesce",
    "resume",
    "hold",
    "release",
    "record",
    "replace-log",
    "add-pool",
    "remove-pool",
    "add-volume",
    "remove-volume",
    "add-device",
    "remove-device",
    "readmit-device",
    "fail-member",
    "add-member",
    "replace-member",
    "scrub",
    "cancel-job",
    "pause-job",
    "a detach",
    "an attach",
    "a device of another",
];

/// Every command, done and refused.
pub fn classes() -> Vec<String> {
    let looks = LOOKS.iter().map(|look| format!("{look} is done"));
    let (taken, changes) = CHANGES.split_last().expect("there are some");
    let changes = changes
        .iter()
        .flat_map(|what| ["done", "refused"].map(|end| format!("{what} is {end}")));
    let taken = format!("{taken} is refused");
    looks.chain(changes).chain([taken]).collect()
}

/// Gives commands until clients are to end.
pub fn operate(world: &StormWorld, rng: &mut Rng) {
    while !world.weather.is_over() {
        sleep(Duration::from_millis(rng.u64(20..600)));
        let number = rng.usize(..=BACK);
        let volume = world.plan.volumes[number].name;
        match rng.u8(..16) {
            0 => ask(world, &json!({"request": "reload"}), rng),
            1 => look(world, volume, rng),
            2 => {
                let modes = ["write-through", "write-around", "pass-through"];
                let (through, mode) = (world.plan.volumes[0].name, one(rng, &modes));
                let set = json!({"request": "set-mode", "volume": through, "mode": mode});
                let off = json!({"request": "set-off", "volume": through, "off": rng.bool()});
                ask(world, one(rng, &[&set, &off]), rng)
            }
            3 => ask(
                world,
                &json!({"request": "invalidate", "volume": volume}),
                rng,
            ),
            4 => match rng.u8(..4) {
                0 | 1 => quiesce(world, number, rng),
                2 => hold(world, number, rng),
                _ => record(world, volume, rng),
            },
            5..8 => change_pool(world, rng),
            8..12 => change_array(world, rng),
            12 => detach(world, rng) || attach(world, rng) || replace_log(world, rng),
            13 => job(world, rng),
            _ => take(world, rng),
        };
    }
}

fn look(world: &StormWorld, volume: &str, rng: &mut Rng) -> bool {
    let request = match one(rng, &LOOKS) {
        "observe" => json!({"request": "observe", "volume": volume}),
        "explain" => json!({"request": "explain", "volume": volume, "range": [0, 1 << 20]}),
        other => json!({"request": other}),
    };
    ask(world, &request, rng)
}

fn change_pool(world: &StormWorld, rng: &mut Rng) -> bool {
    let (pool, devices) = &world.plan.pools[rng.usize(..world.plan.pools.len())];
    let device = one(rng, devices);
    // From here on a loss of the device is no violation.
    world.found.blame(device);
    match rng.u8(..6) {
        4 => {
            let (name, device) = LENT;
            ask(world, &add_pool(name, device), rng)
        }
        5 => {
            let pool = one(rng, &[LENT.0, LENT.0, LENT.0, pool]);
            ask(world, &json!({"request": "remove-pool", "pool": pool}), rng)
        }
        0 => ask(
            world,
            &json!({"request": "remove-device", "pool": pool, "device": device}),
            rng,
        ),
        1 => ask(
            world,
            &json!({"request": "readmit-device", "pool": pool, "device": device}),
            rng,
        ),
        _ => ask(
            world,
            &json!({"request": "add-device", "pool": pool, "device": {"named": device}}),
            rng,
        ),
    }
}

fn add_pool(name: &str, device: &str) -> Value {
    let text = format!("name = \"{name}\"\ndevices = [\"{device}\"]\n");
    json!({"request": "add-pool", "pool": text, "devices": []})
}

/// Changes an array: only its victim, and devices that it does not use.
fn change_array(world: &StormWorld, rng: &mut Rng) -> bool {
    let victims = world.standing.victims();
    let Some((name, victim)) = rng.choice(&victims) else {
        return false;
    };
    let array = world.plan.array(name).expect("it is in the plan");
    let all: Vec<&String> = array.members.iter().chain(&array.spares).collect();
    let device = all[rng.usize(..all.len())];
    // The server of an export may serve foreign data: only the export itself is given then.
    let overwrite = !world.plan.is_exported(device);
    match rng.u8(..6) {
        0 => {
            world.found.blame(victim);
            ask(
                world,
                &json!({"request": "fail-member", "array": name, "member": victim}),
                rng,
            )
        }
        1 if device != victim => {
            world.found.blame(victim);
            let new = json!({"named": device});
            ask(
                world,
                &json!({"request": "replace-member", "array": name, "member": victim,
                    "device": new, "overwrite": overwrite}),
                rng,
            )
        }
        2 => ask(
            world,
            &json!({"request": "scrub", "array": name, "repair": rng.bool()}),
            rng,
        ),
        _ => ask(world, &member(array, device, overwrite), rng),
    }
}

/// Returns a request to give an array a lacking device.
pub fn member(array: &StormArray, device: &str, overwrite: bool) -> Value {
    json!({"request": "add-member", "array": array.name, "device": {"named": device},
        "overwrite": overwrite})
}

/// Ends write-back of the volume, if no further data would be lost then.
fn detach(world: &StormWorld, rng: &mut Rng) -> bool {
    if !world.standing.log_may_fail() || rng.u8(..3) > 0 {
        return false;
    }
    let volume = world.plan.volumes[BACK].name;
    let mode = one(rng, &["write-through", "pass-through"]);
    let set = json!({"request": "set-mode", "volume": volume, "mode": mode});
    let off = json!({"request": "set-off", "volume": volume, "off": true});
    let request = one(rng, &[&set, &off]);
    let was = world.standing.is_detached();
    world.standing.detach();
    let done = ask(world, request, rng);
    if !was {
        let end = if done { "done" } else { "refused" };
        world.found.met(&format!("a detach is {end}"));
    }
    done
}

/// Begins write-back of the detached volume again.
fn attach(world: &StormWorld, rng: &mut Rng) -> bool {
    if !world.standing.is_detached() {
        return false;
    }
    let volume = world.plan.volumes[BACK].name;
    let log = world.standing.logs().map(|log| json!({"named": log}));
    let request =
        json!({"request": "set-mode", "volume": volume, "mode": "write-back", "log": log});
    let done = ask(world, &request, rng);
    if done {
        world.standing.attach();
    }
    let end = if done { "done" } else { "refused" };
    world.found.met(&format!("an attach is {end}"));
    done
}

/// Replaces the log device that may be at fault by the one that is in no log.
fn replace_log(world: &StormWorld, rng: &mut Rng) -> bool {
    if !world.standing.log_may_fail() || world.standing.is_detached() || rng.bool() {
        return false;
    }
    let (logs, device) = (world.standing.logs(), world.standing.log());
    let by = LOGS.into_iter().find(|log| !logs.iter().any(|l| l == log));
    let Some(by) = by else { return false };
    world.found.blame(&device);
    world.found.blame(by);
    world.standing.strike(&device);
    let done = ask(
        world,
        &json!({"request": "replace-log", "volume": world.plan.volumes[BACK].name,
            "device": device, "by": {"named": by}}),
        rng,
    );
    if done {
        world.standing.replace_log(by);
    }
    done
}

fn job(world: &StormWorld, rng: &mut Rng) -> bool {
    let arrays = world.plan.arrays.iter();
    let mut jobs: Vec<String> = arrays
        .flat_map(|array| ["scrub", "replace"].map(|job| format!("{job}:{}", array.name)))
        .collect();
    jobs.push(format!("detach:{}", world.plan.volumes[BACK].name));
    let status = world.machine.status(world.weather).unwrap_or_default();
    let goes_on = |job: &&Value| job["state"] == "running" || job["state"] == "paused";
    let going = list(&status, "jobs").iter().filter(goes_on);
    let going: Vec<&str> = going.filter_map(|job| job["name"].as_str()).collect();
    let job = match rng.choice(&going) {
        Some(job) => (*job).to_owned(),
        None => jobs.swap_remove(rng.usize(..jobs.len())),
    };
    // A scrub is short: a new one is still running.
    if let Some(array) = job.strip_prefix("scrub:").filter(|_| going.is_empty()) {
        ask(
            world,
            &json!({"request": "scrub", "array": array, "repair": false}),
            rng,
        );
    }
    if rng.bool() {
        return ask(world, &json!({"request": "cancel-job", "job": job}), rng);
    }
    let state = |paused: bool| json!({"request": "pause-job", "job": job, "paused": paused});
    let paused = ask(world, &state(true), rng);
    sleep(Duration::from_millis(rng.u64(..300)));
    // The job may be paused though that is not known.
    ask(world, &state(false), rng) && paused
}

/// Draws a device that is in use, and has to stay so.
fn used(world: &StormWorld, rng: &mut Rng) -> String {
    let origins = world.plan.volumes[..=BACK]
        .iter()
        .map(|volume| volume.origin);
    let mut used: Vec<String> = origins.map(str::to_owned).collect();
    if !world.standing.is_detached() && !world.standing.log_may_fail() {
        used.extend(world.standing.logs());
    }
    let status = world.machine.status(world.weather).unwrap_or_default();
    for array in list(&status, "arrays") {
        let victim = world
            .standing
            .victim(array["name"].as_str().unwrap_or_default());
        let members = list(array, "members").iter();
        let sound = members.filter(|member| member["state"] == "in sync");
        let devices = sound.filter_map(|member| member["device"].as_str());
        used.extend(
            devices
                .filter(|device| Some(*device) != victim.as_deref())
                .map(str::to_owned),
        );
    }
    used.swap_remove(rng.usize(..used.len()))
}

/// Tries to use a device for another purpose, which has to be refused.
fn take(world: &StormWorld, rng: &mut Rng) -> bool {
    let device = used(world, rng);
    let pool = world.plan.pools[0].0;
    let foreign = world.plan.arrays.iter().find(|array| !array.has(&device));
    let request = match (rng.u8(..5), foreign) {
        (4, _) => add_pool("thief", &device),
        (0, Some(array)) => json!({"request": "add-member", "array": array.name,
            "device": {"named": device}, "overwrite": true}),
        (0 | 1, _) => {
            let text = format!("name = \"thief\"\norigin = \"{device}\"\npool = \"{pool}\"\n");
            json!({"request": "add-volume", "volume": text, "device": null})
        }
        (2, _) => json!({"request": "add-device", "pool": pool, "device": {"named": device}}),
        _ => {
            let device = one(rng, &BYSTANDERS[..2]);
            json!({"request": "add-device", "pool": pool, "device": {"named": device}})
        }
    };
    let kind = OperatorKind::draw(world, &request, rng);
    match kind.give(world, &request) {
        Ok(answer) if answer.get("error").is_some() => {
            world.found.met("a device of another is refused");
        }
        Ok(answer) if answer.get("left").is_some() => {}
        Ok(_) => {
            let what = format!("{}: {request} is done: it is another's", kind.name());
            world.found.violation(what);
        }
        Err(error) => unanswered(world, &request, kind, &error),
    }
    false
}

/// Quiesces a volume for a moment.
fn quiesce(world: &StormWorld, number: usize, rng: &mut Rng) -> bool {
    let volume = world.plan.volumes[number].name;
    let quiesced = world.weather.volumes[number].quiesced.begin();
    ask(world, &json!({"request": "quiesce", "volume": volume}), rng);
    sleep(Duration::from_millis(rng.u64(..500)));
    // One change runs at a time: another may be in the way.
    let resume = json!({"request": "resume", "volume": volume});
    goes_on(world, volume, "cannot be resumed", || {
        ask(world, &resume, rng)
    });
    drop(quiesced);
    true
}

/// Waits until a quiesced or held volume goes on, while `ask` asks for that; otherwise reports a
/// violation.
fn goes_on(world: &StormWorld, volume: &str, what: &str, mut ask: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ask() {
        let status = world.machine.status(world.weather).unwrap_or_default();
        let mut volumes = list(&status, "volumes").iter();
        let rests = volumes.any(|v| v["name"] == volume && v["quiesced"] == true);
        if !rests || world.weather.is_ending() {
            return;
        }
        if begun.elapsed() > TURN.mul_f64(world.weather.load()) {
            return world.found.violation(format!("volume {volume} {what}"));
        }
        sleep(Duration::from_millis(20));
    }
}

/// Holds a volume for a moment: for a snapshot by the command line, or by a connection, which
/// releases the volume or ends.
fn hold(world: &StormWorld, number: usize, rng: &mut Rng) -> bool {
    let volume = world.plan.volumes[number].name;
    let quiesced = world.weather.volumes[number].quiesced.begin();
    let request = json!({"request": "hold", "volume": volume, "forget": rng.bool()});
    let kind = OperatorKind::draw(world, &request, rng);
    let held = match kind {
        OperatorKind::Socket => hold_connected(world, &request, rng),
        _ => give(world, &request, kind),
    };
    // An interrupted command leaves its snapshot at work.
    if held || kind != OperatorKind::Socket {
        let what = "is held by a client that has ended";
        goes_on(world, volume, what, || false);
    }
    drop(quiesced);
    held
}

/// Holds a volume by a connection. Returns true on success.
fn hold_connected(world: &StormWorld, request: &Value, rng: &mut Rng) -> bool {
    let kind = OperatorKind::Socket;
    let mut talk = match world.machine.talk() {
        Ok(talk) => talk,
        Err(error) => {
            unanswered(world, request, kind, &error);
            return false;
        }
    };
    let held = judge(world, request, kind, talk.ask(request, world.weather));
    sleep(Duration::from_millis(rng.u64(..500)));
    if held && rng.bool() {
        let release = json!({"request": "release"});
        judge(world, &release, kind, talk.ask(&release, world.weather));
    }
    held
}

/// Records the requests to a volume for a moment.
fn record(world: &StormWorld, volume: &str, rng: &mut Rng) -> bool {
    let (request, kind) = (
        json!({"request": "record", "volume": volume}),
        OperatorKind::Socket,
    );
    let mut talk = match world.machine.talk() {
        Ok(talk) => talk,
        Err(error) => {
            unanswered(world, &request, kind, &error);
            return false;
        }
    };
    let begun = judge(world, &request, kind, talk.ask(&request, world.weather));
    for _ in 0..rng.usize(..4) {
        sleep(Duration::from_millis(rng.u64(..300)));
        let take = json!({"request": "take-records"});
        if let (true, Err(error)) = (begun, talk.ask(&take, world.weather)) {
            unanswered(world, &take, kind, &error);
            break;
        }
    }
    begun
}

/// Gives a request by a drawn kind. Returns true on success.
fn ask(world: &StormWorld, request: &Value, rng: &mut Rng) -> bool {
    give(world, request, OperatorKind::draw(world, request, rng))
}

/// Gives a request. Returns true on success.
pub fn give(world: &StormWorld, request: &Value, kind: OperatorKind) -> bool {
    judge(world, request, kind, kind.give(world, request))
}

fn judge(
    world: &StormWorld,
    request: &Value,
    kind: OperatorKind,
    answer: std::io::Result<Value>,
) -> bool {
    let what = request["request"].as_str().unwrap_or_default();
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            unanswered(world, request, kind, &error);
            return false;
        }
    };
    let (end, why) = match (answer.get("error"), answer.get("left")) {
        (Some(why), _) => ("refused", format!(": {why}")),
        (_, Some(why)) => ("left", format!(": {why}")),
        _ => ("done", String::new()),
    };
    world.found.met(&format!("{what} is {end}"));
    world.found.met(&format!("{} is {end}", kind.name()));
    if end != "done" || !LOOKS.contains(&what) {
        let by = kind.name();
        world
            .found
            .happens(format!("{by}: {request} is {end}{why}"));
    }
    end == "done"
}

fn unanswered(world: &StormWorld, request: &Value, kind: OperatorKind, error: &std::io::Error) {
    if world.weather.is_ending() {
        return;
    }
    let what = match error.kind() {
        ErrorKind::TimedOut => format!("{}: no answer to {request}", kind.name()),
        _ => format!("{}: {request}: {error}", kind.name()),
    };
    world.found.violation(what);
}
