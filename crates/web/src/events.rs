//! Events of a daemon: the differences between its reports, kept over restarts.
//!
//! Invariant: an event is in the file before it is shown, unless the file cannot be written.
//!
//! Not here: a change between two reports that is undone before the second.

use control::replace::{PRIVATE, replace};
use control::status::Status;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Events that are kept; the file has at most twice as many lines.
const EVENTS_MAX: usize = 1000;

/// The severity of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventSeverity {
    /// A loss or a fault.
    Bad,
    /// The end of a fault.
    Good,
    /// A change.
    Info,
}

/// An event.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebEvent {
    /// The time of the report that showed the event, in seconds since 1970.
    pub at: u64,
    /// The severity.
    pub severity: EventSeverity,
    /// The subject of the event.
    pub subject: String,
    /// The event in words.
    pub text: String,
}

/// The state of each subject, and whether that is bad.
type Facts = BTreeMap<String, (String, bool)>;

/// The events so far.
#[derive(Default)]
pub struct EventHistory {
    path: PathBuf,
    kept: Vec<WebEvent>,
    lines: usize,
    /// The last line may have no end: its writer was cut off.
    is_torn: bool,
    facts: Option<Facts>,
}

impl EventHistory {
    /// The events of the file at `path`; lines that are no events are left out.
    pub fn load(path: &Path) -> EventHistory {
        let text = fs::read(path).unwrap_or_default();
        EventHistory::parse(path, &String::from_utf8_lossy(&text))
    }

    /// The events of the file at `path` with the contents `text`.
    pub fn parse(path: &Path, text: &str) -> EventHistory {
        let mut kept: Vec<WebEvent> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        kept.drain(..kept.len().saturating_sub(EVENTS_MAX));
        EventHistory {
            path: path.to_owned(),
            lines: text.lines().count(),
            kept,
            facts: None,
            is_torn: !text.is_empty() && !text.ends_with('\n'),
        }
    }

    /// All events that are kept, the oldest first.
    pub fn all(&self) -> &[WebEvent] {
        &self.kept
    }

    /// Compares a report, or its absence, with the one before.
    pub fn observe(&mut self, status: Option<&Status>) {
        let facts = match status {
            Some(status) => facts(status),
            // The other facts are compared once the daemon is back.
            None => {
                let mut facts = self.facts.clone().unwrap_or_default();
                let away = ("does not answer".to_owned(), true);
                facts.insert("daemon".to_owned(), away);
                facts
            }
        };
        let fresh = match &self.facts {
            Some(before) => differences(before, &facts),
            None => self.news(&facts),
        };
        self.facts = Some(facts);
        if !fresh.is_empty() {
            self.keep(fresh);
        }
    }

    /// The bad facts at the start, without those that the last events already have.
    fn news(&self, facts: &Facts) -> Vec<WebEvent> {
        let last = |subject: &str| self.kept.iter().rfind(|event| event.subject == subject);
        let bad = facts.iter().filter(|(_, (_, bad))| *bad);
        let unknown = bad
            .filter(|(subject, (text, _))| last(subject).is_none_or(|event| event.text != *text));
        unknown
            .map(|(subject, (text, _))| event(EventSeverity::Bad, subject, text))
            .collect()
    }

    fn keep(&mut self, fresh: Vec<WebEvent>) {
        let line = |event: &WebEvent| serde_json::to_string(event).expect("plain data") + "\n";
        let mut options = fs::OpenOptions::new();
        if self.lines + fresh.len() > 2 * EVENTS_MAX {
            self.lines = self.kept.len();
            let text: String = self.kept.iter().map(line).collect();
            // A full disk costs the record of events, not the service.
            let replaced = replace(&self.path, PRIVATE, text);
            self.is_torn &= replaced.is_err();
        }
        let mut text: String = fresh.iter().map(line).collect();
        if self.is_torn {
            text.insert(0, '\n');
        }
        if let Ok(mut file) = options.append(true).create(true).open(&self.path) {
            self.is_torn = file.write_all(text.as_bytes()).is_err();
        }
        self.lines += fresh.len();
        self.kept.extend(fresh);
        let over = self.kept.len().saturating_sub(EVENTS_MAX);
        self.kept.drain(..over);
    }
}

fn event(severity: EventSeverity, subject: &str, text: &str) -> WebEvent {
    WebEvent {
        at: crate::history::now(),
        severity,
        subject: subject.to_owned(),
        text: text.to_owned(),
    }
}

