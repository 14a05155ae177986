//! `hotset drill`.

use crate::CommandFailure;
use clap::{Args, ValueEnum};
use command::drill::DrillRequest;
use drill::DriveKind;
use std::path::PathBuf;

#[derive(Args)]
pub struct DrillCommand {
    #[command(flatten)]
    asked: DrillRequest,
    /// The kind of the daemon's drives
    #[arg(long, value_enum, default_value_t = Drives::Nbd)]
    drives: Drives,
    /// The directory of the daemon's files, 6 MB a drive; made if missing, and overwritten
    #[arg(long, value_name = "DIRECTORY", default_value = "var/drill")]
    directory: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Drives {
    /// NBD servers, which are killed and started again
    Nbd,
    /// Loop devices, which lose the file system under them and come back as others; needs root
    Loop,
}

pub fn run(command: &DrillCommand) -> Result<(), CommandFailure> {
    let setup = command.asked.setup()?;
    let kind = match command.drives {
        Drives::Nbd => DriveKind::Nbd,
        Drives::Loop => DriveKind::Loop,
    };
    let program = std::env::current_exe()
        .map_err(|cause| CommandFailure::of("this program's file cannot be found", cause))?;
    let report = |row: &drill::DrillRow| command.asked.report(row);
    let rows = drill::real(&setup, kind, &program, &command.directory, &report);
    command
        .asked
        .end(&setup, &rows.map_err(CommandFailure::Runtime)?)
}
