//! What the registry knows of an experiment.

use crate::choices::{Came, Choice};
use crate::figures::Figures;
use crate::record::Sink;
use crate::verdict::Outcome;

/// Runs one seed, in its quick form or not; reports each part that is done.
pub type Run = fn(u64, bool, &dyn Fn(&str)) -> Result<Outcome, String>;

/// The same without the part of its model that has this place among them.
pub type Without = fn(u64, bool, usize, &dyn Fn(&str)) -> Result<Outcome, String>;

/// Runs its load with another choice, of one seed, in the quick form or not, on so many percent
/// of its flash.
pub type Choose = fn(u64, bool, u64, Choice) -> Result<Came, String>;

/// Records what its load asks of its volumes, of one seed, in the quick form or not; the
/// simulated seconds.
pub type Recorded = fn(u64, bool, Sink) -> Result<f64, String>;

/// A published evaluation that can be run again.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// Memory, and about how long a seed takes on one core of two.
    pub needs: &'static str,
    /// How many seeds by default.
    pub seeds: u64,
    /// How many seconds of the published run a simulated one stands for.
    pub times: f64,
    /// What was printed.
    pub figures: fn() -> Figures,
    /// Runs it.
    pub run: Run,
    /// The parts of its model that can be left out.
    pub parts: fn() -> Vec<&'static str>,
    /// Runs it without one of them.
    pub without: Without,
    /// Runs its load with a choice that the source did not have.
    pub choose: Choose,
    /// Records its load.
    pub record: Recorded,
}
