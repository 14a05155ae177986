//! Runs the simulation campaign of the cache engine; exits with 1 on a violation, with 3 if many
//! runs left a class unmet. With `--first` the campaign ends at the first violation; mutations are
//! tried so.
//!
//! `cachesim --seeds N --start S --threads T --first`

use proof::arguments::Arguments;
use proof::cachesim::{CacheSimTotals, replay, run};
use proof::campaign::{is_violated, over};
use proof::mutants::VIOLATION;
use std::process::ExitCode;

/// Number of seeds from which on a campaign is expected to meet every class.
const SEEDS_FOR_ALL_CLASSES: u64 = 300;

fn main() -> ExitCode {
    let asked = match Arguments::get(300, &["threads=", "first"]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    if asked.has("first") {
        return match is_violated(asked.range(), |seed| run(seed).violation) {
            true => ExitCode::from(VIOLATION as u8),
            false => ExitCode::SUCCESS,
        };
    }
    let case = |seed| {
        let report = run(seed);
        if let Some(what) = &report.violation {
            println!("seed {seed}: {what}");
            println!("    replay: {}", replay(seed));
        }
        report
    };
    let totals = over(asked.range(), asked.threads(), case, CacheSimTotals::add);
    print!("{totals}");
    if !totals.violations().is_empty() {
        return ExitCode::from(VIOLATION as u8);
    }
    let missed = totals.missed();
    if asked.seeds >= SEEDS_FOR_ALL_CLASSES && !missed.is_empty() {
        println!("never met: {missed:?}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}
