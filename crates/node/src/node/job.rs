//! The state of a job in a node.

use block::{Nanos, Signal};
use control::job::{Job, JobKind, JobName, JobState};
use raid::MaintenanceProgress;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The jobs of a node.
#[derive(Default)]
pub struct Jobs {
    pub(super) running: BTreeMap<JobName, SeenJob>,
    pub(super) ended: VecDeque<Job>,
    pub(super) cancelled: BTreeSet<JobName>,
}

/// A running job, as of the last look.
pub(super) struct SeenJob {
    pub(super) began: Nanos,
    pub(super) job: Job,
    /// The role of a rebuilt or replaced member, and the device in the role at the first look.
    pub(super) role: Option<(usize, Option<Rc<str>>)>,
}

/// A volume that is draining its log to give it up.
pub struct Detaching {
    /// Dirty bytes at the beginning.
    pub(super) dirty: u64,
    pub(super) cancelled: Cell<bool>,
    pub(super) paused: Cell<bool>,
    pub(super) changed: Signal,
    /// Time of the beginning, or of the last pause or resume.
    since: Cell<Nanos>,
}

/// Running time after which the remaining time is reported.
const SEEN_MIN: Nanos = Nanos::from_secs(5);

impl Detaching {
    pub(super) fn new(now: Nanos, dirty: u64) -> Rc<Detaching> {
        Rc::new(Detaching {
            dirty,
            cancelled: Cell::new(false),
            paused: Cell::new(false),
            changed: Signal::default(),
            since: Cell::new(now),
        })
    }

    /// Pauses or resumes the work.
    pub(super) fn pause(&self, paused: bool, now: Nanos) {
        self.paused.set(paused);
        self.since.set(now);
        self.changed.notify();
    }

    /// Returns once the state differs from `paused`.
    pub(super) async fn turned(&self, paused: bool) {
        self.changed.until(|| self.paused.get() != paused).await;
    }

    /// Remaining seconds, if the log is empty in `empty_in`.
    pub(super) fn left_s(&self, now: Nanos, empty_in: Option<Nanos>) -> Option<f64> {
        let goes_on = !self.paused.get() && now - self.since.get() >= SEEN_MIN;
        empty_in.filter(|_| goes_on).map(|left| left.as_secs_f64())
    }

    /// Cancels the work.
    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
        self.changed.notify();
    }

    /// Returns once the work is cancelled.
    pub(super) async fn cancelled(&self) {
        self.changed.until(|| self.cancelled.get()).await;
    }
}

fn percent(progress: &MaintenanceProgress) -> f64 {
    100.0 * progress.done.0 as f64 / progress.total.0.max(1) as f64
}

impl SeenJob {
    pub(super) fn new(now: Nanos, kind: JobKind, of: &str, about: String) -> SeenJob {
        let name = JobName {
            kind,
            of: of.into(),
        };
        SeenJob {
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

    pub(super) fn at(mut self, progress: &MaintenanceProgress, now: Nanos) -> SeenJob {
        self.began = progress.began;
        self.job.percent = Some(percent(progress));
        self.job.left_s = progress.left(now).map(|left| left.as_secs_f64());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_reported_once_it_goes_on_for_a_while() {
        let at = Nanos::from_secs;
        let detaching = Detaching::new(at(10), 1000);
        assert_eq!(detaching.left_s(at(14), Some(at(40))), None, "too soon");
        assert_eq!(detaching.left_s(at(20), Some(at(40))), Some(40.0));
        assert_eq!(detaching.left_s(at(20), None), None);
        detaching.pause(true, at(20));
        assert_eq!(detaching.left_s(at(100), Some(at(40))), None, "it waits");
        detaching.pause(false, at(100));
        assert_eq!(detaching.left_s(at(110), Some(at(80))), Some(80.0));
    }
}
