//! An experiment that has ended, as it is kept and reported.

use crate::figures::Fitted;
use crate::verdict::Row;
use crate::visitors::Curve;
use serde::{Deserialize, Serialize};

/// The format that is written.
pub const FORMAT: u32 = 1;

/// All that is kept of one run of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name.
    pub experiment: String,
    /// One line.
    pub title: String,
    /// Where the figures were printed.
    pub source: String,
    /// Whether it was the quick form, by which nothing can be judged.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// How many.
    pub seeds: u64,
    /// The command that runs it again.
    pub command: String,
    /// Of the program that ran.
    pub commit: String,
    /// Simulated seconds, all seeds.
    pub virtual_seconds: f64,
    /// What they took on the machine it ran on.
    pub wall_seconds: f64,
    /// The printed figures beside ours.
    pub rows: Vec<Row>,
    /// What was fitted.
    pub fitted: Vec<Fitted>,
    /// What was not printed, and is assumed.
    pub assumed: Vec<String>,
    /// Where the source contradicts itself.
    pub contradictions: Vec<String>,
    /// What the first seed showed over time.
    pub curves: Vec<(String, Curve)>,
    /// Charts of its own: titles and drawings.
    pub charts: Vec<(String, String)>,
}

impl Finished {
    /// Reads what was written; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Finished, String> {
        let finished: Finished = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match finished.format {
            FORMAT => Ok(finished),
            other => Err(format!(
                "its format {other} is not {FORMAT}, which is read here"
            )),
        }
    }
}
