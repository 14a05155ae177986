//! Long work of a node: running jobs, their progress, and the results of ended ones.
//!
//! Invariants:
//!     work runs ⟹ its job is listed, from the first look at it on
//!     a cancelled job ends at its next step; the cancelling client does not wait for that
//!
//! Not here: the work itself (`raid`, `write_back`). Its state is looked at once a second and
//! before each report.

use super::Node;
use super::job::{Detaching, SeenJob};
use super::refusal::Refusal;
use crate::arrays::RunningArray;
use crate::event::NodeEvent;
use crate::platform::Platform;
use block::Nanos;
use control::config::Name;
use control::job::{Job, JobKind, JobName, JobState};
use raid::MemberState;
use std::rc::Rc;

/// Most ended jobs that are listed.
const ENDED_MAX: usize = 16;

/// The running jobs of an array.
fn of_array(running: &RunningArray, now: Nanos) -> Vec<SeenJob> {
    let report = running.array().report();
    let name = running.config.name.as_str();
    let mut found = Vec::new();
    if let Some(progress) = report.progress {
        let (kind, about) = match progress.role {
            Some(role) if report.replaced == Some(role) => (
                JobKind::Replace,
                format!("member {role} is copied to another device"),
            ),
            Some(role) => (JobKind::Rebuild, format!("member {role} is filled")),
            None => (JobKind::Resync, "copies are compared after a crash".into()),
        };
        let mut seen = SeenJob::new(now, kind, name, about).at(&progress, now);
        seen.role = progress.role.map(|role| {
            let device = report.members[role].device.as_deref().map(Rc::from);
            (role, device)
        });
        found.push(seen);
    }
    if running.is_scrubbed() {
        let about = "copies, or data and parity, are compared".into();
        let seen = SeenJob::new(now, JobKind::Scrub, name, about);
        found.push(match running.array().scrubbing() {
            Some(progress) => seen.at(&progress, now),
            None => seen,
        });
    }
    found
}

impl<P: Platform> Node<P> {
    fn of_volumes(&self, now: Nanos) -> Vec<SeenJob> {
        let detaching = self.detaching.borrow();
        let seen = detaching.iter().map(|(name, detaching)| {
            let about = "dirty data is written back to the origin".into();
            let mut seen = SeenJob::new(now, JobKind::Detach, name.as_str(), about);
            if let Some(log) = self.log_status(name).filter(|_| detaching.dirty > 0) {
                let dirty = log.dirty_bytes.min(detaching.dirty);
                seen.job.percent = Some(100.0 - 100.0 * dirty as f64 / detaching.dirty as f64);
                seen.job.left_s = detaching.left_s(now, log.empty_in);
            }
            if detaching.paused.get() {
                seen.job.state = JobState::Paused;
            }
            seen
        });
        seen.collect()
    }

    /// The state of the log of `volume`, if there is one.
    pub(super) fn log_status(&self, volume: &Name) -> Option<writelog::WriteBackStatus> {
        let volumes = self.volumes.borrow();
        volumes.get(volume)?.volume.log_status()
    }

    /// The state of a job that gives up a log.
    fn detaching(&self, name: &JobName) -> Option<Rc<Detaching>> {
        let detaching = self.detaching.borrow();
        let mut all = detaching.iter().filter(|_| name.kind == JobKind::Detach);
        let (_, found) = all.find(|(of, _)| of.as_str() == name.of)?;
        Some(found.clone())
    }

    /// Updates running jobs, and records the results of those that have ended.
    pub(super) fn look_at_jobs(&self) {
        let now = self.env().timer.now();
        let arrays = self.devices.running.borrow().clone();
        let mut seen: Vec<SeenJob> = arrays
            .iter()
            .flat_map(|array| of_array(array, now))
            .collect();
        seen.extend(self.of_volumes(now));
        let mut jobs = self.jobs.borrow_mut();
        let mut before = std::mem::take(&mut jobs.running);
        for mut seen in seen {
            let (kind, of) = (seen.job.kind, seen.job.of.clone());
            let name = JobName { kind, of };
            if let Some(known) = before.remove(&name) {
                seen.began = known.began;
                seen.role = known.role.or(seen.role);
            }
            seen.job.running_s = now.since(seen.began).as_secs_f64();
            jobs.ended.retain(|ended| ended.name != seen.job.name);
            jobs.running.insert(name, seen);
        }
        for (name, seen) in before {
            let (state, about) = match jobs.cancelled.contains(&name) {
                true => (JobState::Cancelled, cancelled(name.kind).to_owned()),
                false => self.outcome(&name, &seen),
            };
            jobs.ended.retain(|ended| ended.name != seen.job.name);
            jobs.ended.push_back(Job {
                state,
                about,
                left_s: None,
                can_cancel: false,
                percent: if state == JobState::Done {
                    Some(100.0)
                } else {
                    seen.job.percent
                },
                ..seen.job
            });
            if jobs.ended.len() > ENDED_MAX {
                jobs.ended.pop_front();
            }
        }
        let running: Vec<JobName> = jobs.running.keys().cloned().collect();
        jobs.cancelled.retain(|name| running.contains(name));
    }

