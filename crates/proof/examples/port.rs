//! Runs the campaign of ports; exits with 1 on a violation.
//!
//! `port --seeds N --start S`

use proof::mutants::VIOLATION;
use proof::portsim::run;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut seeds, mut start) = (1000, 0);
    for pair in arguments.chunks(2) {
        match pair {
            [name, value] if name == "--seeds" => seeds = value.parse().expect("a number"),
            [name, value] if name == "--start" => start = value.parse().expect("a number"),
            _ => {
                eprintln!("usage: port [--seeds N] [--start S]");
                return ExitCode::from(2);
            }
        }
    }
    let mut failed = false;
    for seed in start..start + seeds {
        if let Some(what) = run(seed).violation {
            println!("seed {seed}: {what}");
            failed = true;
        }
    }
    if failed {
        return ExitCode::from(VIOLATION as u8);
    }
    ExitCode::SUCCESS
}
