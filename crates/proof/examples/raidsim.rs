//! Runs the simulation campaign of the arrays; exits with 1 on a violation, with
//! 3 if many runs left a class unmet.
//!
//! `raidsim --seeds N --start S --json --plain --only TROUBLE --first`

use proof::mutants::VIOLATION;
use proof::raidsim::{Scenario, Totals, replay, run_scenario};
use std::process::ExitCode;

/// From here on a campaign is expected to meet every class.
const SEEDS_FOR_ALL_CLASSES: u64 = 5000;

struct Options {
    seeds: u64,
    start: u64,
    json: bool,
    /// No trouble but losses, refusals and unreadable data.
    plain: bool,
    /// The seeds with this trouble alone.
    only: Option<String>,
    /// The first violation ends it.
    first: bool,
}

fn main() -> ExitCode {
    let Some(options) = parse() else {
        eprintln!(
            "usage: raidsim [--seeds N] [--start S] [--json] [--plain] [--only TROUBLE] [--first]"
        );
        return ExitCode::from(2);
    };
    let mut totals = Totals::default();
    for seed in options.start..options.start + options.seeds {
        let scenario = match options.plain {
            true => Scenario::plain(seed),
            false => Scenario::new(seed),
        };
        let trouble = format!("{:?}", scenario.trouble);
        if options.only.as_ref().is_some_and(|only| *only != trouble) {
            continue;
        }
        let report = run_scenario(scenario);
        if let Some(what) = report.violation.as_ref().filter(|_| !options.json) {
            println!("seed {seed} ({}, {trouble}): {what}", report.level.name());
            let plain = if options.plain { " --plain" } else { "" };
            println!("    replay: {}{plain}", replay(seed));
        }
        totals.add(seed, report);
        if options.first && !totals.violations().is_empty() {
            break;
        }
    }
    match options.json {
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
    let all = !options.plain && options.only.is_none();
    if all && options.seeds >= SEEDS_FOR_ALL_CLASSES && !missed.is_empty() {
        eprintln!("never met: {missed:?}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn parse() -> Option<Options> {
    let mut options = Options {
        seeds: 1000,
        start: 0,
        json: false,
        plain: false,
        only: None,
        first: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--first" => options.first = true,
            "--plain" => options.plain = true,
            "--seeds" => options.seeds = arguments.next()?.parse().ok()?,
            "--start" => options.start = arguments.next()?.parse().ok()?,
            "--only" => options.only = Some(arguments.next()?),
            _ => return None,
        }
    }
    Some(options)
}