    /// The result of a job that was not cancelled.
    fn outcome(&self, name: &JobName, seen: &SeenJob) -> (JobState, String) {
        let failed = |why: &str| (JobState::Failed, why.to_owned());
        let done = |what: &str| (JobState::Done, what.to_owned());
        if name.kind == JobKind::Detach {
            let volumes = self.volumes.borrow();
            let mut volumes = volumes.iter();
            let volume = volumes.find(|(known, _)| known.as_str() == name.of);
            return match volume.is_some_and(|(_, v)| v.volume.log().is_some()) {
                true => failed("the volume keeps its log"),
                false => done("the origin has everything"),
            };
        }
        let Ok(running) = self.devices.running(&name.of) else {
            return failed("the array was closed before");
        };
        let report = running.array().report();
        match (name.kind, &seen.role) {
            (JobKind::Scrub, _) => match &*running.scrub.borrow() {
                Some(scrub) if scrub.error.is_none() => done(&format!(
                    "{} places differed, {} of them repaired, {} could not be read on one member",
                    scrub.mismatches, scrub.repaired, scrub.unreadable
                )),
                Some(scrub) => failed(scrub.error.as_deref().unwrap_or_default()),
                None => failed("the array was assembled again before"),
            },
            (JobKind::Replace, Some((role, old))) => {
                match report.members[*role].device.as_deref() == old.as_deref() {
                    true => failed("the old member stays; see the events of the array"),
                    false => done("the new member serves"),
                }
            }
            (JobKind::Rebuild, Some((role, _))) => match report.members[*role].state {
                MemberState::InSync => done("the member is in sync"),
                _ => failed("the member is not in sync; see the events of the array"),
            },
            _ => match running.array().is_settled() {
                true => done("copies agree"),
                false => failed("it goes on later"),
            },
        }
    }

    /// All running jobs, then ended ones, the newest last.
    pub(crate) fn report_jobs(&self) -> Vec<Job> {
        self.look_at_jobs();
        let jobs = self.jobs.borrow();
        let running = jobs.running.values().map(|seen| &seen.job);
        running.chain(&jobs.ended).cloned().collect()
    }

    /// Pauses or resumes a job.
    pub(super) fn pause(&self, job: &str, paused: bool) -> Result<(), Refusal> {
        let name = JobName::parse(job)?;
        self.look_at_jobs();
        if !self.jobs.borrow().running.contains_key(&name) {
            return Err(ended(&name));
        }
        let Some(detaching) = self.detaching(&name) else {
            return Err(format!(
                "job {name} is not paused: only one that gives up a log is"
            ));
        };
        detaching.pause(paused, self.env().timer.now());
        Ok(())
    }

    /// Cancels a job.
    pub(super) async fn cancel(&self, job: &str) -> Result<(), Refusal> {
        let name = JobName::parse(job)?;
        self.look_at_jobs();
        if !self.jobs.borrow().running.contains_key(&name) {
            return Err(ended(&name));
        }
        // A look before the job's end finds the cancellation.
        let is_first = self.jobs.borrow_mut().cancelled.insert(name.clone());
        if let Err(why) = self.end_job(&name).await {
            if is_first {
                self.jobs.borrow_mut().cancelled.remove(&name);
            }
            return Err(why);
        }
        self.platform.event(NodeEvent::JobCancelled {
            job: name.to_string(),
        });
        Ok(())
    }

    /// Makes a job end.
    async fn end_job(&self, name: &JobName) -> Result<(), Refusal> {
        match name.kind {
            JobKind::Resync => {
                return Err(format!(
                    "job {name} is not cancelled: until copies agree, the loss of a member could \
                     change what is read"
                ));
            }
            JobKind::Scrub => {
                self.devices.running(&name.of)?.array().cancel_scrub();
            }
            JobKind::Replace => {
                self.devices.cancel_replacement(&name.of).await?;
            }
            JobKind::Rebuild => {
                return Err(format!(
                    "job {name} is not cancelled: until the member is filled, the loss of another \
                     could lose data; `hotset array fail` puts the member out"
                ));
            }
            JobKind::Detach => {
                if let Some(detaching) = self.detaching(name) {
                    detaching.cancel();
                }
            }
        }
        Ok(())
    }
}

fn ended(name: &JobName) -> Refusal {
    format!("no job {name} goes on; see `hotset job list`")
}

/// The leftovers of a cancelled job of this kind.
fn cancelled(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Replace => "the old member stays",
        JobKind::Scrub => "what it repaired stays, and the next starts over",
        JobKind::Detach => "the volume keeps its log",
        JobKind::Rebuild | JobKind::Resync => "it goes on later",
    }
}
