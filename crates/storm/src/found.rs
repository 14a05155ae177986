//! What a storm has met and found.

use crate::weather::Weather;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Something that must not be.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The storm's seed.
    pub seed: u64,
    /// In which life of its daemon.
    pub life: u64,
    /// What the storm's configuration was.
    pub about: String,
    /// What was wrong.
    pub what: String,
    /// What happened in that life before.
    pub before: Vec<String>,
    /// The command that runs the storm again.
    pub replay: String,
}

/// A device that was reported as lost.
#[derive(Clone)]
pub struct Loss {
    /// An event of it has one of these texts.
    pub texts: Vec<String>,
    /// When that was seen first.
    pub seen: Instant,
}

struct Inner {
    /// When the life began.
    began: Instant,
    met: BTreeMap<String, u64>,
    wrong: Vec<String>,
    happened: Vec<String>,
    requests: u64,
    longest: Duration,
    longest_status: Duration,
    lost: BTreeMap<String, Loss>,
    blamed: BTreeSet<String>,
    origins_failed: BTreeSet<usize>,
    /// Whether all that the daemons of this life say is kept.
    heard: bool,
}

/// What has been found, by many threads, and a file that has all that happens, of all lives.
pub struct Found(Mutex<Inner>, File);

/// What storms came to.
#[derive(Default, Serialize)]
pub struct Report {
    /// Storms.
    pub storms: u64,
    /// Lives of daemons.
    pub lives: u64,
    /// Requests of clients.
    pub requests: u64,
    /// The longest of them, in seconds, rightly held up or not.
    pub longest_request_s: f64,
    /// The longest that a report took, in seconds.
    pub longest_status_s: f64,
    /// By how many times limits were longer than on an idle machine, at the most.
    pub load_max: f64,
    /// How often each class of what may happen was met.
    pub met: BTreeMap<String, u64>,
    /// Of those that were met, the class that was least often, and how often.
    pub rarest: String,
    /// Those that were not met.
    pub never: Vec<String>,
    /// What was wrong.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Nothing yet, of all these classes.
    pub fn of(classes: Vec<String>) -> Report {
        Report {
            met: classes.into_iter().map(|class| (class, 0)).collect(),
            ..Report::default()
        }
    }

    /// Adds what other storms came to.
    pub fn add(&mut self, other: Report) {
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

    /// Says which class was met least often, and which were not met.
    pub fn count(&mut self) {
        let met = self.met.iter().filter(|(_, times)| **times > 0);
        let rarest = met.min_by_key(|(_, times)| **times);
        self.rarest = rarest.map_or(String::new(), |(class, times)| format!("{class}: {times}"));
        let never = self.met.iter().filter(|(_, times)| **times == 0);
        self.never = never.map(|(class, _)| class.clone()).collect();
    }
}

impl Found {
    /// Nothing yet; what happens goes to this file.
    pub fn new(log: File) -> Found {
        let inner = Mutex::new(Inner {
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
        Found(inner, log)
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Something that is counted was met.
    pub fn met(&self, what: &str) {
        *self.inner().met.entry(what.to_owned()).or_default() += 1;
    }

    /// Something was done to the daemon or its devices.
    pub fn happens(&self, what: String) {
        let mut inner = self.inner();
        let at = inner.began.elapsed().as_secs_f64();
        let line = format!("{at:.3} s: {what}");
        // It is there for people alone.
        let _ = writeln!(&self.1, "{line}");
        inner.happened.push(line);
    }

    /// Something was wrong.
    pub fn violation(&self, what: String) {
        self.happens(format!("wrong: {what}"));
        self.inner().wrong.push(what);
    }

    /// Whether something was wrong.
    pub fn is_wrong(&self) -> bool {
        !self.inner().wrong.is_empty()
    }

    /// A request has ended.
    pub fn request(&self, took: Duration) {
        let mut inner = self.inner();
        inner.requests += 1;
        inner.longest = inner.longest.max(took);
    }

    /// A report has come.
    pub fn status(&self, took: Duration) {
        let mut inner = self.inner();
        inner.longest_status = inner.longest_status.max(took);
    }

    /// The origin of a volume fails in this life.
    pub fn fail_origin(&self, volume: usize) {
        self.inner().origins_failed.insert(volume);
    }

    /// Whether the origin of a volume has failed in this life.
    pub fn origin_failed(&self, volume: usize) -> bool {
        self.inner().origins_failed.contains(&volume)
    }

    /// A device is reported as lost, of which an event has one of these texts; whether that is news.
    pub fn lose(&self, device: &str, texts: Vec<String>) -> bool {
        let loss = Loss {
            texts,
            seen: Instant::now(),
        };
        let mut inner = self.inner();
        let is_news = !inner.lost.contains_key(device);
        inner.lost.entry(device.to_owned()).or_insert(loss);
        is_news
    }

    /// What was reported as lost in this life, by device.
    pub fn lost(&self) -> BTreeMap<String, Loss> {
        self.inner().lost.clone()
    }

    /// A device is at fault in this life.
    pub fn blame(&self, device: &str) {
        self.inner().blamed.insert(device.to_owned());
    }

    /// Whether a device was at fault in this life.
    pub fn is_blamed(&self, device: &str) -> bool {
        self.inner().blamed.contains(device)
    }

    /// Whether what a daemon says is kept.
    pub fn hear(&self, heard: bool) {
        self.inner().heard &= heard;
    }

    /// Whether all that was said in this life is kept.
    pub fn is_heard(&self) -> bool {
        self.inner().heard
    }

    /// Another life begins.
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

    /// Takes what was wrong, each made a violation with what happened before in this life.
    pub fn violations(&self, violation: impl Fn(&str, &[String]) -> Violation) -> Vec<Violation> {
        let mut inner = self.inner();
        let wrong = std::mem::take(&mut inner.wrong);
        wrong
            .iter()
            .map(|what| violation(what, &inner.happened))
            .collect()
    }

    /// Adds what was met to `report`.
    pub fn add_to(&self, report: &mut Report, weather: &Weather) {
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
