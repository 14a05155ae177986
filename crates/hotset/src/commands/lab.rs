//! `hotset lab`.

use crate::Failure;
use crate::cli::Lab;
use lab::crash::{self, Request};
use lab::kill;
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
        Lab::Kill {
            rounds,
            seed,
            directory,
        } => kill(rounds, seed, &directory),
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
