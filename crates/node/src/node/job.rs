//! A job, as a node knows it.

use block::{Nanos, Signal};
use control::job::{Job, JobKind, JobName, JobState};
use raid::Progress;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// What is known of jobs.
#[derive(Default)]
pub struct Jobs {
    pub(super) running: BTreeMap<JobName, Seen>,
    pub(super) ended: VecDeque<Job>,
    pub(super) cancelled: BTreeSet<JobName>,
}

/// A job that goes on, as it was seen last.
pub(super) struct Seen {
    pub(super) began: Nanos,
    pub(super) job: Job,
    /// Of an exchange: the role, and the device that has it until then.
    pub(super) role: Option<(usize, Option<Rc<str>>)>,
}

/// A volume that is giving up its log.
pub struct Detaching {
    /// What its origin was owed when it began.
    pub(super) owed: u64,
    pub(super) cancelled: Cell<bool>,
    pub(super) changed: Signal,
}

impl Detaching {
    pub(super) fn new(owed: u64) -> Rc<Detaching> {
        Rc::new(Detaching {
            owed,
            cancelled: Cell::new(false),
            changed: Signal::default(),
        })
    }

    /// Returns once it is cancelled.
    pub(super) async fn cancelled(&self) {
        self.changed.until(|| self.cancelled.get()).await;
    }
}

fn percent(progress: &Progress) -> f64 {
    100.0 * progress.done.0 as f64 / progress.total.0.max(1) as f64
}

impl Seen {
    pub(super) fn new(now: Nanos, kind: JobKind, of: &str, about: String) -> Seen {
        let name = JobName {
            kind,
            of: of.into(),
        };
        Seen {
            began: now,
            job: Job {
                name: name.to_string(),
                kind,
                of: name.of,
                state: JobState::Running,
                percent: None,
                left_s: None,
                running_s: 0.0,
                can_cancel: kind.can_cancel(),
                about,
            },
            role: None,
        }
    }

    pub(super) fn at(mut self, progress: &Progress, now: Nanos) -> Seen {
        self.began = progress.began;
        self.job.percent = Some(percent(progress));
        self.job.left_s = progress.left(now).map(|left| left.as_secs_f64());
        self
    }
}
