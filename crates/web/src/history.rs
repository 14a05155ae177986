//! The history of the daemon: its reports as figures over time, kept over restarts.
//!
//! Invariants:
//!     all is in one file of fixed size, of which each record has a checksum of its own
//!     a file that cannot be used costs the history, never the service
//!
//! - [`measure`]: the sample between two reports.
//! - [`sample`]: the figures of a span of time.
//! - [`file`]: the file of the samples.

mod file;
mod measure;
pub mod sample;

#[cfg(any(test, feature = "fuzzing"))]
pub use file::hostile;

use crate::report::DaemonReport;
use file::{HistoryFile, IntervalRing, RINGS};
use sample::Sample;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Samples in an answer; more are merged.
const SAMPLES_MAX: u64 = 720;
/// Reports that are further apart, in intervals of the ring, are no sample of one interval.
const APART_MAX: f64 = 3.0;

/// A report, and the interval of a ring in which it came.
type Begun = (u64, Arc<DaemonReport>);

/// The history of a daemon.
pub struct DaemonHistory {
    file: Result<HistoryFile, String>,
    /// The report at which the present interval of each ring began.
    begun: [Option<Begun>; RINGS.len()],
}

/// A span of time of a history.
#[derive(Debug, PartialEq)]
pub struct HistoryRange {
    /// The time from one sample to the next.
    pub step_s: u64,
    /// The samples of the span, the oldest first.
    pub samples: Vec<Sample>,
}

/// Seconds since 1970.
pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

impl DaemonHistory {
    /// Loads the history from the file at `path`. Returns the fault of that file too, if any: a
    /// file that is no history of this version is kept beside a new one.
    pub fn load(path: &Path) -> (DaemonHistory, Option<String>) {
        let (file, wrong) = match HistoryFile::open(path) {
            Ok((file, wrong)) => (Ok(file), wrong),
            Err(why) => (Err(why.clone()), Some(why)),
        };
        let begun = Default::default();
        (DaemonHistory { file, begun }, wrong)
    }

    /// The reason why something is not kept, if so.
    pub fn trouble(&self) -> Option<&str> {
        match &self.file {
            Ok(file) => file.trouble(),
            Err(why) => Some(why),
        }
    }

    /// Takes a report, or its absence, at `now`.
    pub fn observe(&mut self, now: u64, report: Option<&Arc<DaemonReport>>) {
        let Some(report) = report else {
            self.begun = Default::default();
            return;
        };
        for (ring, begun) in RINGS.iter().zip(&mut self.begun) {
            let interval = now / ring.step_s;
            if let Some((same, _)) = begun
                && *same == interval
            {
                continue;
            }
            if let Some((ended, before)) = begun.replace((interval, report.clone()))
                && let Ok(file) = &mut self.file
            {
                keep(file, ring, ended, &before, report);
            }
        }
    }

    /// The samples of a volume, or of all of them, from one time to another.
    pub fn range(&self, volume: Option<&str>, from: u64, to: u64, now: u64) -> HistoryRange {
        let reaches = |ring: &&IntervalRing| from >= now.saturating_sub(ring.span_s());
        let ring = RINGS
            .iter()
            .find(reaches)
            .unwrap_or(&RINGS[RINGS.len() - 1]);
        let to = to.min(now);
        let from = from.max(to.saturating_sub(ring.span_s()));
        let intervals = to.saturating_sub(from).div_ceil(ring.step_s);
        let step_s = ring.step_s * intervals.div_ceil(SAMPLES_MAX).max(1);
        let mut found = match &self.file {
            Ok(file) => file.read(volume, ring),
            Err(_) => Vec::new(),
        };
        found.retain(|sample| (from..to).contains(&sample.at));
        found.sort_by_key(|sample| sample.at);
        let together = found.chunk_by(|a, b| a.at / step_s == b.at / step_s);
        let samples = together.map(|some| sample::merged(some[0].at / step_s * step_s, some));
        let samples = samples.collect();
        HistoryRange { step_s, samples }
    }
}

/// Keeps the difference of two reports as the sample of an interval of a ring.
fn keep(
    file: &mut HistoryFile,
    ring: &IntervalRing,
    interval: u64,
    before: &DaemonReport,
    now: &DaemonReport,
) {
    let span_s = now.at.duration_since(before.at).as_secs_f64();
    let is_one = span_s > 0.0 && span_s < APART_MAX * ring.step_s as f64;
    if is_one && before.status.pid == now.status.pid {
        let at = interval * ring.step_s;
        let found = measure::between(at, &before.status, &now.status, span_s);
        file.write(ring, &found);
    }
}

/// Compares an arbitrary report with itself and with an empty one.
#[cfg(any(test, feature = "fuzzing"))]
pub fn compared(status: &control::status::Status) {
    let mut before = status.clone();
    measure::between(0, &before, status, 1.0);
    for volume in &mut before.volumes {
        volume.read_total = Default::default();
        volume.write_total = Default::default();
    }
    measure::between(0, &before, status, 1.0);
}

#[cfg(test)]
mod tests;
