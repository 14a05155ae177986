//! Rounds: every phase of the storage in turn, so that the machine's other load meets all alike.
//!
//! Finished rounds are kept as they end; a second run takes them and goes on.

use super::LiveArguments;
use super::report::{FigureAbout, LiveReport, LiveRound};
use super::stage::{LiveStage, Phase};
use crate::CommandFailure;
use crate::laboratory::run::progress;
use crate::laboratory::store;
use crate::program::made_directory;
use experiment::verdict::Values;
use experiment::visitors::VisitCurve;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The figure that the daemon measures.
const HITS: &str = "hits";

/// Results of a load in one phase.
#[derive(Default)]
pub struct LoadOutcome {
    /// Values by the names of the figures.
    pub values: Values,
    /// Curves over time, by name.
    pub curves: Vec<(String, VisitCurve)>,
}

/// Runs the rounds, and prints the report. `perform` runs the load once.
pub fn run(
    at: &LiveArguments,
    stage: &mut LiveStage,
    mut report: LiveReport,
    about: &[FigureAbout],
    mut perform: impl FnMut(&LiveStage) -> Result<LoadOutcome, CommandFailure>,
) -> Result<(), CommandFailure> {
    let hits = FigureAbout::new(HITS, "%");
    let about: Vec<&FigureAbout> = about.iter().chain([&hits]).collect();
    if let Some(directory) = &at.out {
        made_directory(directory)?;
        if let Some((path, before)) = store::find_live(directory, &report.load)? {
            store::is_of(&path, before.asked == report.asked)?;
            report.rounds = before.rounds;
        }
    }
    let (begun, progress) = (Instant::now(), progress(at.json));
    let span = Duration::from_secs(at.minutes.unwrap_or(0) * 60);
    while (report.rounds.len() as u64) < at.rounds || begun.elapsed() < span {
        let number = report.rounds.len();
        let round = round(stage, number, &progress, &mut perform);
        let round = round.map_err(|failure| match stage.is_stopped() {
            true => interrupted(at, number),
            false => failure,
        })?;
        report.rounds.push(round);
        report.judge(&about);
        if let Some(directory) = &at.out {
            store::keep_live(directory, &report)?;
        }
    }
    report.judge(&about);
    report.show(at.json)
}

/// Runs the load in each phase. Every second round has the groups of phases the other way round.
fn round(
    stage: &mut LiveStage,
    number: usize,
    progress: &dyn Fn(&str),
    perform: &mut dyn FnMut(&LiveStage) -> Result<LoadOutcome, CommandFailure>,
) -> Result<LiveRound, CommandFailure> {
    let begun = Instant::now();
    let mut groups: Vec<&[Phase]> = stage.phases().to_vec();
    if number % 2 == 1 {
        groups.reverse();
    }
    let (mut phases, mut curves) = (BTreeMap::new(), Vec::new());
    for phase in groups.concat() {
        stage.prepare(phase)?;
        let mut outcome = perform(stage)?;
        if let Some(percent) = stage.hit_percent()? {
            outcome.values.insert(HITS.into(), percent);
        }
        phases.insert(phase.to_owned(), outcome.values);
        let named = outcome.curves.into_iter();
        curves.extend(named.map(|(name, curve)| (format!("{name}, {phase}"), curve)));
        progress(&format!("round {}, {phase}", number + 1));
    }
    Ok(LiveRound {
        seconds: begun.elapsed().as_secs_f64(),
        phases,
        curves,
    })
}

fn interrupted(at: &LiveArguments, rounds: usize) -> CommandFailure {
    let kept = match &at.out {
        Some(directory) => format!(
            "{rounds} of {} rounds are kept in {}). Run the same command to go on.",
            at.rounds,
            directory.display()
        ),
        None => format!(
            "{rounds} of {} rounds had ended). Keep them with --out.",
            at.rounds
        ),
    };
    CommandFailure::Runtime(format!("{}: interrupted ({kept}", at.path.display()))
}
