//! The reports of a node's arrays.

use crate::arrays::{DeviceNames, OpenDevices, RunningArray};
use crate::node::Node;
use crate::platform::Platform;
use block::{Nanos, Sectors};
use control::config;
use control::status::{ArrayReport, MemberStatus, ProgressReport};
use raid::{ArrayCondition, MemberState};
use std::sync::Arc;

/// Number of events shown.
const EVENTS_SHOWN: usize = 8;

impl<P: Platform> Node<P> {
    /// All arrays that run or should run.
    pub(super) fn arrays(&self, now: Nanos) -> Vec<ArrayReport> {
        self.devices.reports(now)
    }
}

impl<P: Platform> OpenDevices<P> {
    /// All arrays that run, or failed to start at the last attempt.
    pub fn reports(&self, now: Nanos) -> Vec<ArrayReport> {
        let names = self.names();
        let running = self.running.borrow();
        let inactive = self.inactive.borrow();
        let time = self.platform.time_of_day();
        let running = running.iter().map(|one| array(one, &names, now, time));
        let inactive = inactive
            .values()
            .map(|(config, why)| inactive_array(config, why));
        running.chain(inactive).collect()
    }
}

/// The report of an array that could not start.
fn inactive_array(config: &config::Array, why: &str) -> ArrayReport {
    ArrayReport {
        name: config.name.value.to_string(),
        level: config.level.value.name().to_owned(),
        state: "inactive".to_owned(),
        size_bytes: 0,
        chunk_bytes: config.chunk.value.0,
        uuid: None,
        members: Vec::new(),
        spares: Vec::new(),
        progress: None,
        scrub: None,
        scrubbed_s: None,
        scrub_due_s: None,
        lost_bytes: 0,
        down: None,
        inactive: Some(why.to_owned()),
        warnings: Vec::new(),
        events: Vec::new(),
    }
}

fn array(running: &RunningArray, names: &DeviceNames, now: Nanos, time_of_day: u64) -> ArrayReport {
    let report = running.array().report();
    let named = |device: &Arc<str>| match names.get(device) {
        Some(name) => name.to_string(),
        None => device.to_string(),
    };
    let members = report.members.iter().map(|member| MemberStatus {
        role: member.role as u32,
        device: member.device.as_ref().map(named),
        controller: member.domain.as_ref().map(ToString::to_string),
        state: match (member.state, &member.device) {
            (_, None) => "missing",
            (MemberState::InSync, _) => "in sync",
            (MemberState::Rebuilding { .. }, _) => "filling",
            (MemberState::Failed { .. }, _) => "lost",
        }
        .to_owned(),
        reads: member.counts.reads,
        writes: member.counts.writes,
        read_errors: member.counts.read_errors,
        write_errors: member.counts.write_errors,
        repaired: member.counts.repaired,
    });
    let progress = report.progress.map(|progress| ProgressReport {
        role: progress.role.map(|role| role as u32),
        percent: 100.0 * progress.done.0 as f64 / progress.total.0.max(1) as f64,
        left_s: progress.left(now).map(|left| left.as_secs_f64()),
    });
    let lost: Sectors = report
        .bad
        .iter()
        .fold(Sectors::ZERO, |sum, run| sum + run.len);
    let (scrubbed_s, scrub_due_s) = running.scrubs(time_of_day);
    let (events, _) = running.array().events();
    let events = events.iter().rev().take(EVENTS_SHOWN).rev();
    ArrayReport {
        name: report.name.to_string(),
        level: report.level.name().to_owned(),
        state: state(&report, running.array().is_settled()).to_owned(),
        size_bytes: report.sectors.bytes(),
        chunk_bytes: report.chunk.bytes(),
        uuid: report.uuid.map(|uuid| uuid.to_string()),
        members: members.collect(),
        spares: report.spares.iter().map(named).collect(),
        progress,
        scrub: running.scrub.borrow().clone(),
        scrubbed_s,
        scrub_due_s,
        lost_bytes: lost.bytes(),
        down: report.down.clone(),
        inactive: None,
        warnings: report.warnings.clone(),
        events: events.map(|event| event.what.clone()).collect(),
    }
}

/// The state of an array in one word.
fn state(report: &ArrayCondition, settled: bool) -> &'static str {
    let any = |wanted: fn(MemberState) -> bool| report.members.iter().any(|m| wanted(m.state));
    if report.down.is_some() {
        "failed"
    } else if any(|state| matches!(state, MemberState::Rebuilding { .. })) {
        "rebuilding"
    } else if any(MemberState::is_failed) {
        "degraded"
    } else if report.replaced.is_some() {
        "rebuilding"
    } else if !settled {
        "resyncing"
    } else {
        "healthy"
    }
}
