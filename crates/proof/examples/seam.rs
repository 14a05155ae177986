//! `seam [SEEDS] [FIRST] [none|skip-flush|skip-lock|ignore-error]`: the seam's
//! campaign; exits 1 on a violation. `seam 1 SEED` replays one seed.

use proof::seam::{Sabotage, campaign};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| match args.get(i) {
        Some(text) => text.parse().expect("a number"),
        None => default,
    };
    let (seeds, first) = (number(0, 10_000), number(1, 0));
    let sabotage = match args.get(2).map(String::as_str) {
        None | Some("none") => Sabotage::None,
        Some("skip-flush") => Sabotage::SkipFlush,
        Some("skip-lock") => Sabotage::SkipLock,
        Some("ignore-error") => Sabotage::IgnoreError,
        Some(other) => panic!("unknown sabotage {other}"),
    };
    if seeds == 1 {
        let one = campaign::run_seed(first, sabotage);
        println!("trace hash {:016x}", one.trace_hash);
        one.story.iter().for_each(|line| println!("{line}"));
    }
    let report = campaign::run(first..first + seeds, sabotage);
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
