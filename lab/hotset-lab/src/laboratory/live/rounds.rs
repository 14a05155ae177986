//! Rounds: every phase of the storage in turn, so that the machine's other load meets all alike.
//!
//! Finished rounds are kept as they end; a second run takes them and goes on.

use super::options::LiveArguments;
use super::report::{FigureAbout, LiveReport, LiveRound};
use crate::CommandFailure;
use crate::laboratory::store;
use crate::laboratory::terminal::progress;
use crate::program::made_directory;
use experiment::verdict::Values;
use experiment::visitors::VisitCurve;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A state of the storage in which a load runs.
pub type Phase = &'static str;

/// The figure that the daemon measures.
const HITS: &str = "hits";

/// Storage that takes turns.
pub trait LivePlace {
    /// The name in messages.
    fn name(&self) -> String;

    /// The phases of a round. The order within a group is fixed; groups change places.
    fn phases(&self) -> &'static [&'static [Phase]];

    /// Has the storage in the state of `phase`, with nothing of the run in the page cache.
    fn prepare(&mut self, phase: Phase) -> Result<(), CommandFailure>;

    /// The percentage of hits since the phase was prepared, if a cache was asked.
    fn hit_percent(&mut self) -> Result<Option<f64>, CommandFailure>;

    /// The user's wish to end the run.
    fn interruption(&self) -> &Interruption;
}

/// Set by SIGINT and SIGTERM, which end no process then.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Waits for the signals from now on.
    pub fn listen() -> Result<Interruption, CommandFailure> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let registered = signal_hook::flag::register(signal, stopped.clone());
            registered.map_err(CommandFailure::runtime)?;
        }
        Ok(Interruption(stopped))
    }

    /// True once a signal has come.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal has come.
    pub fn require_none(&self) -> io::Result<()> {
        match self.has_come() {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Waits, unless the user ends the run.
    pub fn pause_until(&self, time: Instant) -> io::Result<()> {
        loop {
            self.require_none()?;
            match time.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return Ok(()),
                Some(left) => std::thread::sleep(left.min(PAUSE_MAX)),
            }
        }
    }
}

/// Longest pause before a thread sees that the run was interrupted.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Results of a load in one phase.
#[derive(Default)]
pub struct LoadOutcome {
    /// Values by the names of the figures.
    pub values: Values,
    /// Curves over time, by name.
    pub curves: Vec<(String, VisitCurve)>,
}

impl LoadOutcome {
    /// Sets a value.
    pub fn set(&mut self, figure: &str, value: f64) {
        self.values.insert(figure.to_owned(), value);
    }
}

/// Runs the rounds, and prints the report. `perform` runs the load once, in a phase.
pub fn run<P: LivePlace>(
    at: &LiveArguments,
    place: &mut P,
    mut report: LiveReport,
    about: &[FigureAbout],
    mut perform: impl FnMut(&P, Phase) -> Result<LoadOutcome, CommandFailure>,
) -> Result<(), CommandFailure> {
    let hits = FigureAbout::new(HITS, "%");
    let about: Vec<&FigureAbout> = about.iter().chain([&hits]).collect();
    if let Some(directory) = &at.out {
        made_directory(directory)?;
        if let Some((path, before)) = store::find_live(directory, &report.load)? {
            store::is_of(&path, before.asked == report.asked)?;
            report.rounds = before.rounds;
        }
        if !at.without {
            let control = store::find_live(directory, &LiveReport::without(&report.load))?;
            control.map_or(Ok(()), |(path, control)| {
                store::is_of(&path, report.puts_beside(control))
            })?;
        }
    }
    let (begun, progress) = (Instant::now(), progress(at.json));
    let span = Duration::from_secs(at.minutes.unwrap_or(0) * 60);
    while (report.rounds.len() as u64) < at.rounds || begun.elapsed() < span {
        let number = report.rounds.len();
        let round = round(place, number, &progress, &mut perform);
        let round = round.map_err(|failure| match place.interruption().has_come() {
            true => interrupted(at, &place.name(), number),
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
fn round<P: LivePlace>(
    place: &mut P,
    number: usize,
    progress: &dyn Fn(&str),
    perform: &mut impl FnMut(&P, Phase) -> Result<LoadOutcome, CommandFailure>,
) -> Result<LiveRound, CommandFailure> {
    let begun = Instant::now();
    let mut groups: Vec<&[Phase]> = place.phases().to_vec();
    if number % 2 == 1 {
        groups.reverse();
    }
    let (mut phases, mut curves) = (BTreeMap::new(), Vec::new());
    for phase in groups.concat() {
        let going = place.interruption().require_none();
        going.map_err(CommandFailure::runtime)?;
        place.prepare(phase)?;
        let mut outcome = perform(place, phase)?;
        if let Some(percent) = place.hit_percent()? {
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

fn interrupted(at: &LiveArguments, name: &str, rounds: usize) -> CommandFailure {
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
    CommandFailure::Runtime(format!("{name}: interrupted ({kept}"))
}
