//! Runs the campaign of ports; exits with 1 on a violation. With `--first` the campaign ends at the
//! first violation; mutations are tried so, since a client with a lost request waits for long.
//!
//! `port --seeds N --start S --first`

use proof::arguments::Arguments;
use proof::mutants::VIOLATION;
use proof::portsim::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["first"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let mut failed = false;
    for seed in asked.range() {
        if let Some(what) = run(seed).violation {
            println!("seed {seed}: {what}");
            failed = true;
            if asked.has("first") {
                break;
            }
        }
    }
    match failed {
        false => ExitCode::SUCCESS,
        true => ExitCode::from(VIOLATION as u8),
    }
}
