//! `hotset check`.

use crate::Failure;
use control::config::Config;
use sim::model::catalogue::Drive;
use std::path::Path;

/// Reads a configuration that is right in itself and for this machine.
pub fn read(file: &Path) -> Result<Config, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|cause| {
        Failure::Usage(format!(
            "hotset: {name} cannot be read ({cause}); name a configuration file"
        ))
    })?;
    let drives: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
    control::check::check(&text, &drives).map_err(|problems| {
        let lines = problems.iter().map(|problem| format!("{name}:{problem}"));
        Failure::Usage(lines.collect::<Vec<_>>().join("\n"))
    })
}

pub fn run(file: &Path) -> Result<(), Failure> {
    let config = read(file)?;
    println!(
        "{}: {} volumes, {} pools, {} devices, no problem found",
        file.display(),
        config.volumes.len(),
        config.pools.len(),
        config.devices.len(),
    );
    Ok(())
}
