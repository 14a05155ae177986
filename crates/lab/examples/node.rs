//! Runs the campaign of nodes: `node CASES SEED`.

use lab::nodesim::{Request, command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let numbers: Option<Vec<u64>> = std::env::args().skip(1).map(|n| n.parse().ok()).collect();
    let Some([cases, seed]) = numbers.as_deref() else {
        eprintln!("usage: node CASES SEED");
        return ExitCode::from(2);
    };
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
