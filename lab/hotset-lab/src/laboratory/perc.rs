//! `hotset-lab run perc --real` and `--device`: the sweep on this machine.

use super::terminal::result_table;
use crate::CommandFailure;
use command::print_line;
use measurements::perc::{self, SweepPlace};
use std::path::PathBuf;

/// The sweep on this machine.
pub struct Perc {
    pub json: bool,
    pub quick: bool,
    pub real: Option<PathBuf>,
    pub device: Option<PathBuf>,
}

/// Runs the sweep by fio.
pub fn real(command: &Perc) -> Result<(), CommandFailure> {
    let done = |part: &str| {
        if !command.json {
            eprintln!("done: {part}");
        }
    };
    let place = command.real.clone().map(SweepPlace::Files);
    let place = place.or(command.device.clone().map(SweepPlace::Device));
    let place = place.expect("one of them was given");
    let program = crate::program::hotset()?;
    let report = perc::real(&program, &place, command.quick, &done);
    let report = report.map_err(CommandFailure::Runtime)?;
    match command.json {
        true => print_line(serde_json::to_string_pretty(&report).map_err(CommandFailure::runtime)?),
        false => command::print(result_table(&perc::table(&report.points)).to_string()),
    }
}
