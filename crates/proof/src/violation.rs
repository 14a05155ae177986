//! What a campaign found wrong, as its report prints it.

use serde::Serialize;

/// A case that failed.
#[derive(Debug, Serialize)]
pub struct Violation {
    /// Its seed.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// The command that repeats it.
    pub replay: String,
}

impl Violation {
    /// Of the seeds that failed and what was wrong with each, in order of the seeds; `replay`
    /// makes the command that repeats one.
    pub(crate) fn all(failed: &[(u64, String)], replay: impl Fn(u64) -> String) -> Vec<Violation> {
        let violation = |(seed, what): &(u64, String)| Violation {
            seed: *seed,
            what: what.clone(),
            replay: replay(*seed),
        };
        let mut all: Vec<Violation> = failed.iter().map(violation).collect();
        all.sort_by_key(|violation| violation.seed);
        all
    }
}
