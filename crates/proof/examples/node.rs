//! Runs the campaign of nodes: `node CASES SEED [--first]`. With `--first` it ends at the
//! first violation with status 1, which is what mutations are tried with.

use proof::mutants::VIOLATION;
use proof::nodesim::{Request, command, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (numbers, first) = match &arguments[..] {
        [numbers @ .., first] if first == "--first" => (numbers, true),
        all => (all, false),
    };
    let numbers: Option<Vec<u64>> = numbers.iter().map(|n| n.parse().ok()).collect();
    let Some([cases, seed]) = numbers.as_deref() else {
        eprintln!("usage: node CASES SEED [--first]");
        return ExitCode::from(2);
    };
    if first {
        for seed in *seed..seed + cases {
            if let Some(what) = run(seed).violation {
                println!("seed {seed}: {what}");
                return ExitCode::from(VIOLATION as u8);
            }
        }
        return ExitCode::SUCCESS;
    }
    let request = Request {
        cases: *cases,
        seed: *seed,
        json: false,
    };
    match command(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}
