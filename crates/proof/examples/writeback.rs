//! A campaign of write-back that ends at the first violation with status 1: what mutations
//! are tried with. With `--all` it runs every case, and prints what they met.
//!
//! `writeback CASES [--start S] [--all]`

use proof::mutants::VIOLATION;
use proof::writeback::{Case, Totals, run};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((cases, start, all)) = parse(&arguments) else {
        eprintln!("usage: writeback CASES [--start S] [--all]");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let mut totals = Totals::default();
    for seed in start..start + cases {
        let report = run(&Case::new(seed));
        if let Some(what) = &report.violation {
            println!("seed {seed}: {what}");
            if !all {
                return ExitCode::from(VIOLATION as u8);
            }
        }
        totals.add(seed, report);
    }
    if all {
        println!("{:#?}", totals.summary(begin.elapsed().as_secs_f64()));
    }
    match totals.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(VIOLATION as u8),
    }
}

fn parse(arguments: &[String]) -> Option<(u64, u64, bool)> {
    let (cases, mut rest) = arguments.split_first()?;
    let (mut start, mut all) = (0, false);
    while let Some((name, more)) = rest.split_first() {
        rest = more;
        match name.as_str() {
            "--all" => all = true,
            "--start" => {
                let (value, more) = rest.split_first()?;
                (start, rest) = (value.parse().ok()?, more);
            }
            _ => return None,
        }
    }
    Some((cases.parse().ok()?, start, all))
}
