//! Long work of a daemon: its kinds, names and reports.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The work of a job.
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
    /// All copies, or data and parity, of an array are compared.
    Scrub,
    /// A volume gives up its log, once all dirty data is written back.
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

    /// The name of the kind, the first part of a job's name.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Resync => "resync",
            JobKind::Scrub => "scrub",
            JobKind::Detach => "detach",
        }
    }

    /// True if a job may be cancelled; an array without its rebuild or resync could lose data.
    pub fn can_cancel(self) -> bool {
        !matches!(self, JobKind::Rebuild | JobKind::Resync)
    }
}

/// The name of a job: an array or a volume has at most one job of a kind at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobName {
    /// Kind of the job.
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

/// The state of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// The job goes on.
    Running,
    /// The job is to go on later.
    Paused,
    /// The job has done all of its work.
    Done,
    /// The job ended early, by an error.
    Failed,
    /// The job ended early, as requested.
    Cancelled,
}

impl JobState {
    /// True if the job has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, JobState::Running | JobState::Paused)
    }

    /// The name of the state.
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
    /// Name of the job, `KIND:NAME`.
    pub name: String,
    /// Kind of the job.
    pub kind: JobKind,
    /// The array or volume.
    pub of: String,
    /// State of the job.
    pub state: JobState,
    /// Percentage of the work that is done, where known.
    pub percent: Option<f64>,
    /// Remaining time at the rate so far.
    pub left_s: Option<f64>,
    /// Time since the job began.
    pub running_s: f64,
    /// True if the job can be cancelled now.
    pub can_cancel: bool,
    /// Current step of the job, or its result.
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
