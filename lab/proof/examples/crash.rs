//! A campaign of the crash laboratory, of cases and then of flips, that ends at the first violation
//! with status 1; mutations are tried so. With `--all` the campaign runs every case, and no flips,
//! and prints the situations met. A single case that fails is printed made smaller.
//!
//! `crash --seeds N --start S --all`

use proof::arguments::Arguments;
use proof::crash::{CrashCase, CrashTotals, Length, flips, replay, run, shrink};
use proof::mutants::VIOLATION;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["all"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let all = asked.has("all");
    let begin = Instant::now();
    let mut totals = CrashTotals::default();
    for seed in asked.range() {
        let report = run(&CrashCase::new(seed, Length::Long)).report;
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
        if asked.seeds == 1 {
            let (case, how) = shrink(&CrashCase::new(seed, Length::Long));
            println!("made smaller: {case:#?}\n{how}");
        }
        return ExitCode::from(VIOLATION as u8);
    }
    if let Some((seed, what)) = flips(0..asked.seeds).violations.first() {
        println!("flip {seed}: {what}");
        return ExitCode::from(VIOLATION as u8);
    }
    ExitCode::SUCCESS
}
