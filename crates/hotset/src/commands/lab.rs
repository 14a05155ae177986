//! `hotset lab`.

mod perc;

use crate::Failure;
use crate::cli::Lab;
use clap::Subcommand;
use lab::crash::{self, Request};
use lab::{kill, stack};
use std::path::Path;

/// What `hotset lab run` knows.
#[derive(Subcommand)]
pub enum Experiment {
    /// Two mirrored controllers of seven drives against one, and the loss of a drive
    ///
    /// In virtual time, with the models of drives and controllers. Prints what was
    /// published beside what came out; a figure that is out of tolerance is printed as
    /// such, and is no failure.
    Perc(perc::Perc),
}

pub fn run(command: Lab) -> Result<(), Failure> {
    match command {
        Lab::Crash {
            cases,
            seed,
            threads,
            boundaries,
            mutations,
            json,
        } => {
            let request = Request {
                cases,
                seed,
                threads,
                boundaries,
                mutations,
                json,
            };
            crash::command(&request).map_err(Failure::Runtime)
        }
        Lab::Stack {
            transactions,
            between,
            cuts,
            seed,
            directory,
        } => stack(stack::Request {
            transactions,
            between,
            cuts_max: cuts,
            seed,
            directory,
            program: std::env::current_exe().map_err(Failure::runtime)?,
        }),
        Lab::Flips { flips, seed } => flip(flips, seed),
        Lab::Kill {
            rounds,
            seed,
            directory,
        } => kill(rounds, seed, &directory),
        Lab::Run(Experiment::Perc(command)) => perc::run(&command),
    }
}

fn flip(flips: u64, seed: u64) -> Result<(), Failure> {
    let flips = crash::flips(seed..seed + flips);
    println!(
        "{}",
        serde_json::to_string_pretty(&flips).expect("plain data")
    );
    let (wrong, missed) = (flips.violations.len(), flips.missed());
    match (wrong, missed.is_empty()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure::Runtime(format!(
            "no bit was flipped in {missed:?}"
        ))),
        _ => Err(Failure::Runtime(format!("{wrong} flips did harm"))),
    }
}

fn stack(request: stack::Request) -> Result<(), Failure> {
    let stack = stack::run(&request).map_err(Failure::Runtime)?;
    println!(
        "{}",
        serde_json::to_string_pretty(&stack).expect("plain data")
    );
    match stack.violations.len() {
        0 => Ok(()),
        wrong => Err(Failure::Runtime(format!("{wrong} images did not recover"))),
    }
}

fn kill(rounds: u64, seed: u64, directory: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::runtime)?;
    std::fs::create_dir_all(directory).map_err(Failure::runtime)?;
    let directory = directory.canonicalize().map_err(Failure::runtime)?;
    let kills = kill::rounds(rounds, seed, &directory, &program).map_err(Failure::Runtime)?;
    let report = serde_json::to_string_pretty(&kills).expect("plain data");
    println!("{report}");
    if kills.violations.is_empty() {
        Ok(())
    } else {
        let wrong = kills.violations.len();
        Err(Failure::Runtime(format!("{wrong} answers were wrong")))
    }
}
