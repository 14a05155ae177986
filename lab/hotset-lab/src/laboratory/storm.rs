//! `hotset-lab storm`.

use crate::CommandFailure;
use crate::program::hotset;
use clap::{Args, value_parser};
use command::print_line;
use proof::mutants::{Fate, WorkspaceCopy, read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use storm::{StormCanary, StormReport, StormRequest};

/// Lives that have to find a mutation.
const LIVES_PER_MUTATION: u64 = 500;

#[derive(Args)]
pub struct Storm {
    /// The first storm's seed; the next storms have the following numbers
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Begin no storm after this time; one takes a minute or so
    #[arg(long, value_name = "M", default_value_t = 1.0, value_parser = minutes)]
    minutes: f64,
    /// Number of storms at most
    #[arg(long, value_name = "N", default_value_t = u64::MAX)]
    storms: u64,
    /// Number of storms at a time
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = value_parser!(u64).range(1..=64))]
    threads: u64,
    /// Directory of files, 500 MB for each storm at a time; made if missing
    #[arg(long, value_name = "DIRECTORY", default_value = "var/storm")]
    directory: PathBuf,
    /// Put each fault of this set into a copy of the tree in the current directory, and storm the
    /// program built from the copy for at most 500 lives
    #[arg(long, value_name = "FILE", conflicts_with_all = ["minutes", "storms", "json"])]
    mutations: Option<PathBuf>,
    /// Inject a fault that must be found
    #[arg(long, hide = true, value_parser = canary)]
    canary: Option<StormCanary>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => Ok(minutes),
        _ => Err("give a number of minutes".into()),
    }
}

fn canary(text: &str) -> Result<StormCanary, String> {
    let mut all = StormCanary::ALL.iter();
    let found = all.find(|(name, _)| *name == text);
    found.map(|(_, canary)| *canary).ok_or_else(|| {
        let names = StormCanary::ALL.map(|(name, _)| name);
        format!("give one of: {}", names.join(", "))
    })
}

impl Storm {
    fn request(&self, program: PathBuf) -> StormRequest {
        StormRequest {
            seed: self.seed,
            time: Duration::from_secs_f64(self.minutes * 60.0),
            storms: self.storms,
            lives: u64::MAX,
            threads: self.threads,
            folder: self.directory.clone(),
            program,
            canary: self.canary,
        }
    }
}

pub fn run(command: &Storm) -> Result<(), CommandFailure> {
    if let Some(set) = &command.mutations {
        return mutate(command, set);
    }
    let request = command.request(hotset()?);
    let done = |seed: u64, about: &str| eprintln!("storm {seed}: {about}");
    let report = storm::run(&request, &done).map_err(CommandFailure::Runtime)?;
    if command.json {
        let text = serde_json::to_string_pretty(&report).map_err(CommandFailure::runtime)?;
        print_line(text)?;
    } else {
        show(&report)?;
    }
    match report.violations.first() {
        None => Ok(()),
        Some(first) => Err(CommandFailure::Runtime(format!(
            "{}; again with `{}`",
            first.what, first.replay
        ))),
    }
}

/// Has every fault of a set found.
fn mutate(command: &Storm, set: &Path) -> Result<(), CommandFailure> {
    let mutations = read(set).map_err(CommandFailure::Runtime)?;
    let copy = WorkspaceCopy::new(Path::new("."), Path::new("target/mutants"))
        .map_err(CommandFailure::Runtime)?;
    let storm = |program: &Path| {
        let request = StormRequest {
            time: Duration::MAX,
            lives: LIVES_PER_MUTATION,
            ..command.request(program.to_owned())
        };
        let report = storm::run(&request, &|_, _| {})?;
        let first = report.violations.into_iter().next();
        Ok(first.map(|first| format!("seed {}, life {}: {}", first.seed, first.life, first.what)))
    };
    let fates = copy.try_programs(&mutations, "hotset", &storm, |mutation, fate, seen| {
        // A closed pipe ends no set: its result is the exit status.
        let seen = seen.map_or_else(String::new, |seen| format!("\n    {seen}"));
        let _ = print_line(format!("{fate:?}: {}{seen}", mutation.name));
    });
    let fates = fates.map_err(CommandFailure::Runtime)?;
    match fates.iter().filter(|fate| **fate != Fate::Caught).count() {
        0 => Ok(()),
        n => Err(CommandFailure::Runtime(format!(
            "{n} mutations were not caught"
        ))),
    }
}

fn show(report: &StormReport) -> Result<(), CommandFailure> {
    print_line(format!(
        "{} storms, {} lives, {} requests, the longest {:.1} s; reports within {:.2} s; load up to {:.1}",
        report.storms,
        report.lives,
        report.requests,
        report.longest_request_s,
        report.longest_status_s,
        report.load_max
    ))?;
    for (what, times) in &report.met {
        print_line(format!("{times:>8}  {what}"))?;
    }
    print_line(format!("the rarest class: {}", report.rarest))?;
    print_line(format!("classes that were not met: {}", report.never.len()))?;
    for violation in &report.violations {
        print_line(format!("life {}: {}", violation.life, violation.what))?;
        for what in &violation.before {
            print_line(format!("    {what}"))?;
        }
    }
    Ok(())
}
