//! A volume that is added while the daemon runs, used, and removed. Then its origin alone has all
//! data.

use crate::bytes::{ClientPart, SECTOR};
use crate::client::StormClient;
use crate::kind::OperatorKind;
use crate::operator::give;
use crate::plan::VISITOR;
use crate::world::StormWorld;
use fastrand::Rng;
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

/// Adds and removes the volume until the clients' time is over.
pub fn visit(world: &StormWorld, client: &StormClient, part: &mut ClientPart, rng: &mut Rng) {
    let volume = &world.plan.volumes[VISITOR];
    let is_kept = || world.machine.has_volume(volume.name).unwrap_or(false);
    let mut is_there = is_kept();
    while !world.weather.is_over() && !world.found.is_wrong() {
        sleep(Duration::from_millis(rng.u64(20..600)));
        if is_there {
            let steps = rng.usize(..60);
            client.steps(part, rng, steps);
            if rng.bool() {
                continue;
            }
        }
        let text = world.plan.section(volume);
        let request = match is_there {
            true => json!({"request": "remove-volume", "volume": volume.name}),
            false => json!({"request": "add-volume", "volume": text, "device": null}),
        };
        is_there ^= give(world, &request, OperatorKind::draw_sure(rng));
        // The daemon has changed, and its file could not be: the effect of a reload is unknown
        // then.
        if is_kept() != is_there || is_served(world) != Some(is_there) {
            return;
        }
        if !is_there && let Err(what) = origin_alone(world, VISITOR, std::slice::from_ref(part)) {
            world.found.violation(what);
        }
    }
}

/// True if the daemon serves the volume; `None` without an answer.
fn is_served(world: &StormWorld) -> Option<bool> {
    let status = world.machine.status(world.weather).ok()?;
    let mut volumes = status["volumes"].as_array()?.iter();
    Some(volumes.any(|volume| volume["name"] == world.plan.volumes[VISITOR].name))
}

/// Fails if the origin of a volume, a file or an export, lacks a byte that it has to hold by
/// itself.
pub fn origin_alone(world: &StormWorld, volume: usize, parts: &[ClientPart]) -> Result<(), String> {
    let path = world.machine.back().join(world.plan.volumes[volume].origin);
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    for part in parts {
        let sectors = part.sectors();
        let mut bytes = vec![0; (sectors.end - sectors.start) as usize * SECTOR];
        file.read_exact_at(&mut bytes, sectors.start * SECTOR as u64)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let right = part.check(sectors.start, &bytes);
        right.map_err(|what| format!("the origin alone: {what}"))?;
    }
    Ok(())
}
