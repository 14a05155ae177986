//! The command: a campaign of write-back and what it prints.

use super::report::Summary;
use super::run::campaign;
use std::time::Instant;

/// From here on the cuts of a campaign are expected to land everywhere.
const CASES_FOR_ALL_LANDINGS: u64 = 1000;

/// What is asked of the laboratory.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// How many cases.
    pub cases: u64,
    /// The seed of the first.
    pub seed: u64,
    /// Threads.
    pub threads: u64,
    /// Whether the report is printed as JSON.
    pub json: bool,
}

/// Runs the cases and prints the report; the error says what is wrong.
pub fn command(request: &Request) -> Result<(), String> {
    let begin = Instant::now();
    let seeds = request.seed..request.seed + request.cases;
    let totals = campaign(seeds, request.threads);
    let summary = totals.summary(begin.elapsed().as_secs_f64());
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        print(&summary);
    }
    let missed = totals.missed();
    if !summary.violations.is_empty() {
        Err(format!("{} cases failed", summary.violations.len()))
    } else if request.cases >= CASES_FOR_ALL_LANDINGS && !missed.is_empty() {
        Err(format!("never met: {missed:?}"))
    } else {
        Ok(())
    }
}

fn print(summary: &Summary) {
    println!(
        "{} cases of {} operations (median), {} cuts, the origin judged alone {} times, {:.1} cases/s, {} violations",
        summary.cases,
        summary.operations_median,
        summary.cuts,
        summary.destroyed,
        summary.cases_per_second,
        summary.violations.len(),
    );
    for (landing, times) in &summary.landed {
        println!("{times:>10}  {landing}");
    }
    for violation in &summary.violations {
        println!("seed {}: {}", violation.seed, violation.what);
        println!("    replay: {}", violation.replay);
    }
}
