//! Faults of the servers of exports while a daemon runs.

use crate::plan::{BACK, BYSTANDERS, VISITOR, one};
use crate::world::StormWorld;
use fastrand::Rng;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

/// Events of a server.
const EVENTS: [&str; 4] = [
    "restarts",
    "comes back late",
    "forgets what was not flushed",
    "has another's export for a while",
];
/// Time for the daemon to find an export that it recognises.
const FOUND_AGAIN: Duration = Duration::from_secs(8);

/// All events, by the role of the export.
pub fn classes() -> Vec<String> {
    let all = ["an origin", "a member"].iter();
    let all = all.flat_map(|what| EVENTS.iter().map(move |event| class(what, event)));
    all.collect()
}

fn class(what: &str, event: &str) -> String {
    format!("the server of {what} {event}")
}

impl StormWorld<'_> {
    /// Strikes the server of an origin or of a victim, if one exists.
    pub fn strike_export(&self, rng: &mut Rng) {
        let victims = self.standing.victims().into_iter();
        let mut names: Vec<String> = victims.map(|(_, device)| device).collect();
        let origins = self.plan.volumes[..VISITOR]
            .iter()
            .map(|volume| volume.origin.to_owned());
        names.extend(origins);
        names.retain(|name| self.plan.is_exported(name));
        let Some(name) = rng.choice(&names) else {
            return;
        };
        let mut volumes = self.plan.volumes.iter();
        let volume = volumes.position(|volume| volume.origin == name);
        let what = match volume {
            Some(_) => "an origin",
            None => "a member",
        };
        let event = one(rng, &EVENTS);
        // The log guards the writes that a write-back origin forgets: only one of the two may be at
        // fault. A log without a copy leaves later writes to the origin.
        let has_log = self.standing.log_is_whole() && !self.standing.log_may_fail();
        let guarded = volume != Some(BACK) || has_log;
        if event == EVENTS[2] && !guarded {
            return;
        }
        self.found.happens(format!("{name}: its server {event}"));
        self.found.met(&class(what, event));
        self.found.blame(name);
        match volume {
            Some(volume) => self.strike_origin(name, volume, event, rng),
            None => self.strike_server(name, event, rng),
        }
        self.found.happens(format!("{name}: its server is well"));
    }

    fn strike_origin(&self, name: &str, volume: usize, event: &str, rng: &mut Rng) {
        let sky = &self.weather.volumes[volume];
        let held = sky.held.begin();
        self.found.fail_origin(volume);
        let swapped = (event == EVENTS[3]).then(|| sky.failing.begin());
        if event == EVENTS[2] && (volume != BACK || self.standing.is_detached()) {
            sky.forgotten.fetch_add(1, SeqCst);
        }
        self.strike_server(name, event, rng);
        if swapped.is_some() {
            sleep(FOUND_AGAIN);
        }
        drop((held, swapped));
    }

    fn strike_server(&self, name: &str, event: &str, rng: &mut Rng) {
        let mut exports = self.exports.iter();
        let export = exports.find(|export| export.name() == name);
        let export = export.expect("it is in the plan");
        let away = match event == EVENTS[1] {
            true => rng.u64(2000..9000),
            false => rng.u64(..1000),
        };
        export.end();
        if event == EVENTS[2] && export.forget() {
            self.found
                .happens(format!("{name} has forgotten something"));
        }
        if event != EVENTS[3] {
            sleep(Duration::from_millis(away));
            return export.begin();
        }
        let other = self.machine.back().join(BYSTANDERS[1]);
        if let Err(error) = export.swap(Some(&other)) {
            self.found
                .violation(format!("{}: {error}", other.display()));
        }
        export.begin();
        sleep(Duration::from_millis(rng.u64(500..4000)));
        // The export's own file has been open all the time.
        let _ = export.swap(None);
    }
}
