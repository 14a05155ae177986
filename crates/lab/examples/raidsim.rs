//! Runs the simulation campaign of the arrays; exits with 1 on a violation, with
//! 3 if many runs left a class unmet.
//!
//! `raidsim --seeds N --start S --json`

use lab::mutants::VIOLATION;
use lab::raidsim::{Totals, replay, run};
use std::process::ExitCode;

/// From here on a campaign is expected to meet every class.
const SEEDS_FOR_ALL_CLASSES: u64 = 1000;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = arguments.len();
    arguments.retain(|argument| argument != "--json");
    let json = arguments.len() < all;
    let Some([seeds, start]) = parse(&arguments) else {
        eprintln!("usage: raidsim [--seeds N] [--start S] [--json]");
        return ExitCode::from(2);
    };
    let mut totals = Totals::default();
    for seed in start..start + seeds {
        let report = run(seed);
        if let Some(what) = report.violation.as_ref().filter(|_| !json) {
            println!("seed {seed} ({}): {what}", report.level.name());
            println!("    replay: {}", replay(seed));
        }
        totals.add(seed, report);
    }
    match json {
        true => println!(
            "{}",
            serde_json::to_string_pretty(&totals.summary()).expect("plain data")
        ),
        false => print!("{totals}"),
    }
    if !totals.violations().is_empty() {
        return ExitCode::from(VIOLATION as u8);
    }
    let missed = totals.missed();
    if seeds >= SEEDS_FOR_ALL_CLASSES && !missed.is_empty() {
        eprintln!("never met: {missed:?}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn parse(arguments: &[String]) -> Option<[u64; 2]> {
    let mut values = [1000, 0];
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return None };
        let at = ["--seeds", "--start"].iter().position(|n| n == name)?;
        values[at] = value.parse().ok()?;
    }
    Some(values)
}
