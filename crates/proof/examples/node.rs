//! Runs the campaign of nodes; exits with 1 on a violation. With `--first` it ends at the
//! first one, which is what mutations are tried with.
//!
//! `node --seeds N --start S --threads T --first --json`

use proof::arguments::Arguments;
use proof::mutants::VIOLATION;
use proof::nodesim::{Request, command, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["threads=", "first", "json"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    if asked.has("first") {
        for seed in asked.range() {
            if let Some(what) = run(seed).violation {
                println!("seed {seed}: {what}");
                return ExitCode::from(VIOLATION as u8);
            }
        }
        return ExitCode::SUCCESS;
    }
    let request = Request {
        cases: asked.seeds,
        seed: asked.start,
        threads: asked.threads(),
        json: asked.has("json"),
    };
    match command(&request) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(VIOLATION as u8)
        }
    }
}
