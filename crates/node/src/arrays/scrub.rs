//! Scrubs: the times of automatic ones, and the result of the last.
//!
//! Invariants:
//!     a scrub counts as the last one ⟹ it compared all of the array, with every member
//!     an automatic scrub begins ⟹ the array lacks nothing, and no scrub runs on it or on an
//!         array that shares a controller or a device with it
//!
//! A scrub that was cut short, by a restart too, starts over from the front.

use super::{OpenDevices, RunningArray};
use crate::nanos;
use crate::platform::Platform;
use block::Nanos;
use control::check::shares;
use control::status::ScrubStatus;
use raid::{Level, Scrubbed};
use std::rc::Rc;

const SECOND: Nanos = Nanos::from_secs(1);
/// Pause after a scrub that failed or left out some places.
const AGAIN: Nanos = Nanos::from_secs(3600);

/// Time until the next automatic scrub, at the time of day `now`, in seconds; `None` if there is
/// none.
fn due(interval: u64, level: Level, scrubbed: Scrubbed, now: u64) -> Option<u64> {
    let since = match scrubbed.since {
        // The interval begins with the first look at the array.
        0 => now,
        since => since,
    };
    let due = since.saturating_add(interval);
    let is_wanted = level.is_redundant() && interval > 0;
    is_wanted.then(|| due.saturating_sub(now))
}

impl RunningArray {
    pub(crate) fn is_scrubbed(&self) -> bool {
        let scrub = self.scrub.borrow();
        scrub.as_ref().is_some_and(|scrub| scrub.running)
    }

    /// Time since the end of the last scrub, and time until the next automatic one, at the time of
    /// day `now`.
    pub(crate) fn scrubs(&self, now: u64) -> (Option<u64>, Option<u64>) {
        let report = self.array().report();
        let scrubbed = report.scrubbed;
        let interval = nanos(self.config.scrub_interval.value).0.div_ceil(SECOND.0);
        let last = scrubbed.ended.then(|| now.saturating_sub(scrubbed.since));
        (last, due(interval, report.level, scrubbed, now))
    }
}

impl<P: Platform> OpenDevices<P> {
    /// Begins a scrub if one is due.
    pub(super) async fn scrub_if_due(&self, running: &Rc<RunningArray>) {
        let array = running.array();
        let (scrubbed, now) = (array.report().scrubbed, self.platform.time_of_day());
        let (_, Some(due)) = running.scrubs(now) else {
            return;
        };
        if !array.is_settled() || running.is_scrubbed() {
            return;
        }
        // This is the first look at the array, or the clock has been set back.
        if scrubbed.since == 0 || scrubbed.since > now {
            let from_now = Scrubbed {
                since: now,
                ended: false,
            };
            // A member that refuses this write is left behind; the time is set again then.
            let _ = array.set_scrubbed(from_now).await;
            return;
        }
        let is_paused = self.env().timer.now() < running.scrub_again.get();
        if due == 0 && !is_paused && !self.is_neighbour_scrubbed(running) {
            self.begin_scrub(running.clone(), false);
        }
    }

    /// True if a scrub runs on an array that shares a controller or a device with this one.
    fn is_neighbour_scrubbed(&self, running: &RunningArray) -> bool {
        let name = &running.config.name.value;
        let all = self.running.borrow();
        let mut scrubbed = all.iter().filter(|other| other.is_scrubbed());
        scrubbed.any(|other| shares(&self.config(), name, &other.config.name.value))
    }

    /// Begins a scrub for an operator.
    pub(crate) fn scrub(&self, array: &str, repair: bool) -> Result<(), String> {
        let running = self.running(array)?;
        if running.is_scrubbed() {
            return Err(format!("array {array} is being scrubbed; wait for its end"));
        }
        self.begin_scrub(running, repair);
        Ok(())
    }

    fn begin_scrub(&self, running: Rc<RunningArray>, repair: bool) {
        *running.scrub.borrow_mut() = Some(ScrubStatus {
            running: true,
            ..ScrubStatus::default()
        });
        let (platform, timer) = (self.platform.clone(), self.env().timer);
        self.env().spawn.spawn(async move {
            let array = running.array();
            let mut ended = array.scrub(repair).await;
            if let Ok(found) = &ended
                && found.skipped == 0
            {
                let now = Scrubbed {
                    since: platform.time_of_day(),
                    ended: true,
                };
                ended = array.set_scrubbed(now).await.map(|()| *found);
            } else {
                running.scrub_again.set(timer.now() + AGAIN);
            }
            let scrub = match ended {
                Ok(found) => ScrubStatus {
                    running: false,
                    mismatches: found.mismatches,
                    repaired: found.repaired,
                    unreadable: found.unreadable,
                    error: None,
                },
                Err(error) => ScrubStatus {
                    error: Some(error.to_string()),
                    ..ScrubStatus::default()
                },
            };
            *running.scrub.borrow_mut() = Some(scrub);
        });
    }
}
