//! Reading configurations, and checking them: alone, or for this machine.

use crate::CommandFailure;
use clap::Args;
use control::check::{check, check_alone, check_to_serve};
use control::config::Config;
use control::files::ConfigurationFiles;
use control::plain;
use control::problem::ConfigurationProblem;
use drives::catalogue::Drive;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The variable of the environment that names the configuration.
pub const VARIABLE: &str = "HOTSET_CONFIG";
/// Path of the configuration unless another is given.
pub const USUAL: &str = "/etc/hotset/hotset.toml";

/// Path of the configuration.
#[derive(Args)]
pub struct ConfigurationPlace {
    /// The configuration
    #[arg(
        long = "config",
        value_name = "FILE",
        env = VARIABLE,
        default_value = USUAL
    )]
    pub file: PathBuf,
}

/// Reads a configuration that is right in itself and for the sockets of this machine.
pub fn read(file: &Path) -> Result<Config, CommandFailure> {
    let judge =
        |files: &ConfigurationFiles, drives: &[&str]| check(files, drives, uring::is_listened);
    judged(file, judge).map_err(CommandFailure::Usage)
}

/// Reads a configuration to be served. A device that cannot be used keeps only its own volume from
/// being served. `is_listened` tests for a process that goes on to listen on a unix socket.
pub fn read_to_serve(
    file: &Path,
    is_listened: fn(&Path) -> bool,
) -> Result<Config, CommandFailure> {
    let judge =
        |files: &ConfigurationFiles, drives: &[&str]| check_to_serve(files, drives, is_listened);
    judged(file, judge).map_err(CommandFailure::Usage)
}

/// Reads a configuration that is right in itself, whatever runs on this machine.
pub fn read_alone(file: &Path) -> Result<Config, CommandFailure> {
    read_again(file).map_err(CommandFailure::Usage)
}

/// As [`read_alone`]. `Err`: the problems, in a line each.
pub fn read_again(file: &Path) -> Result<Config, String> {
    judged(file, |files, drives| check_alone(files.clone(), drives))
}

fn judged(
    file: &Path,
    judge: impl FnOnce(&ConfigurationFiles, &[&str]) -> Result<Config, Vec<ConfigurationProblem>>,
) -> Result<Config, String> {
    let files = ConfigurationFiles::read(file).map_err(|(path, cause)| {
        let (path, kind, cause) = (path.display(), cause.kind(), plain(cause));
        match kind {
            // The cause names the remedy.
            ErrorKind::InvalidInput => format!("{path} cannot be read: {cause}"),
            _ => format!("{path} cannot be read ({cause}); name a configuration file"),
        }
    })?;
    let drives: Vec<&str> = Drive::all().map(|drive| drive.name()).collect();
    judge(&files, &drives).map_err(|problems| {
        let lines = problems.iter().map(|problem| files.show(problem));
        lines.collect::<Vec<_>>().join("\n")
    })
}

/// Permitted settings that are hardly meant, in a line each.
pub fn warnings(config: &Config) -> Vec<String> {
    let warnings = control::check::warnings(config);
    let lines = warnings.iter().map(|warning| config.files.show(warning));
    lines.collect()
}
