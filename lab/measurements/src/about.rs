//! Facts about a run that is kept: its command, its program, and its duration.

/// Facts about a run.
#[derive(Clone, Debug)]
pub struct RunAbout {
    /// The experiment.
    pub experiment: String,
    /// True for the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// The command that runs the experiment again.
    pub command: String,
    /// Commit of the program that ran.
    pub commit: String,
    /// Wall-clock seconds of the run.
    pub wall_seconds: f64,
}
