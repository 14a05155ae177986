//! A campaign of write-back that ends at the first violation with status 1; mutations are tried so.
//! With `--all` the campaign runs every case, and prints the situations met.
//!
//! `writeback --seeds N --start S --journaled --coalesced --all`

use proof::arguments::Arguments;
use proof::mutants::VIOLATION;
use proof::writeback::{WriteBackCase, WriteBackTotals, run};
use std::process::ExitCode;
use std::time::Instant;
use writelog::Cleaning;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["all", "journaled", "coalesced"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let all = asked.has("all");
    let named = |cleaning: &Cleaning| asked.has(cleaning.name());
    let other = [Cleaning::Journaled, Cleaning::Coalesced];
    let cleaning = other.into_iter().find(named).unwrap_or(Cleaning::Ordered);
    let begin = Instant::now();
    let mut totals = WriteBackTotals::default();
    for seed in asked.range() {
        let report = run(&WriteBackCase::new(seed, cleaning));
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
            totals.summary(begin.elapsed().as_secs_f64(), cleaning)
        );
    }
    match totals.violations.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(VIOLATION as u8),
    }
}
