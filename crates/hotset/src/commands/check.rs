//! `hotset check`.

use super::table::count;
use crate::Failure;
use control::check::{check, check_alone, check_to_serve};
use control::config::Config;
use control::problem::Problem;
use sim::model::catalogue::Drive;
use std::path::Path;

type Check = fn(&str, &[&str]) -> Result<Config, Vec<Problem>>;

/// Reads a configuration that is right in itself and for this machine.
pub fn read(file: &Path) -> Result<Config, Failure> {
    judged(file, |text, drives| check(text, drives, uring::is_listened))
}

/// Reads a configuration that can be served: a device that cannot be used keeps but its
/// own volume from that.
pub fn read_to_serve(file: &Path) -> Result<Config, Failure> {
    judged(file, |text, drives| {
        check_to_serve(text, drives, uring::is_listened)
    })
}

/// Reads a configuration that is right in itself, whatever runs on this machine.
pub fn read_alone(file: &Path) -> Result<Config, Failure> {
    judged(file, check_alone)
}

fn judged(file: &Path, check: Check) -> Result<Config, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|cause| {
        Failure::Usage(format!(
            "hotset: {name} cannot be read ({cause}); name a configuration file"
        ))
    })?;
    let drives: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
    check(&text, &drives).map_err(|problems| {
        let lines = problems.iter().map(|problem| format!("{name}:{problem}"));
        Failure::Usage(lines.collect::<Vec<_>>().join("\n"))
    })
}

pub fn run(file: &Path) -> Result<(), Failure> {
    let config = read(file)?;
    for warning in control::check::warnings(&config) {
        println!("{}:{warning} (a warning)", file.display());
    }
    println!(
        "{}: {}, {}, {}, {}, no problem found",
        file.display(),
        count(config.volumes.len(), "volume"),
        count(config.pools.len(), "pool"),
        count(config.arrays.len(), "array"),
        count(config.devices.len(), "device"),
    );
    Ok(())
}
