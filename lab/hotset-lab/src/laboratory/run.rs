//! `hotset-lab run`, `hotset-lab list` and `hotset-lab report`.

use super::origin::commit;
use super::perc::{self, Perc};
use super::sensitivity;
use super::side::by_side;
use super::store;
use super::terminal::{progress, show};
use crate::CommandFailure;
use crate::program::made_directory;
use clap::Args;
use command::print_line;
use command::table::TextTable;
use experiment::finished::{FORMAT, Finished};
use experiment::models;
use experiment::registry::{ALL, Experiment};
use experiment::topology;
use experiment::verdict::{SEEDS, SeedOutcome, rows};
use measurements::ownership::PriceList;
use measurements::perc::EXPERIMENT as PERC;
use measurements::report;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

/// All of them.
pub const EVERY: &str = "all";

#[derive(Args)]
pub struct RunCommand {
    /// Experiments: names of `hotset-lab list`, or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print the rows as JSON
    #[arg(long)]
    json: bool,
    /// Keep the results in this directory, made if missing; results that are there are not run
    /// again
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Run a small part, in seconds: too little to judge by
    #[arg(long)]
    quick: bool,
    /// The first seed, which draws files, requests, users and the spindles' phases
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of seeds; fewer than five judge nothing
    #[arg(long, value_name = "N", default_value_t = SEEDS,
          value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Set parameters of the models, such as users=800,memory=16GiB; an unknown name is refused with
    /// those that there are
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting, value_delimiter = ',')]
    settings: Vec<(String, f64)>,
    /// Give the disks or the flash drives another model of the catalogue: disk=SAS15K, flash=X25-E
    #[arg(long = "model", value_name = "ROLE=DRIVE", value_parser = role_model)]
    models: Vec<(String, f64)>,
    /// Run on the machine of this configuration instead of the published one, with the published
    /// names of volumes: `hotset-lab list --topology NAME` prints the published one
    #[arg(long, value_name = "FILE", value_parser = topology_file)]
    topology: Option<(String, f64)>,
    /// Run a PART-th of the published size instead of the model's own part; 1 is the whole
    #[arg(long, value_name = "PART")]
    part: Option<u32>,
    /// Run blind measurements that are met again, with the device under test at no cost and at
    /// twice its cost
    #[arg(long, conflicts_with = "quick")]
    sensitivity: bool,
    /// perc alone: the sweep by fio through a daemon on files here, 2 GB, overwritten
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["out", "seed", "seeds", "settings", "models", "topology", "part", "sensitivity", "device"])]
    real: Option<PathBuf>,
    /// perc alone: the sweep's reads by fio on this device or file, which is never written
    #[arg(long, value_name = "PATH", conflicts_with_all = ["out", "seed", "seeds", "settings", "models", "topology", "part", "sensitivity"])]
    device: Option<PathBuf>,
}

/// Units of values: a name ends with its parameter's.
const UNITS: [&str; 6] = ["kib", "mib", "gib", "us", "ms", "s"];

/// Reads a parameter and its value, which may have a unit: that of a time or of a size.
fn setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    if let Ok(value) = value.parse() {
        return Ok((name.to_owned(), value));
    }
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = value[number.len()..].to_lowercase();
    match number.parse() {
        Ok(value) if UNITS.contains(&unit.as_str()) => Ok((format!("{name}_{unit}"), value)),
        _ => Err("give a number as the value, alone or with KiB, MiB, GiB, us, ms or s".into()),
    }
}

/// Reads a role and the model of its drives, as a setting.
fn role_model(text: &str) -> Result<(String, f64), String> {
    match text.split_once('=') {
        Some((role @ ("disk" | "flash"), drive)) => {
            Ok((format!("{role}_model"), models::number(drive)?))
        }
        _ => Err("give disk=DRIVE or flash=DRIVE".into()),
    }
}

/// Reads a topology and its number, as a setting has it.
fn topology_file(path: &str) -> Result<(String, f64), String> {
    let text = fs::read_to_string(path).map_err(|cause| cause.to_string())?;
    Ok((path.to_owned(), topology::number(&text)))
}

/// A setting as it is asked for.
fn asked((name, value): (&str, f64)) -> String {
    let role = name.strip_suffix("_model");
    match role.and_then(|role| Some((role, models::name(value)?))) {
        Some((role, drive)) => format!(" --model {role}='{drive}'"),
        None => format!(" --set {name}={value}"),
    }
}