fn differences(before: &Facts, now: &Facts) -> Vec<WebEvent> {
    let mut events = Vec::new();
    for (subject, (text, bad)) in now {
        let severity = match (before.get(subject), bad) {
            (Some((same, _)), _) if same == text => continue,
            (_, true) => EventSeverity::Bad,
            (Some((_, true)), false) => EventSeverity::Good,
            (_, false) => EventSeverity::Info,
        };
        events.push(event(severity, subject, text));
    }
    for (subject, (_, bad)) in before {
        if !now.contains_key(subject) {
            let (severity, text) = match bad {
                true => (EventSeverity::Good, "is no trouble any more"),
                false => (EventSeverity::Info, "is there no more"),
            };
            events.push(event(severity, subject, text));
        }
    }
    events
}

/// The state of each subject. A state is bad ⟺ the daemon lists it as a trouble.
fn facts(status: &Status) -> Facts {
    let mut facts = Facts::new();
    let mut add = |subject: String, text: String| facts.insert(subject, (text, false));
    add("daemon".into(), format!("answers, process {}", status.pid));
    for volume in &status.volumes {
        let text = format!("is served, {}", volume.standing());
        add(format!("volume {}", volume.name), text);
    }
    for pool in &status.pools {
        for device in &pool.devices {
            let subject = format!("device {} of pool {}", device.name, pool.name);
            add(subject, format!("is {}", device.state));
        }
    }
    for array in &status.arrays {
        add(
            format!("array {}", array.name),
            format!("is {}", array.state),
        );
        for member in &array.members {
            let subject = format!("member {} of array {}", member.role, array.name);
            let device = member.device.as_deref().unwrap_or("no device");
            add(subject, format!("{device} is {}", member.state));
        }
    }
    let mut troubles: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for trouble in &status.troubles {
        troubles
            .entry(&trouble.subject)
            .or_default()
            .push(&trouble.what);
    }
    for (subject, what) in troubles {
        facts.insert(subject.to_owned(), (what.join("; "), true));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use control::trouble::TroubleKind;

    fn reported(events: &EventHistory) -> Vec<(EventSeverity, &str, &str)> {
        let severity = |event: &'_ WebEvent| event.severity;
        let events = events.all().iter();
        events
            .map(|e| (severity(e), &*e.subject, &*e.text))
            .collect()
    }

    #[test]
    fn differences_are_kept_over_restarts_and_known_trouble_is_not_reported_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut status = sample::report().status;
        status.arrays.clear();
        status
            .troubles
            .retain(|trouble| trouble.kind == TroubleKind::PoolDeviceEjected);
        let mut events = EventHistory::load(&path);
        events.observe(Some(&status));
        let ejected = (
            EventSeverity::Bad,
            "device ssd of pool fast",
            "was ejected (error)",
        );
        assert_eq!(reported(&events), [ejected]);
        status.pools[0].devices[0].state = "online".into();
        let trouble = status.troubles.pop().unwrap();
        status.volumes[0].mode = "pass-through".into();
        events.observe(Some(&status));
        events.observe(Some(&status));
        events.observe(None);
        events.observe(None);
        events.observe(Some(&status));
        let expected = [
            ejected,
            (EventSeverity::Good, "device ssd of pool fast", "is online"),
            (
                EventSeverity::Info,
                "volume <script>",
                "is served, pass-through",
            ),
            (EventSeverity::Bad, "daemon", "does not answer"),
            (EventSeverity::Good, "daemon", "answers, process 1"),
        ];
        assert_eq!(reported(&events), expected);
        let mut again = EventHistory::load(&path);
        assert_eq!(reported(&again), expected);
        status.troubles.push(trouble);
        again.observe(Some(&status));
        assert_eq!(again.all().len(), 6);
        let mut third = EventHistory::load(&path);
        third.observe(Some(&status));
        assert_eq!(third.all().len(), 6);
    }

    #[test]
    fn after_a_torn_line_and_a_byte_that_is_no_text_all_other_events_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let kept = |events: &mut EventHistory, text: &str| {
            events.keep(vec![event(EventSeverity::Info, "x", text)]);
        };
        kept(&mut EventHistory::load(&path), "first");
        let mut damaged = fs::read(&path).unwrap();
        damaged.extend(b"\xff\xfe\n{\"at\":1,\"sever");
        fs::write(&path, damaged).unwrap();
        kept(&mut EventHistory::load(&path), "second");
        let events = EventHistory::load(&path);
        let texts: Vec<&str> = events.all().iter().map(|event| &*event.text).collect();
        assert_eq!(texts, ["first", "second"]);
    }

    #[test]
    fn the_file_is_bounded_and_may_be_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        fs::write(&path, "nonsense\n{}\n").unwrap();
        let mut events = EventHistory::load(&path);
        assert!(events.all().is_empty());
        for i in 0..5 * EVENTS_MAX {
            let text = i.to_string();
            events.keep(vec![event(EventSeverity::Info, "x", &text)]);
        }
        assert_eq!(events.all().len(), EVENTS_MAX);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() <= 2 * EVENTS_MAX + 1);
        assert_eq!(EventHistory::load(&path).all(), events.all());
    }
}
