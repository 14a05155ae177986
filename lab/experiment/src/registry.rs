//! Every experiment that has rows: a new one is one line.

pub use crate::entry::{Experiment, LoadUses, Run};

use crate::{cachecade, maxiq, nytro, perc_mail, perc_oltp, redskin};

/// All experiments in the order of their runs: the longest seeds first.
pub const ALL: [Experiment; 6] = [
    maxiq::EXPERIMENT,
    cachecade::EXPERIMENT,
    redskin::EXPERIMENT,
    perc_mail::EXPERIMENT,
    perc_oltp::EXPERIMENT,
    nytro::EXPERIMENT,
];

/// The experiment called `name`.
pub fn named(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}
