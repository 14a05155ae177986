//! The command: campaigns and their output.

use super::case::CrashCase;
use super::draw::Length;
use super::replay;
use super::report::{CrashSummary, Mutated};
use super::shrink::shrink;
use super::sweep::{campaign, sweep};
use crate::campaign::{print_violations, verdict};
use crate::mutants::{Fate, WorkspaceCopy, read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Cases, and as many flips, that have to find a mutation.
const CASES_PER_MUTATION: u64 = 8000;

/// A request to the laboratory.
#[derive(Clone, Debug)]
pub struct CrashRequest {
    /// Number of cases.
    pub cases: u64,
    /// The seed of the first case.
    pub seed: u64,
    /// Number of threads.
    pub threads: u64,
    /// Cut short cases at every boundary instead of long ones at random.
    pub boundaries: bool,
    /// Mutations to be tried on a copy of the tree in the current directory.
    pub mutations: Option<PathBuf>,
    /// Print JSON.
    pub json: bool,
}

/// Carries out a request and prints the report. The error describes the failure.
pub fn command(request: &CrashRequest) -> Result<(), String> {
    if request.boundaries {
        return boundaries(request);
    }
    let seeds = request.seed..request.seed + request.cases;
    let begin = Instant::now();
    let totals = campaign(seeds, request.threads);
    let mut summary = totals.summary(begin.elapsed().as_secs_f64(), replay);
    if let Some(file) = &request.mutations {
        summary.mutations = mutate(file)?;
    }
    if request.json {
        let text = serde_json::to_string_pretty(&summary).expect("plain data");
        println!("{text}");
    } else {
        print(&summary);
    }
    if let ([(seed, _)], 1) = (&totals.violations[..], request.cases) {
        let (case, how) = shrink(&CrashCase::new(*seed, Length::Long));
        println!("made smaller: {case:#?}\n{how}");
    }
    verdict(&summary.violations, request.cases, &totals.missed())?;
    let survived = summary.mutations.iter().filter(|m| !m.caught).count();
    match survived {
        0 => Ok(()),
        _ => Err(format!("{survived} mutations were not caught")),
    }
}

fn print(summary: &CrashSummary) {
    println!(
        "{} cases of {} operations (median), {} cuts, {} hits, {:.1} cases/s, {} violations",
        summary.cases,
        summary.operations_median,
        summary.power_cuts,
        summary.hits,
        summary.cases_per_second,
        summary.violations.len(),
    );
    for (landing, times) in &summary.landed {
        println!("{times:>10}  cuts in {landing}");
    }
    for (event, times) in &summary.met {
        println!("{times:>10}  {event}");
    }
    print_violations(&summary.violations);
    for mutation in &summary.mutations {
        let fate = if mutation.caught {
            "caught"
        } else {
            "SURVIVED"
        };
        println!("{fate}: {}", mutation.name);
    }
}

fn boundaries(request: &CrashRequest) -> Result<(), String> {
    let mut cuts = 0;
    for seed in request.seed..request.seed + request.cases {
        let swept = sweep(seed, 1, request.threads);
        cuts += swept.cuts;
        if let Some((case, _)) = swept.failed {
            let (case, how) = shrink(&case);
            return Err(format!("seed {seed}: {how}\n{case:#?}"));
        }
    }
    if request.json {
        println!("{{\"cases\": {}, \"boundaries\": {cuts}}}", request.cases);
    } else {
        println!("{} short cases cut at {cuts} boundaries", request.cases);
    }
    Ok(())
}

fn mutate(file: &Path) -> Result<Vec<Mutated>, String> {
    let copy = WorkspaceCopy::new(Path::new("."), Path::new("target/mutants"))?;
    let cases = CASES_PER_MUTATION.to_string();
    let mutations = read(file)?;
    let fates = copy.try_all(
        &mutations,
        "crash",
        &["--seeds".into(), cases],
        |mutation, fate, _| {
            eprintln!("{fate:?}: {}", mutation.name);
        },
    )?;
    let mutated = mutations
        .into_iter()
        .zip(fates)
        .map(|(mutation, fate)| Mutated {
            name: mutation.name,
            caught: fate == Fate::Caught,
        });
    Ok(mutated.collect())
}
