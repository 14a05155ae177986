//! Classes met and violations found by a storm.

use crate::weather::Weather;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A violation.
#[derive(Clone, Debug, Serialize)]
pub struct StormViolation {
    /// Seed of the storm.
    pub seed: u64,
    /// Number of the daemon's life.
    pub life: u64,
    /// Summary of the storm's configuration.
    pub about: String,
    /// Description of the violation.
    pub what: String,
    /// Events of that life before.
    pub before: Vec<String>,
    /// Command that runs the storm again.
    pub replay: String,
}

/// A device that was reported as lost.
#[derive(Clone)]
pub struct ReportedLoss {
    /// Texts, one of which an event of the device has.
    pub texts: Vec<String>,
    /// Time of the first report.
    pub seen: Instant,
}

struct FindingsShared {
    /// Beginning of the life.
    began: Instant,
    met: BTreeMap<String, u64>,
    wrong: Vec<String>,
    happened: Vec<String>,
    requests: u64,
    longest: Duration,
    longest_status: Duration,
    lost: BTreeMap<String, ReportedLoss>,
    blamed: BTreeSet<String>,
    origins_failed: BTreeSet<usize>,
    /// True if all messages of this life's daemons are kept.
    heard: bool,
}

/// Results so far, from many threads, and a file with all events of all lives.
pub struct StormFindings(Mutex<FindingsShared>, File);

/// Results of storms.
#[derive(Default, Serialize)]
pub struct StormReport {
    /// Number of storms.
    pub storms: u64,
    /// Number of lives of daemons.
    pub lives: u64,
    /// Number of requests of clients.
    pub requests: u64,
    /// Longest request, in seconds, rightly held up or not.
    pub longest_request_s: f64,
    /// Longest time of a report, in seconds.
    pub longest_status_s: f64,
    /// Greatest factor of limits over those of an idle machine.
    pub load_max: f64,
    /// Count of each class met.
    pub met: BTreeMap<String, u64>,
    /// Class met least often, and its count.
    pub rarest: String,
    /// Classes that were not met.
    pub never: Vec<String>,
    /// Violations.
    pub violations: Vec<StormViolation>,
}

impl StormReport {
    /// An empty report on all these classes.
    pub fn of(classes: Vec<String>) -> StormReport {
        StormReport {
            met: classes.into_iter().map(|class| (class, 0)).collect(),
            ..StormReport::default()
        }
    }

    /// Adds the results of other storms.
    pub fn add(&mut self, other: StormReport) {
        self.storms += other.storms;
        self.lives += other.lives;
        self.requests += other.requests;
        self.longest_request_s = self.longest_request_s.max(other.longest_request_s);
        self.longest_status_s = self.longest_status_s.max(other.longest_status_s);
        self.load_max = self.load_max.max(other.load_max);
        for (class, times) in other.met {
            *self.met.entry(class).or_default() += times;
        }
        self.violations.extend(other.violations);
    }

    /// Fills in the rarest class, and the classes that were not met.
    pub fn count(&mut self) {
        let met = self.met.iter().filter(|(_, times)| **times > 0);
        let rarest = met.min_by_key(|(_, times)| **times);
        self.rarest = rarest.map_or(String::new(), |(class, times)| format!("{class}: {times}"));
        let never = self.met.iter().filter(|(_, times)| **times == 0);
        self.never = never.map(|(class, _)| class.clone()).collect();
    }
}

