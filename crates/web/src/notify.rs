//! Announces troubles: one message at the start of each, and one at its end.
//!
//! Invariants:
//!     a trouble is announced ⟺ the file of the channel has it: so a restart repeats nothing,
//!     and announces the end of troubles meanwhile
//!     at most one message is in flight on each channel, and waiting messages are bounded by
//!     [`TROUBLES_MAX`]: a trouble that comes and goes while a message cannot be delivered is
//!     left out
//!
//! Not here: the troubles of a daemon, which the daemon lists; its absence alone is found here.

mod mail;
mod webhook;

pub use mail::Mail;
pub use webhook::Webhook;

use control::plain;
use control::replace::{PRIVATE, replace};
use control::status::Status;
use control::trouble::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Troubles of one daemon that are announced; of more, those that come first by name.
const TROUBLES_MAX: usize = 1000;
/// Longest absence of a daemon that is no trouble: a restart takes less.
const AWAY: Duration = Duration::from_secs(15);
/// The first and the longest pause after a message that was not delivered.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];
/// Time limit of a delivery.
const DELIVERY_MAX: Duration = Duration::from_secs(10);

/// A trouble and its subject.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TroubleAbout {
    /// The kind in docs/troubles.md, or `daemon-away`.
    kind: String,
    severity: String,
    subject: String,
    what: String,
    cost: String,
    remedy: String,
}

/// The start or the end of a trouble.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Notice {
    /// `begun` or `ended`.
    event: &'static str,
    /// The time at which that was noticed, in seconds since 1970.
    at: u64,
    /// The machine of the server.
    host: String,
    #[serde(flatten)]
    about: TroubleAbout,
    /// The whole notice in a line.
    text: String,
}

/// A way of delivery.
pub trait NoticeChannel: Send + 'static {
    /// Its name in messages and in the name of its file.
    fn name(&self) -> &'static str;
    /// Delivers a notice, or returns the reason of the failure.
    fn deliver(&self, notice: &Notice) -> Result<(), String>;
}

/// Troubles by kind and subject.
type Troubles = BTreeMap<String, TroubleAbout>;

/// The present troubles.
#[derive(Default)]
struct Present {
    /// The troubles of the last report, if there was one.
    troubles: Option<Troubles>,
    /// The time since which the daemon has not answered.
    silent: Option<Instant>,
    /// The absence has become a trouble.
    is_away: bool,
}

/// Takes reports, and announces their troubles.
#[derive(Clone, Default)]
pub struct Notifier(Arc<(Mutex<Present>, Condvar)>);

impl Notifier {
    /// Announces by `channel` from now on, with its announced troubles kept in `state`.
    pub fn begin(&self, channel: impl NoticeChannel, state: &Path) -> Result<(), String> {
        let announced = Announced::load(&state.join(format!("announced-{}", channel.name())));
        let notifier = self.clone();
        let thread = std::thread::Builder::new().name(channel.name().to_owned());
        let begun = thread.spawn(move || notifier.announce(&channel, announced));
        let failed =
            |error| format!("no thread can be had for notices ({error}); free some memory");
        begun.map(drop).map_err(failed)
    }

    /// Takes a report, or its absence.
    pub fn observe(&self, status: Option<&Status>) {
        let mut present = self.0.0.lock().expect("no holder panics");
        match status {
            Some(status) => {
                let troubles = Some(listed(&status.troubles));
                *present = Present {
                    troubles,
                    ..Present::default()
                };
            }
            // The other troubles go on, as far as is known.
            None => {
                let silent = present.silent.get_or_insert_with(Instant::now);
                present.is_away = silent.elapsed() >= AWAY;
            }
        }
        self.0.1.notify_all();
    }