impl RunCommand {
    fn settings(&self) -> Vec<(&str, f64)> {
        let settings = self.settings.iter().chain(&self.models);
        let settings = settings.map(|(name, value)| (name.as_str(), *value));
        let topology = self
            .topology
            .as_ref()
            .map(|(_, number)| ("topology", *number));
        // A part sets the whole size: the others are set on it.
        let part = self.part.map(|part| ("part", f64::from(part)));
        part.into_iter().chain(topology).chain(settings).collect()
    }

    /// The settings as they are kept.
    fn kept_settings(&self) -> Vec<(String, f64)> {
        let settings = self.settings().into_iter();
        settings
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

#[derive(Args)]
pub struct RunReport {
    /// A directory that `hotset-lab run --out` has filled
    directory: PathBuf,
    /// Work the costs out by the prices of this file, of the form of contrib/ownership.toml
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

/// Every experiment, in the order of their runs.
fn every() -> impl Iterator<Item = &'static Experiment> {
    [&PERC].into_iter().chain(&ALL)
}

#[derive(Args)]
pub struct ExperimentList {
    /// Print the published machine of one, as a configuration
    #[arg(long, value_name = "NAME")]
    topology: Option<String>,
}

/// Prints every experiment, or the machine of one.
pub fn list(command: &ExperimentList) -> Result<(), CommandFailure> {
    if let Some(name) = &command.topology {
        let machines = which(std::slice::from_ref(name))?;
        return command::print(machines[0].topology);
    }
    let mut table = TextTable::new(&["name", "printed in", "needs"]).text(&[1, 2]);
    for experiment in every() {
        table.row([
            experiment.name.into(),
            (experiment.figures)().source,
            experiment.needs.into(),
        ]);
    }
    command::print(table.to_string())
}

/// The experiments called `names`, each once.
fn which(names: &[String]) -> Result<Vec<&'static Experiment>, CommandFailure> {
    let asked = |experiment: &&Experiment| names.iter().any(|n| n == EVERY || n == experiment.name);
    let known: Vec<&str> = every().map(|experiment| experiment.name).collect();
    let unknown = |name: &&String| *name != EVERY && !known.contains(&name.as_str());
    match names.iter().find(unknown) {
        None => Ok(every().filter(asked).collect()),
        Some(name) => Err(CommandFailure::Usage(format!(
            "no experiment is called {name:?}; choose of {}, or all",
            known.join(", ")
        ))),
    }
}

/// Tests settings and machine for these experiments.
fn check(command: &RunCommand, chosen: &[&Experiment]) -> Result<(), CommandFailure> {
    for experiment in chosen {
        let sound = (experiment.check)(&command.settings());
        sound.map_err(|what| CommandFailure::Usage(format!("{}: {what}", experiment.name)))?;
        if let Some((path, number)) = &command.topology {
            let own = topology::kept(*number).unwrap_or_default();
            topology::check(experiment.topology, own).map_err(|what| {
                CommandFailure::Usage(format!(
                    "{path}: no machine for {name} ({what}); see `hotset-lab list --topology {name}`",
                    name = experiment.name
                ))
            })?;
        }
    }
    Ok(())
}

pub fn run(command: &RunCommand) -> Result<(), CommandFailure> {
    let chosen = which(&command.names)?;
    check(command, &chosen)?;
    if command.real.is_some() || command.device.is_some() {
        if chosen.len() != 1 || chosen[0].name != PERC.name {
            let what = "--real and --device are of perc alone: name it alone";
            return Err(CommandFailure::Usage(what.into()));
        }
        return perc::real(&Perc {
            json: command.json,
            quick: command.quick,
            real: command.real.clone(),
            device: command.device.clone(),
        });
    }
    if let Some(directory) = &command.out {
        made_directory(directory)?;
    }
    let mut asked = Vec::new();
    for experiment in chosen {
        let name = experiment.name;
        let before = match &command.out {
            Some(directory) => store::find(directory, name)?,
            None => None,
        };
        let before = match before {
            Some((path, finished)) => {
                let ran = (finished.quick, finished.seed, finished.seeds);
                let asked = (command.quick, command.seed, command.seeds);
                let is_same = ran == asked && finished.settings == command.kept_settings();
                store::is_of(&path, is_same)?;
                eprintln!("{name}: done before, in {}", path.display());
                Some(finished)
            }
            None => None,
        };
        asked.push(RunRequest {
            experiment,
            begun: OnceLock::new(),
            ended: Mutex::default(),
            finished: Mutex::new(before),
        });
    }
    let left = asked.iter().filter(|asked| asked.is_left());
    let left: Vec<&str> = left.map(|asked| asked.experiment.name).collect();
    let begun = command.out.as_ref();
    let begun = begun.map(|directory| store::begin(directory, &left));
    let begun = begun.transpose()?;
    run_asked(command, &asked)?;
    let mut all = Vec::new();
    for asked in asked {
        let ended = asked.finished.into_inner().expect("nobody panics");
        let mut finished = ended.expect("each has ended, or the run has failed");
        if command.sensitivity {
            let (experiment, settings) = (asked.experiment, command.settings());
            sensitivity::run(command.json, experiment, &settings, &mut finished)?;
            keep(command, &finished)?;
        }
        all.push(finished);
    }
    drop(begun);
    show(&all, command.json)
}

/// An experiment that was asked for.
struct RunRequest {
    experiment: &'static Experiment,
    /// Time at which the first seed began.
    begun: OnceLock<Instant>,
    /// Results of the seeds, by their place.
    ended: Mutex<BTreeMap<u64, SeedOutcome>>,
    finished: Mutex<Option<Finished>>,
}

impl RunRequest {
    /// Tests for an experiment that has not ended.
    fn is_left(&self) -> bool {
        self.finished.lock().expect("nobody panics").is_none()
    }
}

/// Runs every seed of the experiments that have not ended before, as many at a time as there are
/// processors; nothing more is begun after a failure.
fn run_asked(command: &RunCommand, asked: &[RunRequest]) -> Result<(), CommandFailure> {
    let left = asked.iter().filter(|asked| asked.is_left());
    let jobs: Vec<(&RunRequest, u64)> = left
        .flat_map(|asked| (0..command.seeds).map(move |n| (asked, n)))
        .collect();
    by_side(&jobs, |(asked, n)| run_one(command, asked, *n))
}

/// Runs one seed, and keeps the experiment's results if the seed was the last.
fn run_one(command: &RunCommand, asked: &RunRequest, n: u64) -> Result<(), CommandFailure> {
    let begun = *asked.begun.get_or_init(Instant::now);
    let progress = progress(command.json);
    let experiment = asked.experiment;
    let seed = command.seed.saturating_add(n);
    let named = |part: &str| progress(&format!("{}: {part}", experiment.name));
    let outcome = (experiment.run)(seed, command.quick, &command.settings(), &named);
    let outcome = outcome.map_err(CommandFailure::Runtime)?;
    let outcomes = {
        let mut ended = asked.ended.lock().expect("nobody panics");
        ended.insert(n, outcome);
        if ended.len() as u64 != command.seeds {
            return Ok(());
        }
        std::mem::take(&mut *ended).into_values().collect()
    };
    let finished = published(command, experiment, outcomes, begun)?;
    keep(command, &finished)?;
    eprintln!(
        "{}: {:.0} simulated seconds in {:.0} s, {:.0} a second",
        finished.experiment,
        finished.virtual_seconds,
        finished.wall_seconds,
        finished.virtual_seconds / finished.wall_seconds.max(1e-9)
    );
    *asked.finished.lock().expect("nobody panics") = Some(finished);
    Ok(())
}

/// The command that runs an experiment again.
fn again(name: &str, command: &RunCommand) -> String {
    let quick = if command.quick { " --quick" } else { "" };
    let (seed, seeds) = (command.seed, command.seeds);
    let settings = command.settings().into_iter();
    let settings: String = settings
        .filter(|(name, _)| *name != "topology")
        .map(asked)
        .collect();
    let topology = command.topology.as_ref();
    let topology = topology.map_or_else(String::new, |(path, _)| format!(" --topology '{path}'"));
    format!("hotset-lab run {name}{quick} --seed {seed} --seeds {seeds}{topology}{settings}")
}

/// Keeps the results of an experiment where that was asked for.
fn keep(command: &RunCommand, finished: &Finished) -> Result<(), CommandFailure> {
    let Some(directory) = &command.out else {
        return Ok(());
    };
    store::keep(directory, finished)?;
    store::keep_charts(directory, finished)
}

/// Joins the results of an experiment's seeds.
fn published(
    command: &RunCommand,
    experiment: &Experiment,
    mut outcomes: Vec<SeedOutcome>,
    begun: Instant,
) -> Result<Finished, CommandFailure> {
    let figures = (experiment.figures)();
    let wall_seconds = begun.elapsed().as_secs_f64();
    let rows = rows(
        experiment.name,
        &figures,
        &outcomes,
        command.quick,
        wall_seconds,
    );
    Ok(Finished {
        format: FORMAT,
        experiment: experiment.name.into(),
        title: experiment.title.into(),
        source: figures.source,
        quick: command.quick,
        seed: command.seed,
        seeds: command.seeds,
        settings: command.kept_settings(),
        command: again(experiment.name, command),
        commit: commit(),
        virtual_seconds: outcomes.iter().map(|outcome| outcome.virtual_s).sum(),
        wall_seconds,
        rows: rows.map_err(CommandFailure::Runtime)?,
        fitted: figures.fitted,
        assumed: figures.assumed,
        contradictions: figures.contradictions,
        curves: std::mem::take(&mut outcomes[0].curves),
        charts: std::mem::take(&mut outcomes[0].charts),
        tables: std::mem::take(&mut outcomes[0].tables),
    })
}

/// Reads prices.
fn read_prices(path: &Path) -> Result<PriceList, CommandFailure> {
    let refused = |what: String| {
        let path = path.display();
        CommandFailure::Usage(format!(
            "{path}: not prices ({what}). See contrib/ownership.toml."
        ))
    };
    let text = fs::read_to_string(path).map_err(|cause| refused(cause.to_string()))?;
    PriceList::parse(&text).map_err(refused)
}

/// Writes the report of the results in a directory into the directory.
pub fn write_report(command: &RunReport) -> Result<(), CommandFailure> {
    let directory: &Path = &command.directory;
    let prices = match &command.prices {
        None => PriceList::shipped(),
        Some(path) => read_prices(path)?,
    };
    store::ended(directory)?;
    let mut finished = Vec::new();
    for name in every().map(|e| e.name) {
        finished.extend(store::find(directory, name)?.map(|(_, finished)| finished));
    }
    if finished.is_empty() {
        return Err(CommandFailure::Usage(format!(
            "no experiment has ended in {}; fill it with `hotset-lab run all --out`",
            directory.display()
        )));
    }
    let missing = every().map(|e| e.name);
    let missing = missing.filter(|name| finished.iter().all(|f| f.experiment != *name));
    let missing: Vec<&str> = missing.collect();
    let tried = ALL.iter().map(|e| store::all_tried(directory, e.name));
    let tried: Vec<Vec<_>> = tried.collect::<Result<_, _>>()?;
    let tried = tried.concat();
    let ablated = ALL.iter().map(|e| store::find_ablated(directory, e.name));
    let ablated: Vec<_> = ablated.collect::<Result<_, _>>()?;
    let ablated: Vec<_> = ablated.into_iter().flatten().map(|(_, a)| a).collect();
    let page = report::page(&finished, &tried, &ablated, &missing, &prices)
        .map_err(CommandFailure::runtime)?;
    let path = directory.join("report.html");
    store::replace(&path, page.as_bytes())?;
    print_line(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_have_a_unit_which_ends_the_name() {
        let read = |text: &str| setting(text).map(|(name, value)| format!("{name} {value}"));
        assert_eq!(read("users=800").unwrap(), "users 800");
        assert_eq!(read("files=1e6").unwrap(), "files 1000000");
        assert_eq!(read("memory=16GiB").unwrap(), "memory_gib 16");
        assert_eq!(read("think=0.5s").unwrap(), "think_s 0.5");
        assert_eq!(
            role_model("disk=floppy")
                .unwrap_err()
                .matches("SAS15K")
                .count(),
            1
        );
        assert!(role_model("tape=SAS15K").is_err());
        let (name, value) = role_model("disk=SAS15K").unwrap();
        assert_eq!(asked((&name, value)), " --model disk='SAS15K'");
        assert_eq!(asked(("users", 3.0)), " --set users=3");
        for wrong in ["users", "users=", "users=many", "memory=16parsec"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
