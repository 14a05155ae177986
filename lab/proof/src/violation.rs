//! The violations of a campaign, as its report prints them.

use serde::Serialize;

/// A case that failed.
#[derive(Debug, Serialize)]
pub struct CaseViolation {
    /// Its seed.
    pub seed: u64,
    /// A description of the violation.
    pub what: String,
    /// The command that repeats the case.
    pub replay: String,
}

impl CaseViolation {
    /// The violations of the failed seeds, in order of the seeds. `replay` makes the command that
    /// repeats a seed.
    pub(crate) fn all(
        failed: &[(u64, String)],
        replay: impl Fn(u64) -> String,
    ) -> Vec<CaseViolation> {
        let violation = |(seed, what): &(u64, String)| CaseViolation {
            seed: *seed,
            what: what.clone(),
            replay: replay(*seed),
        };
        let mut all: Vec<CaseViolation> = failed.iter().map(violation).collect();
        all.sort_by_key(|violation| violation.seed);
        all
    }
}
