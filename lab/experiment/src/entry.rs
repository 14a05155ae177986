//! An experiment's entry in the registry.

use crate::choices::{Came, Choice};
use crate::figures::PublishedFigures;
use crate::parameters::{ModelPart, Settings};
use crate::record::Sink;
use crate::verdict::SeedOutcome;

/// Runs one seed, in its quick form or not, with these settings; reports each part that is done.
pub type Run = fn(u64, bool, &Settings<'_>, &dyn Fn(&str)) -> Result<SeedOutcome, String>;

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
    /// Seconds of the published run for which a simulated second stands.
    pub times: f64,
    /// The published machine, as a configuration.
    pub topology: &'static str,
    /// The published figures.
    pub figures: fn() -> PublishedFigures,
    /// Tests settings.
    pub check: fn(&Settings<'_>) -> Result<(), String>,
    /// Runs the experiment.
    pub run: Run,
    /// The parts of the model that can be left out.
    pub parts: &'static [ModelPart],
    /// Other uses of the load, if it has any.
    pub load: Option<LoadUses>,
}

/// Uses of a load beside its evaluation.
pub struct LoadUses {
    /// Runs the load with a choice that the source did not have.
    pub choose: Choose,
    /// Records the load.
    pub record: Recorded,
}
