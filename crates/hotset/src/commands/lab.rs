//! `hotset lab`.

use crate::Failure;
use crate::cli::Lab;
use lab::crash::{self, Request};
use lab::{kill, stack};
use std::path::Path;

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
    }
}

fn flip(flips: u64, seed: u64) -> Result<(), Failure> {
    let flips = crash::flips(seed..seed + flips);
    println!(
        "{}",
        serde_json::to_string_pretty(&flips).expect("plain data")
    );
    match flips.violations.len() {
        0 => Ok(()),
        wrong => Err(Failure::Runtime(format!("{wrong} flips did harm"))),
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
