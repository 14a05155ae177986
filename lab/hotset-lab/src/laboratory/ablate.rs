//! `hotset-lab ablate`.

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
use experiment::registry::{ALL, Experiment, named};
use measurements::ablation::Ablated;
use measurements::about::RunAbout;
use measurements::report::short;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub struct Ablate {
    /// Experiments: names of `hotset-lab list` but perc, or `all` of them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Show these figures, instead of those that the whole model misses
    #[arg(long, value_name = "FIGURE")]
    figure: Vec<String>,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
    /// Keep the results in this directory, made if missing; results that are there are not run
    /// again
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Run a small part, in seconds: too little to judge by
    #[arg(long)]
    quick: bool,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
}

fn which(command: &Ablate) -> Result<Vec<&'static Experiment>, CommandFailure> {
    let names = &command.names;
    let known: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
    if let Some(name) = names.iter().find(|n| *n != EVERY && named(n).is_none()) {
        return Err(CommandFailure::Usage(format!(
            "no experiment with parts is called {name:?}; choose of {}, or all",
            known.join(", ")
        )));
    }
    let asked = |e: &&Experiment| names.iter().any(|n| n == EVERY || n == e.name);
    let chosen: Vec<&Experiment> = ALL.iter().filter(asked).collect();
    for figure in &command.figure {
        let has = |e: &&Experiment| (e.figures)().printed.iter().any(|p| p.figure == *figure);
        if !chosen.iter().any(has) {
            return Err(CommandFailure::Usage(format!(
                "no figure is called {figure:?} there; `hotset-lab run NAME --quick` lists them"
            )));
        }
    }
    Ok(chosen)
}

pub fn run(command: &Ablate) -> Result<(), CommandFailure> {
    let chosen = which(command)?;
    if let Some(directory) = &command.out {
        made_directory(directory)?;
    }
    let mut all = Vec::new();
    for experiment in chosen {
        let before = match &command.out {
            Some(directory) => store::find_ablated(directory, experiment.name)?,
            None => None,
        };
        let ablated = match before {
            Some((path, ablated)) => {
                let ran = (ablated.quick, ablated.seed, ablated.seeds);
                let asked = (command.quick, command.seed, command.seeds);
                store::is_of(&path, ran == asked)?;
                eprintln!("{}: done before, in {}", experiment.name, path.display());
                ablated
            }
            None => ablate(command, experiment)?,
        };
        all.push(ablated);
    }
    if command.json {
        let text = serde_json::to_string_pretty(&all).map_err(CommandFailure::runtime)?;
        return print_line(text);
    }
    all.iter().try_for_each(|ablated| show(command, ablated))
}

/// Runs the whole model, and without each part, with every seed; keeps the results.
fn ablate(command: &Ablate, experiment: &Experiment) -> Result<Ablated, CommandFailure> {
    let begun = Instant::now();
    let (name, parts) = (experiment.name, experiment.parts);
    let progress = progress(command.json);
    let outcomes = each(1 + parts.len(), command.seeds, |variant, n| {
        let seed = command.seed.saturating_add(n);
        let (part, settings) = match variant.checked_sub(1) {
            None => ("nothing", [].as_slice()),
            Some(part) => parts[part],
        };
        let outcome = (experiment.run)(seed, command.quick, settings, &|_| ());
        progress(&format!("{name}: without {part}, seed {seed}"));
        outcome.map_err(|what| CommandFailure::Runtime(format!("{name}, without {part}: {what}")))
    })?;
    let quick = if command.quick { " --quick" } else { "" };
    let about = RunAbout {
        experiment: name.into(),
        quick: command.quick,
        seed: command.seed,
        command: format!(
            "hotset-lab ablate {name}{quick} --seed {} --seeds {}",
            command.seed, command.seeds
        ),
        commit: commit(),
        wall_seconds: begun.elapsed().as_secs_f64(),
    };
    let parts: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    let ablated = Ablated::new(about, &(experiment.figures)(), &parts, &outcomes);
    if let Some(directory) = &command.out {
        store::keep_ablated(directory, &ablated)?;
    }
    Ok(ablated)
}

fn show(command: &Ablate, ablated: &Ablated) -> Result<(), CommandFailure> {
    let places = match command.figure.is_empty() {
        true => ablated.missed(),
        false => {
            let all = ablated.figures.iter();
            let asked = all.enumerate().filter(|(_, f)| command.figure.contains(f));
            asked.map(|(place, _)| place).collect()
        }
    };
    if places.is_empty() {
        return print_line(format!(
            "{}: no figure is missed; name some with --figure",
            ablated.experiment
        ));
    }
    let head = ablated.head(&places);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = TextTable::new(&head);
    let lines = ablated.cells(&places, short);
    lines.into_iter().for_each(|line| table.row(line));
    print_line(format!("{}\n{table}", ablated.experiment))?;
    if ablated.quick {
        print_line("the quick form: too few requests to judge by\n")?;
    }
    Ok(())
}
