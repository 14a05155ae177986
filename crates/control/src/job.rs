//! Long work of a daemon, as it is reported and named.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// A member of an array is filled from the others.
    Rebuild,
    /// A member in sync is copied to the device that takes its place.
    Replace,
    /// Copies, or data and parity, are made to agree after a crash.
    Resync,
    /// All that an array holds twice is compared.
    Scrub,
    /// A volume gives up its log, once its origin has what it is owed.
    Detach,
}

impl JobKind {
    /// Every kind.
    pub const ALL: [JobKind; 5] = [
        JobKind::Rebuild,
        JobKind::Replace,
        JobKind::Resync,
        JobKind::Scrub,
        JobKind::Detach,
    ];

    /// Its name, the first part of a job's.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Resync => "resync",
            JobKind::Scrub => "scrub",
            JobKind::Detach => "detach",
        }
    }

    /// Whether it may be ended before it is done; data could be lost without the others.
    pub fn can_cancel(self) -> bool {
        !matches!(self, JobKind::Rebuild | JobKind::Resync)
    }
}

/// What a job is called: there is one of a kind for an array or a volume at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobName {
    /// What it does.
    pub kind: JobKind,
    /// The array or volume.
    pub of: String,
}

impl JobName {
    /// Reads `KIND:NAME`.
    pub fn parse(text: &str) -> Result<JobName, String> {
        let (kind, of) = text.split_once(':').unwrap_or((text, ""));
        let kind = JobKind::ALL.into_iter().find(|known| known.name() == kind);
        match (kind, of) {
            (None, _) | (_, "") => Err(format!(
                "{text:?} names no job; see `hotset job list` for names such as scrub:mirror"
            )),
            (Some(kind), of) => Ok(JobName {
                kind,
                of: of.into(),
            }),
        }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.of)
    }
}

/// How a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It goes on.
    Running,
    /// It is to go on later.
    Paused,
    /// It has done all of it.
    Done,
    /// It ended before.
    Failed,
    /// It ended before, for somebody wanted that.
    Cancelled,
}

impl JobState {
    /// Whether it has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, JobState::Running | JobState::Paused)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Running => "running",
            JobState::Paused => "paused",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        }
    }
}

/// Long work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    /// Its name, `KIND:NAME`.
    pub name: String,
    /// What it does.
    pub kind: JobKind,
    /// The array or volume.
    pub of: String,
    /// How it is.
    pub state: JobState,
    /// How much of it is done, where that is known.
    pub percent: Option<f64>,
    /// How long it takes still at the rate so far.
    pub left_s: Option<f64>,
    /// For how long it has run.
    pub running_s: f64,
    /// Whether it can be cancelled now.
    pub can_cancel: bool,
    /// What it is at, or what came of it.
    pub about: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in JobKind::ALL {
            let text = format!("{}:a.b-c", kind.name());
            assert_eq!(JobName::parse(&text).unwrap().to_string(), text);
        }
        for wrong in ["", "scrub", "scrub:", "sweep:a", ":a"] {
            assert!(JobName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
