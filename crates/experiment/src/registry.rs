//! Every experiment that has rows: a new one is one line.

use crate::figures::Figures;
use crate::verdict::Outcome;
use crate::{cachecade, maxiq, nytro, redskin};

/// Runs one seed, in its quick form or not; tells of each part that is done.
pub type Run = fn(u64, bool, &dyn Fn(&str)) -> Result<Outcome, String>;

/// A published evaluation that can be run again.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// Memory, and about how long a seed takes on one core of two.
    pub needs: &'static str,
    /// How many seeds unless it is told.
    pub seeds: u64,
    /// What was printed.
    pub figures: fn() -> Figures,
    /// Runs it.
    pub run: Run,
}

/// In the order in which they are run: the longest seeds first.
pub const ALL: [Experiment; 4] = [
    maxiq::EXPERIMENT,
    cachecade::EXPERIMENT,
    redskin::EXPERIMENT,
    nytro::EXPERIMENT,
];

/// The one called `name`.
pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
