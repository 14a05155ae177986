//! `hotset check`.

use super::table::count;
use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use crate::configuration::{USUAL, VARIABLE, read, read_alone, warnings};
use crate::platform::ublk::stack;
use crate::platform::{machine, state, steering};
use clap::Args;
use command::print_line;
use control::client::ControlClient;
use control::config::Config;
use control::plan::{PlanVerdict, plan, verdict};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Check {
    /// The configuration
    #[arg(env = VARIABLE, default_value = USUAL)]
    file: PathBuf,
    /// Compare the file with the configuration of the running daemon; nothing that the daemon uses
    /// is an obstacle then
    #[arg(long)]
    against_running: bool,
    /// Judge the files alone: sockets, ports, memory and devices of this machine may be in use
    #[arg(long, conflicts_with = "against_running")]
    alone: bool,
    #[command(flatten)]
    control: ControlOption,
}

pub fn run(command: &Check) -> Result<(), CommandFailure> {
    let file = &command.file;
    if command.against_running {
        return against_running(file, &command.control.control);
    }
    judged(file, command.alone)?.iter().try_for_each(print_line)
}

/// Judges a configuration, `alone` or for this machine. Returns the warnings, and a line that sums
/// up.
pub fn judged(file: &Path, alone: bool) -> Result<Vec<String>, CommandFailure> {
    let config = match alone {
        true => read_alone(file)?,
        false => read(file)?,
    };
    let mut own = steering::problems(&config);
    if !alone {
        own.extend(stack::problems(&config));
    }
    if !own.is_empty() {
        let lines = own.iter().map(|problem| config.files.show(problem));
        return Err(CommandFailure::Usage(lines.collect::<Vec<_>>().join("\n")));
    }
    let lacking = match alone {
        true => Vec::new(),
        false => {
            left_out(&config, file)?;
            control::check::lacking(&config, machine::time_of_day())
        }
    };
    let lacking = lacking.iter().map(|problem| config.files.show(problem));
    let warnings = lacking.chain(warnings(&config));
    let mut lines: Vec<String> = warnings
        .map(|warning| format!("{warning} (a warning)"))
        .collect();
    lines.push(format!(
        "{}: {}, {}, {}, {}, no problem found",
        file.display(),
        count(config.volumes.len(), "volume"),
        count(config.pools.len(), "pool"),
        count(config.arrays.len(), "array"),
        count(config.devices.len(), "device"),
    ));
    Ok(lines)
}

fn against_running(file: &Path, control: &Path) -> Result<(), CommandFailure> {
    let (lines, verdict) = differences(file, control)?;
    lines.iter().try_for_each(print_line)?;
    match verdict {
        PlanVerdict::Same => Ok(()),
        PlanVerdict::Possible => Err(CommandFailure::Answered(command::FOUND)),
        PlanVerdict::NeedsRestart(_) => Err(CommandFailure::Answered(command::NEEDS_RESTART)),
    }
}

/// Compares a configuration file with the running daemon's configuration. Returns a line for each
/// change, and one that sums up.
pub fn differences(
    file: &Path,
    control: &Path,
) -> Result<(Vec<String>, PlanVerdict), CommandFailure> {
    let wanted = read_alone(file)?;
    let mut client = ControlClient::connect(control).map_err(CommandFailure::runtime)?;
    let running = client.configuration().map_err(CommandFailure::runtime)?;
    let steps = plan(&running, &wanted);
    let changes = steps.iter().map(|step| step.show(&wanted.files));
    let mut lines: Vec<String> = changes.collect();
    let name = file.display();
    let verdict = verdict(&steps);
    lines.push(match verdict {
        PlanVerdict::Same => format!("{name}: the daemon runs this"),
        PlanVerdict::Possible => format!(
            "{name}: {} to be made while it runs",
            count(steps.len(), "change")
        ),
        PlanVerdict::NeedsRestart(some) => format!(
            "{name}: {}, of which {some} cannot be made while the daemon runs",
            count(steps.len(), "change")
        ),
    });
    Ok((lines, verdict))
}

/// Refuses a configuration without the log of a volume that may be dirty. A daemon that runs
/// drains a log before the log leaves the configuration.
fn left_out(config: &Config, file: &Path) -> Result<(), CommandFailure> {
    if ControlClient::connect(&config.daemon.control.value).is_ok() {
        return Ok(());
    }
    let logs = state::logs(&config.daemon.state.value).unwrap_or_default();
    match node::left_out(config, &logs) {
        None => Ok(()),
        Some(why) => Err(CommandFailure::Usage(format!("{}: {why}", file.display()))),
    }
}
