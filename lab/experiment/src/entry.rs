//! An experiment's entry in the registry.

use crate::choices::{Came, Choice};
use crate::figures::PublishedFigures;
use crate::record::Sink;
use crate::verdict::SeedOutcome;

/// Runs one seed, in its quick form or not; reports each part that is done.
pub type Run = fn(u64, bool, &dyn Fn(&str)) -> Result<SeedOutcome, String>;

/// The same without the part of its model that has this place among them.
pub type Without = fn(u64, bool, usize, &dyn Fn(&str)) -> Result<SeedOutcome, String>;

/// Runs its load with another choice, of one seed, in the quick form or not, on so many percent
/// of its flash.
pub type Choose = fn(u64, bool, u64, Choice) -> Result<Came, String>;

/// Records the requests of its load to its volumes, of one seed, in the quick form or not; the
/// simulated seconds.
pub type Recorded = fn(u64, bool, Sink) -> Result<f64, String>;

/// A published evaluation that can be run again.
pub struct Experiment {
    /// Name of the experiment.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// Memory, and about how long a seed takes on one core of two.
    pub needs: &'static str,
    /// Default number of seeds.
    pub seeds: u64,
    /// Seconds of the published run for which a simulated second stands.
    pub times: f64,
    /// The published figures.
    pub figures: fn() -> PublishedFigures,
    /// Runs the experiment.
    pub run: Run,
    /// The parts of the model that can be left out.
    pub parts: fn() -> Vec<&'static str>,
    /// Runs the experiment without one of the parts.
    pub without: Without,
    /// Runs the load with a choice that the source did not have.
    pub choose: Choose,
    /// Records the load.
    pub record: Recorded,
}
