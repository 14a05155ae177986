//! Reassembles an array that has lost too many members, once the needed ones answer.
//!
//! The array's user keeps its device; its requests wait meanwhile. An unplugged device is a new
//! device after its return, so it must be reopened. The array still has the old device, and must be
//! reassembled even if it never stopped.
//!
//! Invariant: members are reopened ⟹ the old array has no requests in flight on them.

use super::{Lease, OpenDevices, RunningArray, StartAttempt, release_all};
use crate::Later;
use crate::event::NodeEvent;
use crate::place::OpenedPlace;
use crate::platform::Platform;
use block::{BoxDevice, Device as _, IoErrorKind, IoResult};
use control::config::Name;
use raid::{ArrayCondition, ArrayStart, MemberState};
use std::rc::Rc;

impl<P: Platform> OpenDevices<P> {
    /// Reassembles `name` if needed. Returns true if the device or array can be used again.
    pub(super) fn reopen<'a>(&'a self, name: &'a Name) -> Later<'a, IoResult<bool>> {
        Box::pin(async move {
            let Ok(running) = self.running(name.as_str()) else {
                return Ok(true);
            };
            let report = running.array().report();
            if !running.outdated.get() {
                let needed = self.needed(&running, &report);
                let redundant = report.level.is_redundant() && report.down.is_none();
                // A redundant array that goes on without a member searches for the member itself.
                if redundant && self.any_answers(&running, &needed).await {
                    running.errors.set(errors(&report));
                    return Ok(true);
                }
                running.needed.replace(needed);
            }
            let needed = running.needed.borrow().clone();
            for member in &needed {
                let ready = self.reopen(member).await? && self.answers(&running, member).await;
                if !ready && !self.open_again(&running, member).await {
                    return Ok(false);
                }
            }
            if running.outdated.get() || report.down.is_some() {
                self.reassemble(&running).await?;
            }
            running.errors.set(errors(&running.array().report()));
            Ok(true)
        })
    }

    /// The members in sync: no other member has all data of the array.
    fn needed(&self, running: &RunningArray, report: &ArrayCondition) -> Vec<Name> {
        let (open, called) = (self.open.borrow(), self.called.borrow());
        let has = |name: &Name| {
            let role = running.role(name.as_str(), &called).ok()?;
            Some(report.members[role].state == MemberState::InSync)
        };
        let all = self.members_of(running).into_iter();
        all.filter(|name| open.contains_key(name) && has(name) == Some(true))
            .collect()
    }

    /// True if the device `name` is open and can be read.
    async fn answers(&self, running: &RunningArray, name: &Name) -> bool {
        let leaf = self.open.borrow().get(name).map(|o| o.leaf.clone());
        let Some(leaf) = leaf else { return false };
        let device = BoxDevice::new(leaf);
        self.examine(&running.config, &device).await.is_ok()
    }

    async fn any_answers(&self, running: &RunningArray, names: &[Name]) -> bool {
        for name in names {
            if self.answers(running, name).await {
                return true;
            }
        }
        false
    }

    /// Reopens a device that comes back in no other way, in place of the one open under this name.
    /// Any other device comes back by itself, and the caller waits.
    async fn open_again(&self, running: &RunningArray, name: &Name) -> bool {
        let Some(source) = self.find(name) else {
            return false;
        };
        let open = self.open.borrow().get(name).map(OpenedPlace::must_reopen);
        if open == Some(false) {
            return false;
        }
        running.outdated.set(true);
        self.open.borrow_mut().remove(name);
        self.open_member(running, &source).await.is_ok() && self.answers(running, name).await
    }

    /// Reassembles an array from the members that are present.
    async fn reassemble(&self, running: &Rc<RunningArray>) -> IoResult {
        running.place.pause().await;
        let result = self.exchange(running).await;
        running.place.resume();
        result
    }

    async fn exchange(&self, running: &Rc<RunningArray>) -> IoResult {
        let config = &self.array_of(running);
        running.array().release().await;
        running.outdated.set(true);
        for member in self.members_of(running) {
            // The failed end of an array below is known already.
            let _ = self.close(&member).await;
        }
        let mut attempt = StartAttempt::default();
        let members = self.members(config, &mut attempt).await;
        let is_out = |name: &Name| running.by_hand.borrow().contains(name);
        let (out, all): (Vec<_>, _) = members.into_iter().partition(|m| is_out(m.name()));
        release_all(out).await;
        let started = self
            .start(config, &all, &mut attempt, ArrayStart::default())
            .await;
        let swapped = started.and_then(|array| match running.ended.get() {
            false => running.place.swap(array),
            true => Err(array
                .geometry()
                .error(IoErrorKind::Gone, "was closed meanwhile")),
        });
        if let Err(error) = swapped {
            release_all(all).await;
            return Err(error);
        }
        self.report(attempt.events);
        self.report_absent(config, &attempt.absent);
        self.platform.event(NodeEvent::ArrayReassembled {
            array: config.name.value.clone(),
        });
        all.into_iter().for_each(Lease::keep);
        running.outdated.set(false);
        running.reported.set(0);
        Ok(())
    }
}

/// Number of failed requests of all members.
fn errors(report: &ArrayCondition) -> u64 {
    let counts = report.members.iter().map(|member| member.counts);
    counts.map(|c| c.read_errors + c.write_errors).sum()
}

impl RunningArray {
    /// True if the array has a fault that it does not recover from by itself.
    pub(super) fn is_troubled(&self) -> bool {
        let report = self.array().report();
        report.down.is_some() || self.outdated.get() || errors(&report) != self.errors.get()
    }
}
