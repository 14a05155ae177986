//! A campaign of the crash laboratory, of cases and then of flips, that ends at the
//! first violation with status 1: what mutations are tried with.
//!
//! `crash CASES`

use lab::crash::{Case, Length, flips, run};
use lab::mutants::VIOLATION;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(cases) = std::env::args().nth(1).and_then(|n| n.parse().ok()) else {
        eprintln!("usage: crash CASES");
        return ExitCode::from(2);
    };
    for seed in 0..cases {
        if let Some(what) = run(&Case::new(seed, Length::Long)).report.violation {
            println!("seed {seed}: {what}");
            return ExitCode::from(VIOLATION as u8);
        }
    }
    if let Some((seed, what)) = flips(0..cases).violations.first() {
        println!("flip {seed}: {what}");
        return ExitCode::from(VIOLATION as u8);
    }
    ExitCode::SUCCESS
}
