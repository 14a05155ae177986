//! Runs the simulation campaign of the arrays; exits with 1 on a violation, with
//! 3 if many runs left a class unmet.
//!
//! `raidsim --seeds N --start S --json --plain --only TROUBLE --first`: `--plain` runs no
//! trouble but losses, refusals and unreadable data, `--only` the seeds with this trouble
//! alone, and `--first` ends at the first violation.

use proof::arguments::Arguments;
use proof::mutants::VIOLATION;
use proof::raidsim::{ArrayScenario, ArraySimTotals, replay, run_scenario};
use std::process::ExitCode;

/// Number of seeds from which on a campaign is expected to meet every class.
const SEEDS_FOR_ALL_CLASSES: u64 = 5000;

fn main() -> ExitCode {
    let asked = match Arguments::get(1000, &["json", "plain", "first", "only="]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let (json, plain, only) = (asked.has("json"), asked.has("plain"), asked.value("only"));
    let mut totals = ArraySimTotals::default();
    for seed in asked.range() {
        let scenario = match plain {
            true => ArrayScenario::plain(seed),
            false => ArrayScenario::new(seed),
        };
        let trouble = format!("{:?}", scenario.trouble);
        if only.is_some_and(|only| only != trouble) {
            continue;
        }
        let report = run_scenario(scenario);
        if let Some(what) = report.violation.as_ref().filter(|_| !json) {
            println!("seed {seed} ({}, {trouble}): {what}", report.level.name());
            let plain = if plain { " --plain" } else { "" };
            println!("    replay: {}{plain}", replay(seed));
        }
        totals.add(seed, report);
        if asked.has("first") && !totals.violations().is_empty() {
            break;
        }
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
    let all = !plain && only.is_none();
    if all && asked.seeds >= SEEDS_FOR_ALL_CLASSES && !missed.is_empty() {
        eprintln!("never met: {missed:?}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}
