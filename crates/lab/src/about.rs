//! How something was run that is kept: by which command of which program, and how long it took.

/// How it was run.
#[derive(Clone, Debug)]
pub struct About {
    /// The experiment.
    pub experiment: String,
    /// Whether it was the quick form.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// The command that runs it again.
    pub command: String,
    /// Of the program that ran.
    pub commit: String,
    /// What it took.
    pub wall_seconds: f64,
}
