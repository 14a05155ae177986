//! `hotset lab choices`.

use super::origin::commit;
use super::run::{EVERY, progress};
use super::side::by_side;
use super::store;
use crate::Failure;
use crate::commands::table::Table;
use clap::Args;
use experiment::choices::{ALL as CHOICES, Came};
use experiment::registry::{ALL, Choose, Experiment, named};
use lab::choices::{ADVICE_HEAD, About, HEAD, Tried, advice_cells, cells};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

#[derive(Args)]
pub struct Choices {
    /// Which: experiments with a cache, or `all` of them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
    /// Keep what each comes to in this directory, made if missing; what is there is not run again
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// Run a small part, in seconds: too little to judge by
    #[arg(long)]
    quick: bool,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
}

/// An experiment that was asked for.
struct Asked {
    experiment: &'static Experiment,
    choose: Choose,
    begun: OnceLock<Instant>,
    /// By the places of the choice and of the seed.
    came: Mutex<BTreeMap<(usize, u64), Came>>,
    tried: Mutex<Option<Tried>>,
}

fn which(names: &[String]) -> Result<Vec<(&'static Experiment, Choose)>, Failure> {
    let with_cache = || ALL.iter().filter_map(|e| Some((e, e.choose?)));
    for name in names.iter().filter(|name| *name != EVERY) {
        if with_cache().all(|(experiment, _)| experiment.name != *name) {
            let known: Vec<&str> = with_cache().map(|(e, _)| e.name).collect();
            let what = match named(name) {
                Some(_) => format!("{name} has no cache to choose for"),
                None => format!("no experiment is called {name:?}"),
            };
            return Err(Failure::Usage(format!(
                "{what}; choose of {}, or all",
                known.join(", ")
            )));
        }
    }
    let asked = |name: &str| names.iter().any(|n| n == EVERY || n == name);
    Ok(with_cache().filter(|(e, _)| asked(e.name)).collect())
}

pub fn run(command: &Choices) -> Result<(), Failure> {
    let chosen = which(&command.names)?;
    if let Some(directory) = &command.out {
        store::prepare(directory)?;
    }
    let mut asked = Vec::new();
    for (experiment, choose) in chosen {
        let before = match &command.out {
            Some(directory) => store::find_tried(directory, experiment.name)?,
            None => None,
        };
        let before = match before {
            Some((path, tried)) => {
                let same = (tried.quick, tried.seed, tried.seeds)
                    == (command.quick, command.seed, command.seeds);
                if !same {
                    return Err(Failure::Usage(format!(
                        "{} is of other seeds or another form; remove it, or choose another directory",
                        path.display()
                    )));
                }
                eprintln!("{}: done before, in {}", experiment.name, path.display());
                Some(tried)
            }
            None => None,
        };
        asked.push(Asked {
            experiment,
            choose,
            begun: OnceLock::new(),
            came: Mutex::default(),
            tried: Mutex::new(before),
        });
    }
    let left = asked.iter();
    let left = left.filter(|asked| asked.tried.lock().expect("nobody panics").is_none());
    let jobs: Vec<(&Asked, usize, u64)> = left
        .flat_map(|asked| {
            let choices = 0..CHOICES.len();
            choices.flat_map(move |choice| (0..command.seeds).map(move |n| (asked, choice, n)))
        })
        .collect();
    by_side(&jobs, |(asked, choice, n)| {
        run_one(command, asked, *choice, *n)
    })?;
    let ended = |asked: Asked| asked.tried.into_inner().expect("nobody panics");
    let all: Vec<Tried> = asked.into_iter().filter_map(ended).collect();
    if command.json {
        let text = serde_json::to_string_pretty(&all).map_err(Failure::runtime)?;
        println!("{text}");
    } else {
        all.iter().for_each(show);
    }
    Ok(())
}

/// Runs a choice with one seed, and keeps what the experiment came to if it was the last.
fn run_one(command: &Choices, asked: &Asked, choice: usize, n: u64) -> Result<(), Failure> {
    let begun = *asked.begun.get_or_init(Instant::now);
    let (name, seed) = (asked.experiment.name, command.seed.saturating_add(n));
    let came = (asked.choose)(seed, command.quick, CHOICES[choice]);
    let came =
        came.map_err(|what| Failure::Runtime(format!("{name}, {}: {what}", CHOICES[choice].name)))?;
    progress(command.json)(&format!("{name}: {}, seed {seed}", CHOICES[choice].name));
    let all = {
        let mut all = asked.came.lock().expect("nobody panics");
        all.insert((choice, n), came);
        if all.len() as u64 != CHOICES.len() as u64 * command.seeds {
            return Ok(());
        }
        std::mem::take(&mut *all)
    };
    let mut by_choice = vec![Vec::new(); CHOICES.len()];
    for ((choice, _), came) in all {
        by_choice[choice].push(came);
    }
    let quick = if command.quick { " --quick" } else { "" };
    let about = About {
        experiment: name.into(),
        quick: command.quick,
        seed: command.seed,
        command: format!(
            "hotset lab choices {name}{quick} --seed {} --seeds {}",
            command.seed, command.seeds
        ),
        commit: commit(),
        wall_seconds: begun.elapsed().as_secs_f64(),
    };
    let tried = Tried::new(about, &by_choice);
    if let Some(directory) = &command.out {
        store::keep_tried(directory, &tried)?;
    }
    *asked.tried.lock().expect("nobody panics") = Some(tried);
    Ok(())
}

fn show(tried: &Tried) {
    let mut table = Table::new(&HEAD).text(&[6]);
    tried.rows.iter().for_each(|row| table.row(cells(row)));
    println!("{}\n{table}", tried.experiment);
    println!(
        "the default is {:.1} % behind the best fixed choice, {}; within 5 %: {}",
        tried.behind_percent,
        tried.best,
        if tried.met { "yes" } else { "NO" }
    );
    let mut table = Table::new(&ADVICE_HEAD);
    let advised = tried.advised.iter();
    advised.for_each(|row| table.row(advice_cells(row)));
    println!("{table}");
    if tried.quick {
        println!("the quick form: too few requests to judge by\n");
    }
}
