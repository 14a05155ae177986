//! `hotset lab choices`.

use super::origin::commit;
use super::run::{EVERY, progress};
use super::side::each;
use super::store;
use crate::Failure;
use crate::commands::table::Table;
use clap::Args;
use experiment::choices::ALL as CHOICES;
use experiment::registry::{ALL, Choose, Experiment, named};
use lab::about::About;
use lab::choices::{ADVICE_HEAD, HEAD, Tried, advice_cells, cells, on_flash};
use std::path::PathBuf;
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
    /// All sizes of flash are so many percent of the experiment's: less than the content needs is
    /// where policies differ
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(store::FLASH_PERCENT))]
    flash: u64,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
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
    let mut all = Vec::new();
    for (experiment, choose) in chosen {
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
            None => try_all(command, experiment.name, choose)?,
        };
        all.push(tried);
    }
    if command.json {
        let text = serde_json::to_string_pretty(&all).map_err(Failure::runtime)?;
        println!("{text}");
    } else {
        all.iter().for_each(show);
    }
    Ok(())
}

/// Runs every choice with every seed, and keeps what they came to.
fn try_all(command: &Choices, name: &str, choose: Choose) -> Result<Tried, Failure> {
    let begun = Instant::now();
    let progress = progress(command.json);
    let came = each(CHOICES.len(), command.seeds, |choice, n| {
        let (seed, choice) = (command.seed.saturating_add(n), CHOICES[choice]);
        let came = choose(seed, command.quick, command.flash, choice);
        progress(&format!("{name}: {}, seed {seed}", choice.name));
        came.map_err(|what| Failure::Runtime(format!("{name}, {}: {what}", choice.name)))
    })?;
    let quick = if command.quick { " --quick" } else { "" };
    let flash = match command.flash {
        100 => String::new(),
        percent => format!(" --flash {percent}"),
    };
    let about = About {
        experiment: name.into(),
        quick: command.quick,
        seed: command.seed,
        command: format!(
            "hotset lab choices {name}{quick}{flash} --seed {} --seeds {}",
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

fn show(tried: &Tried) {
    let mut table = Table::new(&HEAD).text(&[3]);
    tried.rows.iter().for_each(|row| table.row(cells(row)));
    println!("{}{}\n{table}", tried.experiment, on_flash(tried));
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
