//! Runs the simulation campaign of the cache engine; exits with 1 on a
//! violation, with 3 if many runs left a class unmet.
//!
//! `cachesim --seeds N --start S --threads T`

use proof::cachesim::{Totals, run};
use proof::mutants::VIOLATION;
use std::process::ExitCode;

/// From here on a campaign is expected to meet every class.
const SEEDS_FOR_ALL_CLASSES: u64 = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some([seeds, start, threads]) = parse(&arguments) else {
        eprintln!("usage: cachesim [--seeds N] [--start S] [--threads T]");
        return ExitCode::from(2);
    };
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let mut totals = Totals::default();
                    for seed in (start..start + seeds)
                        .skip(worker as usize)
                        .step_by(threads as usize)
                    {
                        let report = run(seed);
                        if let Some(what) = &report.violation {
                            println!("seed {seed}: {what}");
                            println!("    replay: {}", proof::cachesim::replay(seed));
                        }
                        totals.add(seed, report);
                    }
                    totals
                })
            })
            .collect();
        for worker in workers {
            totals.merge(worker.join().expect("a run panicked"));
        }
    });
    print!("{totals}");
    if !totals.violations().is_empty() {
        return ExitCode::from(VIOLATION as u8);
    }
    let missed = totals.missed();
    if seeds >= SEEDS_FOR_ALL_CLASSES && !missed.is_empty() {
        println!("never met: {missed:?}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn parse(arguments: &[String]) -> Option<[u64; 3]> {
    let mut values = [300, 0, 1];
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return None };
        let at = ["--seeds", "--start", "--threads"]
            .iter()
            .position(|n| n == name)?;
        values[at] = value.parse().ok()?;
    }
    (values[2] > 0).then_some(values)
}