    /// Delivers one notice after the other, for ever.
    fn announce(&self, channel: &impl NoticeChannel, mut announced: Announced) {
        let mut pause = PAUSES[0];
        let mut is_failing = false;
        loop {
            let notice = self.next(&announced.troubles);
            let Err(why) = channel.deliver(&notice) else {
                announced.keep(notice);
                (pause, is_failing) = (PAUSES[0], false);
                continue;
            };
            if !std::mem::replace(&mut is_failing, true) {
                let line = format!(
                    "hotset web: no notice goes out by {}: {}\n",
                    channel.name(),
                    plain(why)
                );
                let _ = std::io::stderr().write_all(line.as_bytes());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Waits for a trouble that is to be announced.
    fn next(&self, announced: &Troubles) -> Notice {
        let (present, changed) = &*self.0;
        let mut present = present.lock().expect("no holder panics");
        loop {
            if let Some(notice) = difference(announced, &present) {
                return notice;
            }
            present = changed.wait(present).expect("no holder panics");
        }
    }
}

/// A trouble that is not announced, or else an announced one that has ended.
fn difference(announced: &Troubles, present: &Present) -> Option<Notice> {
    let away = present.is_away.then(away);
    let known = present.troubles.iter().flatten();
    let mut now = known.chain(away.iter().map(|(key, about)| (key, about)));
    if let Some((_, about)) = now.find(|(key, _)| !announced.contains_key(*key)) {
        return Some(Notice::new("begun", about.clone()));
    }
    // Before the first report nothing is known to have ended.
    let known = present.troubles.as_ref()?;
    let is_so =
        |key: &String| known.contains_key(key) || away.as_ref().is_some_and(|(k, _)| k == key);
    let (_, about) = announced.iter().find(|(key, _)| !is_so(key))?;
    Some(Notice::new("ended", about.clone()))
}

fn listed(troubles: &[Trouble]) -> Troubles {
    let about = |trouble: &Trouble| TroubleAbout {
        kind: trouble.kind.name().to_owned(),
        severity: trouble.severity.name().to_owned(),
        subject: trouble.subject.clone(),
        what: trouble.what.clone(),
        cost: trouble.cost.clone(),
        remedy: trouble.remedy.clone(),
    };
    let mut troubles: Troubles = troubles.iter().map(about).map(keyed).collect();
    while troubles.len() > TROUBLES_MAX {
        troubles.pop_last();
    }
    troubles
}

/// The trouble of an absent daemon.
fn away() -> (String, TroubleAbout) {
    keyed(TroubleAbout {
        kind: "daemon-away".into(),
        severity: "critical".into(),
        subject: "the daemon".into(),
        what: "does not answer".into(),
        cost: "its clients may have no volume".into(),
        remedy: "see `systemctl status hotset` and its log, or start `hotset serve`".into(),
    })
}

fn keyed(about: TroubleAbout) -> (String, TroubleAbout) {
    (format!("{} {}", about.kind, about.subject), about)
}

impl Notice {
    /// The notice that a trouble has begun or ended just now.
    fn new(event: &'static str, about: TroubleAbout) -> Notice {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        let TroubleAbout {
            subject,
            what,
            cost,
            remedy,
            ..
        } = &about;
        let text = match event {
            "begun" => format!("hotset on {host}: {subject} {what}; {cost}. Remedy: {remedy}."),
            _ => format!("hotset on {host}: ended: {subject} {what}."),
        };
        let at = crate::history::now();
        Notice {
            event,
            at,
            host,
            about,
            text,
        }
    }
}

/// The troubles that a channel has announced, and the file that has them.
struct Announced {
    path: PathBuf,
    troubles: Troubles,
}

impl Announced {
    /// The troubles in the file; none if the file cannot be read.
    fn load(path: &Path) -> Announced {
        let text = fs::read(path).unwrap_or_default();
        let all: Vec<TroubleAbout> = serde_json::from_slice(&text).unwrap_or_default();
        let (path, troubles) = (path.to_owned(), all.into_iter().map(keyed).collect());
        Announced { path, troubles }
    }

    /// Takes a notice that was delivered. A notice that cannot be written may be repeated after a
    /// restart.
    fn keep(&mut self, notice: Notice) {
        let (key, about) = keyed(notice.about);
        match notice.event {
            "begun" => self.troubles.insert(key, about),
            _ => self.troubles.remove(&key),
        };
        let all: Vec<&TroubleAbout> = self.troubles.values().collect();
        let text = serde_json::to_vec(&all).expect("plain data");
        let _ = replace(&self.path, PRIVATE, text);
    }
}

#[cfg(test)]
mod tests;
