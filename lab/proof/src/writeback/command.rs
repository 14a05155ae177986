//! The command: a campaign of write-back and its output.

use super::report::WriteBackSummary;
use super::run::campaign;
use crate::campaign::{CampaignRequest, print_violations, verdict};
use std::time::Instant;
use writelog::Cleaning;

/// Runs the cases and prints the report. The error describes the failure.
pub fn command(request: &CampaignRequest, cleaning: Cleaning) -> Result<(), String> {
    let begin = Instant::now();
    let totals = campaign(request.seeds(), request.threads, cleaning);
    let summary = totals.summary(begin.elapsed().as_secs_f64(), cleaning);
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        print(&summary);
    }
    verdict(&summary.violations, request.cases, &totals.missed(cleaning))
}

fn print(summary: &WriteBackSummary) {
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
    print_violations(&summary.violations);
}
