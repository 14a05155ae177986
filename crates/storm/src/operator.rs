//! Who operates the daemon, and who watches it.

use crate::weather::COMMAND;
use crate::world::World;
use fastrand::Rng;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often a report is asked for.
const EVERY: Duration = Duration::from_millis(200);

/// Requests that change nothing.
const LOOKS: [&str; 3] = ["configuration", "observe", "explain"];

/// Gives commands until clients are to end.
pub fn operate(world: &World, rng: &mut Rng) {
    while !world.weather.is_over() {
        sleep(Duration::from_millis(rng.u64(20..600)));
        let number = rng.usize(..world.plan.volumes.len());
        let volume = &world.plan.volumes[number];
        let (name, writes_back) = (volume.name, volume.mode == "write-back");
        let request = match rng.u8(..8) {
            0 => json!({"request": "reload"}),
            1 => json!({"request": "configuration"}),
            2 => json!({"request": "observe", "volume": name}),
            3 => json!({"request": "explain", "volume": name, "range": [0, 1 << 20]}),
            4 | 5 if !writes_back => {
                let modes = ["write-through", "write-around", "pass-through"];
                let mode = modes[rng.usize(..modes.len())];
                json!({"request": "set-mode", "volume": name, "mode": mode})
            }
            6 => json!({"request": "invalidate", "volume": name}),
            _ => {
                quiesce(world, number, rng);
                continue;
            }
        };
        command(world, &request);
    }
}

/// Quiesces a volume for a moment.
fn quiesce(world: &World, number: usize, rng: &mut Rng) {
    let volume = world.plan.volumes[number].name;
    let quiesced = world.weather.volumes[number].quiesced.begin();
    command(world, &json!({"request": "quiesce", "volume": volume}));
    sleep(Duration::from_millis(rng.u64(..500)));
    // One change goes on at a time: another may be in the way.
    let begun = Instant::now();
    while !command(world, &json!({"request": "resume", "volume": volume})) {
        let status = world.machine.status(world.weather).unwrap_or_default();
        let volumes = status["volumes"].as_array().cloned().unwrap_or_default();
        let quiesced = volumes
            .iter()
            .any(|v| v["name"] == volume && v["quiesced"] == true);
        if !quiesced || world.weather.is_ending() {
            break;
        }
        if begun.elapsed() > COMMAND.mul_f64(world.weather.load()) {
            world
                .found
                .violation(format!("volume {volume} cannot be resumed"));
            break;
        }
        sleep(Duration::from_millis(20));
    }
    drop(quiesced);
}

/// Whether it was done.
fn command(world: &World, request: &Value) -> bool {
    let what = request["request"].as_str().unwrap_or_default();
    match world.machine.ask(request, world.weather) {
        Ok(answer) if answer.get("error").is_some() => {
            world.found.met(&format!("{what} is refused"));
            world
                .found
                .happens(format!("{request} is refused: {}", answer["error"]));
        }
        Ok(_) => {
            world.found.met(&format!("{what} is done"));
            if !LOOKS.contains(&what) {
                world.found.happens(format!("{request} is done"));
            }
            return true;
        }
        Err(error) if world.weather.is_ending() => drop(error),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            world.found.violation(format!("no answer to {request}"));
        }
        Err(error) => world.found.violation(format!("{request}: {error}")),
    }
    false
}

/// Asks for reports until clients are to end: each in time, and what is lost by it.
pub fn watch(world: &World) {
    while !world.weather.is_over() {
        let begun = Instant::now();
        let status = world.machine.status(world.weather);
        let overdue = world.weather.overdue_report(begun);
        match status {
            Ok(status) => {
                if let Some(waited) = overdue {
                    let waited = waited.as_secs_f64();
                    world
                        .found
                        .violation(format!("a report takes {waited:.1} s"));
                }
                world.found.status(begun.elapsed());
                lost(world, &status);
            }
            Err(_) if world.weather.is_ending() => return,
            Err(error) => world.found.violation(format!("no report: {error}")),
        }
        sleep(EVERY);
    }
}

fn lost(world: &World, status: &Value) {
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for pool in all(&status["pools"]) {
        for device in all(&pool["devices"]) {
            let name = device["name"].as_str().unwrap_or_default();
            let state = device["state"].as_str().unwrap_or_default();
            if state != "online" && world.found.lose(name) {
                world.found.happens(format!("{name} is {state}"));
            }
        }
    }
    for volume in all(&status["volumes"]) {
        let copies = volume["write_back"]["copies"].as_u64();
        if copies.is_some_and(|copies| copies < 2) && world.found.lose("log") {
            world.found.happens("a copy of the log is lost".into());
        }
    }
}
