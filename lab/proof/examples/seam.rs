//! The seam's campaign; exits with 1 on a violation. Of one seed alone each step is printed.
//!
//! `seam --seeds N --start S --sabotage skip-flush|skip-lock|ignore-error`

use proof::arguments::Arguments;
use proof::seam::{Sabotage, campaign};
use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = match Arguments::get(10_000, &["sabotage="]) {
        Ok(asked) => asked,
        Err(status) => return status,
    };
    let sabotage = match asked.value("sabotage") {
        None => Sabotage::None,
        Some("skip-flush") => Sabotage::SkipFlush,
        Some("skip-lock") => Sabotage::SkipLock,
        Some("ignore-error") => Sabotage::IgnoreError,
        Some(other) => panic!("unknown sabotage {other}"),
    };
    if asked.seeds == 1 {
        let one = campaign::run_seed(asked.start, sabotage);
        println!("trace hash {:016x}", one.trace_hash);
        one.story.iter().for_each(|line| println!("{line}"));
    }
    let report = campaign::run(asked.range(), sabotage);
    println!(
        "{} seeds, {} boots, {} requests answered, {} failed",
        report.seeds, report.boots, report.answered, report.failed
    );
    for (class, count) in &report.faults {
        println!("  {class:?}: {count}");
    }
    println!("{} seeds with a violation", report.violations.len());
    for (seed, violation) in report.violations.iter().take(5) {
        println!("  seed {seed}: {violation}");
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}
