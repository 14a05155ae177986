//! The watch over the daemon: a report comes in time, and shows each loss.

use crate::plan::LOGS;
use crate::standing::list;
use crate::world::StormWorld;
use serde_json::Value;
use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval of reports.
const EVERY: Duration = Duration::from_millis(200);

/// Requests reports until the clients' time is over. Checks that each is in time, and notes the
/// losses in it.
pub fn watch(world: &StormWorld) {
    let mut in_sync = BTreeSet::new();
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
                world.standing.look(&status);
                lost(world, &status);
                lost_members(world, &status, &mut in_sync);
            }
            Err(_) if world.weather.is_ending() => return,
            Err(error) => world.found.violation(format!("no report: {error}")),
        }
        sleep(EVERY);
    }
}

fn lost(world: &StormWorld, status: &Value) {
    for pool in list(status, "pools") {
        for device in list(pool, "devices") {
            let name = device["name"].as_str().unwrap_or_default();
            let state = device["state"].as_str().unwrap_or_default();
            if !["online", "leaving"].contains(&state)
                && world.found.lose(name, vec![name.to_owned()])
            {
                world.found.happens(format!("{name} is {state}"));
            }
        }
    }
    for volume in list(status, "volumes") {
        let copies = volume["write_back"]["copies"].as_u64();
        if copies.is_some_and(|copies| copies < 2)
            && world.found.lose("log", LOGS.map(str::to_owned).to_vec())
        {
            world.found.happens("a copy of the log is lost".into());
        }
    }
}

/// Returns members that were in sync in an earlier report, and are lost.
fn lost_members(world: &StormWorld, status: &Value, in_sync: &mut BTreeSet<String>) {
    for array in list(status, "arrays") {
        let array_name = array["name"].as_str().unwrap_or_default();
        if array["state"] == "failed" && world.found.lose(array_name, vec![array_name.to_owned()]) {
            world.found.happens(format!("{array} has failed"));
        }
        for member in list(array, "members") {
            let Some(name) = member["device"].as_str() else {
                continue;
            };
            if member["state"] == "in sync" {
                in_sync.insert(name.to_owned());
                continue;
            }
            let text = format!("array {array_name}: member {}", member["role"]);
            if in_sync.remove(name) && world.found.lose(name, vec![text]) {
                world
                    .found
                    .happens(format!("{name} is {}", member["state"]));
            }
        }
    }
}