impl StormFindings {
    /// Empty results; events go to this file.
    pub fn new(log: File) -> StormFindings {
        let inner = Mutex::new(FindingsShared {
            began: Instant::now(),
            met: BTreeMap::new(),
            wrong: Vec::new(),
            happened: Vec::new(),
            requests: 0,
            longest: Duration::ZERO,
            longest_status: Duration::ZERO,
            lost: BTreeMap::new(),
            blamed: BTreeSet::new(),
            origins_failed: BTreeSet::new(),
            heard: true,
        });
        StormFindings(inner, log)
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, FindingsShared> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Counts a class.
    pub fn met(&self, what: &str) {
        *self.inner().met.entry(what.to_owned()).or_default() += 1;
    }

    /// Notes an action on the daemon or its devices.
    pub fn happens(&self, what: String) {
        let mut inner = self.inner();
        let at = inner.began.elapsed().as_secs_f64();
        let line = format!("{at:.3} s: {what}");
        // The log is for readers alone.
        let _ = writeln!(&self.1, "{line}");
        inner.happened.push(line);
    }

    /// Notes a violation.
    pub fn violation(&self, what: String) {
        self.happens(format!("wrong: {what}"));
        self.inner().wrong.push(what);
    }

    /// True if a violation was found.
    pub fn is_wrong(&self) -> bool {
        !self.inner().wrong.is_empty()
    }

    /// Notes the time of a request.
    pub fn request(&self, took: Duration) {
        let mut inner = self.inner();
        inner.requests += 1;
        inner.longest = inner.longest.max(took);
    }

    /// Notes the time of a report.
    pub fn status(&self, took: Duration) {
        let mut inner = self.inner();
        inner.longest_status = inner.longest_status.max(took);
    }

    /// Notes that the origin of a volume fails in this life.
    pub fn fail_origin(&self, volume: usize) {
        self.inner().origins_failed.insert(volume);
    }

    /// True if the origin of a volume has failed in this life.
    pub fn origin_failed(&self, volume: usize) -> bool {
        self.inner().origins_failed.contains(&volume)
    }

    /// Notes that a device is reported lost, of which an event has one of these texts. Returns true
    /// for the first report.
    pub fn lose(&self, device: &str, texts: Vec<String>) -> bool {
        let loss = ReportedLoss {
            texts,
            seen: Instant::now(),
        };
        let mut inner = self.inner();
        let is_news = !inner.lost.contains_key(device);
        inner.lost.entry(device.to_owned()).or_insert(loss);
        is_news
    }

    /// Returns the losses reported in this life, by device.
    pub fn lost(&self) -> BTreeMap<String, ReportedLoss> {
        self.inner().lost.clone()
    }

    /// Notes that a device is at fault in this life.
    pub fn blame(&self, device: &str) {
        self.inner().blamed.insert(device.to_owned());
    }

    /// True if a device was at fault in this life.
    pub fn is_blamed(&self, device: &str) -> bool {
        self.inner().blamed.contains(device)
    }

    /// Notes whether a daemon's messages are kept.
    pub fn hear(&self, heard: bool) {
        self.inner().heard &= heard;
    }

    /// True if all messages of this life are kept.
    pub fn is_heard(&self) -> bool {
        self.inner().heard
    }

    /// Begins another life.
    pub fn next_life(&self) {
        let mut inner = self.inner();
        let _ = writeln!(&self.1, "another life");
        inner.began = Instant::now();
        inner.happened.clear();
        inner.lost.clear();
        inner.blamed.clear();
        inner.origins_failed.clear();
        inner.heard = true;
    }

    /// Takes the violations, each with the events before in this life.
    pub fn violations(
        &self,
        violation: impl Fn(&str, &[String]) -> StormViolation,
    ) -> Vec<StormViolation> {
        let mut inner = self.inner();
        let wrong = std::mem::take(&mut inner.wrong);
        wrong
            .iter()
            .map(|what| violation(what, &inner.happened))
            .collect()
    }

    /// Adds the classes met to `report`.
    pub fn add_to(&self, report: &mut StormReport, weather: &Weather) {
        let inner = self.inner();
        report.requests += inner.requests;
        let longest = report.longest_request_s.max(inner.longest.as_secs_f64());
        report.longest_request_s = longest;
        let longest = report
            .longest_status_s
            .max(inner.longest_status.as_secs_f64());
        report.longest_status_s = longest;
        report.load_max = report.load_max.max(weather.load_max());
        for (what, times) in &inner.met {
            *report.met.entry(what.clone()).or_default() += times;
        }
    }
}
