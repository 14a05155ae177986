//! The command: a campaign and what it prints.

use super::report::Totals;
use super::{Request, run};
use std::time::Instant;

/// From here on a campaign is expected to meet every class.
const CASES_FOR_ALL_CLASSES: u64 = 1000;

/// Carries out a request and prints the report; the error says what was wrong.
pub fn command(request: &Request) -> Result<(), String> {
    let begin = Instant::now();
    let mut totals = Totals::default();
    for seed in request.seed..request.seed + request.cases {
        totals.add(seed, run(seed));
    }
    let summary = totals.summary(begin.elapsed().as_secs_f64());
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        println!(
            "{} cases, {} operations, {:.1} cases/s, {} violations",
            summary.cases,
            summary.operations,
            summary.cases_per_second,
            summary.violations.len()
        );
        for (class, times) in &summary.met {
            println!("{times:>10}  {class}");
        }
        for violation in &summary.violations {
            println!("seed {}: {}", violation.seed, violation.what);
            println!("    replay: {}", violation.replay);
        }
    }
    let missed = totals.missed();
    if !summary.violations.is_empty() {
        Err(format!("{} cases failed", summary.violations.len()))
    } else if request.cases >= CASES_FOR_ALL_CLASSES && !missed.is_empty() {
        Err(format!("never met: {missed:?}"))
    } else {
        Ok(())
    }
}
