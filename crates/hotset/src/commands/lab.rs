//! `hotset lab`.

mod ablate;
mod choices;
mod origin;
mod perc;
mod run;
mod side;
mod store;

use crate::Failure;
use crate::cli::{Campaign, Lab};
use cache::log::Cleaning;
use proof::campaign;
use proof::crash::{self, Request};
use proof::{kill, nodesim, portsim, stack, writeback};
use std::path::Path;

pub use ablate::Ablate;
pub use choices::Choices;
pub use run::{Report, Run};

pub fn run(command: Lab) -> Result<(), Failure> {
    match command {
        Lab::Crash {
            cases,
            seed,
            threads,
            boundaries,
            mutations,
            mode,
            json,
        } => {
            if let Some(cleaning) = mode.as_deref().and_then(Cleaning::from_name) {
                let request = campaign::Request {
                    cases,
                    seed,
                    threads,
                    json,
                };
                return writeback::command(&request, cleaning).map_err(Failure::Runtime);
            }
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
            kills,
            seed,
            directory,
        } => {
            let program = std::env::current_exe().map_err(Failure::runtime)?;
            match kills {
                Some(rounds) => kill_stack(stack::KillRequest {
                    rounds,
                    seed,
                    directory,
                    program,
                }),
                None => cut_stack(stack::Request {
                    transactions,
                    between,
                    cuts_max: cuts,
                    seed,
                    directory,
                    program,
                }),
            }
        }
        Lab::Node(campaign) => nodesim::command(&request(&campaign)).map_err(Failure::Runtime),
        Lab::Port(campaign) => portsim::command(&request(&campaign)).map_err(Failure::Runtime),
        Lab::Flips { flips, seed } => flip(flips, seed),
        Lab::Kill {
            rounds,
            seed,
            directory,
        } => kill(rounds, seed, &directory),
        Lab::List => run::list(),
        Lab::Run(command) => run::run(&command),
        Lab::Choices(command) => choices::run(&command),
        Lab::Ablate(command) => ablate::run(&command),
        Lab::Report(command) => run::write_report(&command),
    }
}

fn request(asked: &Campaign) -> campaign::Request {
    campaign::Request {
        cases: asked.cases,
        seed: asked.seed,
        threads: asked.threads,
        json: asked.json,
    }
}

fn flip(flips: u64, seed: u64) -> Result<(), Failure> {
    let flips = crash::flips(seed..seed + flips);
    print(&flips, flips.violations.len(), "flips did harm")?;
    match flips.missed() {
        missed if missed.is_empty() => Ok(()),
        missed => Err(Failure::Runtime(format!(
            "no bit was flipped in {missed:?}"
        ))),
    }
}

fn cut_stack(request: stack::Request) -> Result<(), Failure> {
    let stack = stack::run(&request).map_err(Failure::Runtime)?;
    print(&stack, stack.violations.len(), "images did not recover")
}

fn kill_stack(request: stack::KillRequest) -> Result<(), Failure> {
    let kills = stack::kills(&request).map_err(Failure::Runtime)?;
    print(&kills, kills.violations.len(), "kills lost something")
}

/// Prints a report; an error if something was wrong.
fn print(report: &impl serde::Serialize, wrong: usize, what: &str) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).expect("plain data");
    println!("{text}");
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::Runtime(format!("{wrong} {what}"))),
    }
}

fn kill(rounds: u64, seed: u64, directory: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::runtime)?;
    std::fs::create_dir_all(directory).map_err(Failure::runtime)?;
    let directory = directory.canonicalize().map_err(Failure::runtime)?;
    let kills = kill::rounds(rounds, seed, &directory, &program).map_err(Failure::Runtime)?;
    print(&kills, kills.violations.len(), "answers were wrong")
}
