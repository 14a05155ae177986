//! A campaign of the crash laboratory, of cases and then of flips, that ends at the
//! first violation with status 1: what mutations are tried with. With `--all` it runs
//! every case, and no flips, and prints what they met; one that fails alone, made smaller.
//!
//! `crash CASES [--start S] [--all]`

use proof::crash::{Case, Length, Totals, flips, replay, run, shrink};
use proof::mutants::VIOLATION;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((cases, start, all)) = parse(&arguments) else {
        eprintln!("usage: crash CASES [--start S] [--all]");
        return ExitCode::from(2);
    };
    let begin = Instant::now();
    let mut totals = Totals::default();
    for seed in start..start + cases {
        let report = run(&Case::new(seed, Length::Long)).report;
        if let Some(what) = &report.violation {
            println!("seed {seed}: {what}");
            if !all {
                return ExitCode::from(VIOLATION as u8);
            }
        }
        totals.add(seed, report);
    }
    if all {
        println!(
            "{:#?}",
            totals.summary(begin.elapsed().as_secs_f64(), replay)
        );
        let [(seed, _), ..] = totals.violations[..] else {
            return ExitCode::SUCCESS;
        };
        if cases == 1 {
            let (case, how) = shrink(&Case::new(seed, Length::Long));
            println!("made smaller: {case:#?}\n{how}");
        }
        return ExitCode::from(VIOLATION as u8);
    }
    if let Some((seed, what)) = flips(0..cases).violations.first() {
        println!("flip {seed}: {what}");
        return ExitCode::from(VIOLATION as u8);
    }
    ExitCode::SUCCESS
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
