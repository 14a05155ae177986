//! `hotset-lab choices`.

use super::origin::commit;
use super::run::EVERY;
use super::side::each;
use super::store;
use super::terminal::progress;
use crate::CommandFailure;
use crate::program::made_directory;
use clap::Args;
use command::print_line;
use command::table::TextTable;
use experiment::choices::{ALL as CHOICES, AUTO, Came, Choice};
use experiment::registry::{ALL, Experiment, named};
use measurements::about::RunAbout;
use measurements::choices::{
    ADVICE_HEAD, ChoiceRow, HEAD, Tried, advice_cells, cells, on_flash, rows,
};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub struct ChoicesCommand {
    /// Names of experiments, or `all` of them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print all results as JSON
    #[arg(long)]
    json: bool,
    /// Keep the results in this directory, made if missing; results that are there are not run
    /// again
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Run a small part, in seconds: too little to judge by
    #[arg(long)]
    quick: bool,
    /// All sizes of flash are so many percent of the experiment's: less than the content needs is
    /// where policies differ
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(store::FLASH_PERCENT))]
    flash: u64,
    /// This choice beside the default, and no other; may be repeated
    #[arg(long = "choice", value_name = "CHOICE", conflicts_with = "out", value_parser = choice)]
    only: Vec<Choice>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
}

fn choice(name: &str) -> Result<Choice, String> {
    let found = CHOICES.iter().find(|choice| choice.name == name);
    let known: Vec<&str> = CHOICES.iter().map(|choice| choice.name).collect();
    let known = known.join(", ");
    found.copied().ok_or_else(|| format!("choose of {known}"))
}

fn which(names: &[String]) -> Result<Vec<&'static Experiment>, CommandFailure> {
    for name in names.iter().filter(|name| *name != EVERY) {
        if named(name).is_none() {
            let known: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
            return Err(CommandFailure::Usage(format!(
                "no experiment with choices is called {name:?}; choose of {}, or all",
                known.join(", ")
            )));
        }
    }
    let asked = |name: &str| names.iter().any(|n| n == EVERY || n == name);
    Ok(ALL.iter().filter(|e| asked(e.name)).collect())
}

pub fn run(command: &ChoicesCommand) -> Result<(), CommandFailure> {
    let chosen = which(&command.names)?;
    if let Some(directory) = &command.out {
        made_directory(directory)?;
    }
    if !command.only.is_empty() {
        return try_some(command, &chosen);
    }
    let mut all = Vec::new();
    for experiment in chosen {
        let before = match &command.out {
            Some(directory) => store::find_tried(directory, experiment.name, command.flash)?,
            None => None,
        };
        let tried = match before {
            Some((path, tried)) => {
                let ran = (tried.quick, tried.seed, tried.seeds);
                let asked = (command.quick, command.seed, command.seeds);
                store::is_of(&path, ran == asked)?;
                eprintln!("{}: done before, in {}", experiment.name, path.display());
                tried
            }
            None => try_all(command, experiment)?,
        };
        all.push(tried);
    }
    match command.json {
        true => print_json(&all),
        false => all.iter().try_for_each(show),
    }
}

fn print_json(all: &impl Serialize) -> Result<(), CommandFailure> {
    let text = serde_json::to_string_pretty(all).map_err(CommandFailure::runtime)?;
    print_line(text)
}

fn table(rows: &[ChoiceRow]) -> TextTable {
    let mut table = TextTable::new(&HEAD).text(&[3]);
    rows.iter().for_each(|row| table.row(cells(row)));
    table
}

/// The results of each of `choices`, seed by seed.
fn came_to(
    command: &ChoicesCommand,
    experiment: &Experiment,
    choices: &[Choice],
) -> Result<Vec<Vec<Came>>, CommandFailure> {
    let name = experiment.name;
    let progress = progress(command.json);
    let load = experiment.load.as_ref().expect("the registry has loads");
    each(choices.len(), command.seeds, |choice, n| {
        let (seed, choice) = (command.seed.saturating_add(n), choices[choice]);
        let came = (load.choose)(seed, command.quick, command.flash, choice);
        progress(&format!("{name}: {}, seed {seed}", choice.name));
        came.map_err(|what| CommandFailure::Runtime(format!("{name}, {}: {what}", choice.name)))
    })
}

/// Some choices of one experiment.
#[derive(Serialize)]
struct Compared {
    experiment: &'static str,
    rows: Vec<ChoiceRow>,
}

/// The default, and the choices that are asked for.
fn try_some(command: &ChoicesCommand, experiments: &[&Experiment]) -> Result<(), CommandFailure> {
    let others = command.only.iter().filter(|choice| **choice != AUTO);
    let choices: Vec<Choice> = [AUTO].iter().chain(others).copied().collect();
    let mut all = Vec::new();
    for experiment in experiments {
        let rows = rows(&choices, &came_to(command, experiment, &choices)?);
        if !command.json {
            print_line(format!("{}\n{}", experiment.name, table(&rows)))?;
        }
        all.push(Compared {
            experiment: experiment.name,
            rows,
        });
    }
    match command.json {
        true => print_json(&all),
        false => Ok(()),
    }
}

/// Runs every choice with every seed, and keeps the results.
fn try_all(command: &ChoicesCommand, experiment: &Experiment) -> Result<Tried, CommandFailure> {
    let name = experiment.name;
    let begun = Instant::now();
    let came = came_to(command, experiment, &CHOICES)?;
    let quick = if command.quick { " --quick" } else { "" };
    let flash = match command.flash {
        100 => String::new(),
        percent => format!(" --flash {percent}"),
    };
    let about = RunAbout {
        experiment: name.into(),
        quick: command.quick,
        seed: command.seed,
        command: format!(
            "hotset-lab choices {name}{quick}{flash} --seed {} --seeds {}",
            command.seed, command.seeds
        ),
        commit: commit(),
        wall_seconds: begun.elapsed().as_secs_f64(),
    };
    let tried = Tried::new(about, command.flash, &came);
    if let Some(directory) = &command.out {
        store::keep_tried(directory, &tried)?;
    }
    Ok(tried)
}

fn show(tried: &Tried) -> Result<(), CommandFailure> {
    let rows = table(&tried.rows);
    print_line(format!("{}{}\n{rows}", tried.experiment, on_flash(tried)))?;
    print_line(format!(
        "the default is {:.1} % behind the best fixed choice, {}; within 5 %: {}",
        tried.behind_percent,
        tried.best,
        if tried.met { "yes" } else { "NO" }
    ))?;
    let mut table = TextTable::new(&ADVICE_HEAD);
    let advised = tried.advised.iter();
    advised.for_each(|row| table.row(advice_cells(row)));
    print_line(table)?;
    for warning in &tried.warnings {
        print_line(format!("the advice warns: {warning}"))?;
    }
    if tried.quick {
        print_line("the quick form: too few requests to judge by\n")?;
    }
    Ok(())
}
