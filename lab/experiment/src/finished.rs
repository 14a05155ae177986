//! An experiment that has ended, in the form that is kept and reported.

use crate::figures::Fitted;
use crate::verdict::{FigureRow, ResultTable};
use crate::visitors::VisitCurve;
use serde::{Deserialize, Serialize};

/// The format that is written.
pub const FORMAT: u32 = 2;

/// All that is kept of one run of an experiment.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// One line.
    pub title: String,
    /// Publication of the figures.
    pub source: String,
    /// True for the quick form, by which nothing can be judged.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Parameters of the model that were set.
    pub settings: Vec<(String, f64)>,
    /// The command that runs the experiment again.
    pub command: String,
    /// Commit of the program that ran.
    pub commit: String,
    /// Simulated seconds, all seeds.
    pub virtual_seconds: f64,
    /// Wall-clock seconds of all seeds, on the machine of the run.
    pub wall_seconds: f64,
    /// The printed figures beside ours.
    pub rows: Vec<FigureRow>,
    /// The fitted parameters.
    pub fitted: Vec<Fitted>,
    /// Assumptions in place of unpublished facts.
    pub assumed: Vec<String>,
    /// Contradictions of the source.
    pub contradictions: Vec<String>,
    /// Curves of the first seed over time.
    pub curves: Vec<(String, VisitCurve)>,
    /// Charts of the experiment's own, of the first seed: titles and drawings.
    pub charts: Vec<(String, String)>,
    /// Tables of the experiment's own, of the first seed.
    pub tables: Vec<ResultTable>,
}

impl Finished {
    /// Reads a finished experiment; the error names the problem.
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
