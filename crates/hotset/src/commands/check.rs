//! `hotset check`.

use super::table::count;
use crate::CommandFailure;
use crate::commands::daemon::ControlOption;
use crate::configuration::{USUAL, VARIABLE, read, read_alone, warnings};
use crate::platform::ublk::stack;
use crate::platform::{machine, reservation, state, steering};
use clap::Args;
use command::{MISUSED, print_line};
use control::client::ControlClient;
use control::config::Config;
use control::files::ConfigurationFiles;
use control::plan::{PlanStep, PlanVerdict, plan, verdict};
use serde::Serialize;
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
    /// Print JSON, also of a configuration that is wrong
    #[arg(long)]
    json: bool,
}

/// The outcome of a check, for programs.
#[derive(Default, Serialize)]
struct Judgement {
    problems: Vec<String>,
    warnings: Vec<String>,
    changes: Vec<Difference>,
}

/// A change from the configuration of a daemon, for programs.
#[derive(Serialize)]
struct Difference {
    place: String,
    what: String,
    /// The reason for a restart, if one is needed.
    needs_restart: Option<&'static str>,
}

pub fn run(command: &Check) -> Result<(), CommandFailure> {
    let ended = match command.against_running {
        true => against_running(command),
        false => this_machine(command),
    };
    match ended {
        Err(CommandFailure::Usage(problems)) if command.json => {
            print_json(&Judgement {
                problems: problems.lines().map(str::to_owned).collect(),
                ..Judgement::default()
            })?;
            Err(CommandFailure::Answered(MISUSED))
        }
        ended => ended,
    }
}

fn print_json(judgement: &Judgement) -> Result<(), CommandFailure> {
    print_line(serde_json::to_string(judgement).map_err(CommandFailure::runtime)?)
}

fn this_machine(command: &Check) -> Result<(), CommandFailure> {
    let file = &command.file;
    if command.json {
        let (_, warnings) = warned(file, command.alone)?;
        return print_json(&Judgement {
            warnings,
            ..Judgement::default()
        });
    }
    let lines = judged(file, command.alone)?;
    lines.iter().try_for_each(print_line)
}

/// Judges a configuration, `alone` or for this machine. Returns the warnings, and a line that sums
/// up.
pub fn judged(file: &Path, alone: bool) -> Result<Vec<String>, CommandFailure> {
    let (config, warnings) = warned(file, alone)?;
    let warnings = warnings.iter();
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

/// Judges a configuration. Returns the configuration with the warnings.
fn warned(file: &Path, alone: bool) -> Result<(Config, Vec<String>), CommandFailure> {
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
            let mut lacking = control::check::lacking(&config, machine::time_of_day());
            lacking.extend(reservation::problems(&config));
            lacking
        }
    };
    let lacking = lacking.iter().map(|problem| config.files.show(problem));
    let warnings = lacking.chain(warnings(&config)).collect();
    Ok((config, warnings))
}

fn against_running(command: &Check) -> Result<(), CommandFailure> {
    let file = &command.file;
    let (files, steps) = steps(file, &command.control.control)?;
    let verdict = verdict(&steps);
    if command.json {
        print_json(&Judgement {
            changes: steps.iter().map(|step| difference(step, &files)).collect(),
            ..Judgement::default()
        })?;
    } else {
        let lines = summed_up(file, &files, &steps);
        lines.iter().try_for_each(print_line)?;
    }
    match verdict {
        PlanVerdict::Same => Ok(()),
        PlanVerdict::Possible => Err(CommandFailure::Answered(command::FOUND)),
        PlanVerdict::NeedsRestart(_) => Err(CommandFailure::Answered(command::NEEDS_RESTART)),
    }
}

/// Compares a configuration file with the running daemon's configuration. Returns a line for each
/// change, and one that sums up.
pub fn differences(file: &Path, control: &Path) -> Result<Vec<String>, CommandFailure> {
    let (files, steps) = steps(file, control)?;
    Ok(summed_up(file, &files, &steps))
}

/// The steps from the running daemon's configuration to that of `file`.
fn steps(
    file: &Path,
    control: &Path,
) -> Result<(ConfigurationFiles, Vec<PlanStep>), CommandFailure> {
    let wanted = read_alone(file)?;
    let mut client = ControlClient::connect(control).map_err(CommandFailure::runtime)?;
    let running = client.configuration().map_err(CommandFailure::runtime)?;
    let steps = plan(&running, &wanted);
    Ok((wanted.files, steps))
}

fn difference(step: &PlanStep, files: &ConfigurationFiles) -> Difference {
    Difference {
        place: step.place(files),
        what: step.what.clone(),
        needs_restart: step.change.as_ref().err().copied(),
    }
}

/// A line for each step, and one that sums up.
fn summed_up(file: &Path, files: &ConfigurationFiles, steps: &[PlanStep]) -> Vec<String> {
    let changes = steps.iter().map(|step| step.show(files));
    let mut lines: Vec<String> = changes.collect();
    let name = file.display();
    lines.push(match verdict(steps) {
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
    lines
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
