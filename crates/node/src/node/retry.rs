//! Volumes of the configuration with an origin, perhaps an array, that cannot be used yet. The
//! other volumes are served meanwhile, and these once their devices are back.
//!
//! Invariants:
//!     a volume of the configuration is served, waiting, or was removed by hand
//!     one attempt at a volume runs at a time, and is never cut off

use super::waiting::WaitingVolume;
use super::{Node, Refusal};
use crate::event::NodeEvent;
use crate::platform::Platform;
use block::Nanos;
use control::config::{self, Name, VolumeMode};
use control::status;
use std::collections::BTreeSet;
use std::rc::Rc;

/// First and longest pause before a volume is tried again; pauses double.
const PAUSE: Nanos = Nanos::from_millis(500);
const PAUSE_MAX: Nanos = Nanos::from_secs(15);
/// Longest wait for slow volumes at the start of the daemon: while no volume is served, and once
/// one is.
const START_MAX: Nanos = Nanos::from_secs(30);
const START_OTHERS_MAX: Nanos = Nanos::from_secs(10);
const UNRESPONSIVE: &str = "its devices have not answered yet; the attempt goes on";
/// Interval of looks for attempts that are due or done.
const TICK: Nanos = Nanos::from_millis(50);

impl<P: Platform> Node<P> {
    /// Begins to serve `volumes`; returns when each attempt has ended or takes long.
    pub(super) async fn begin_volumes(self: &Rc<Self>, volumes: &[config::Volume]) {
        for volume in volumes {
            let waiting = self.waits_for(volume);
            let name = volume.name.value.clone();
            self.waiting.borrow_mut().insert(name, waiting);
        }
        self.waits.notify();
        let is_ending = || self.platform.is_ending();
        if !is_ending() {
            self.try_waiting();
        }
        self.attempts_ended(START_OTHERS_MAX, is_ending).await;
        if self.volumes_served() == 0 {
            let rest = Nanos(START_MAX.0 - START_OTHERS_MAX.0);
            self.attempts_ended(rest, is_ending).await;
        }
        for (name, waiting) in self.waiting.borrow_mut().iter_mut() {
            if waiting.trying && waiting.why.is_empty() {
                waiting.why = UNRESPONSIVE.into();
                self.platform.event(NodeEvent::VolumeNotServed {
                    volume: name.clone(),
                    why: UNRESPONSIVE.into(),
                });
            }
        }
    }

    /// Retries a volume that was served, and is no longer for the reason `why`.
    pub(super) fn wait_again(&self, volume: &config::Volume, why: Refusal) {
        let mut waiting = self.waits_for(volume);
        waiting.why = why;
        let name = volume.name.value.clone();
        self.waiting.borrow_mut().insert(name, waiting);
        self.waits.notify();
    }

    pub(super) fn waits_for(&self, volume: &config::Volume) -> WaitingVolume {
        WaitingVolume {
            volume: volume.clone(),
            why: String::new(),
            next: self.env().timer.now(),
            pause: PAUSE,
            trying: false,
            said: BTreeSet::new(),
        }
    }

    /// Retries waiting volumes at their times.
    pub(super) async fn serve_waiting(node: Rc<Self>) {
        let timer = node.env().timer;
        loop {
            let waits = || node.stopped.get() || !node.waiting.borrow().is_empty();
            node.waits.until(waits).await;
            if node.stopped.get() {
                return;
            }
            timer.sleep(TICK).await;
            node.try_waiting();
        }
    }

    /// Begins an attempt at each volume that is due.
    fn try_waiting(self: &Rc<Self>) {
        let env = self.env();
        let now = env.timer.now();
        for (name, waiting) in self.waiting.borrow_mut().iter_mut() {
            if waiting.trying || waiting.next > now {
                continue;
            }
            waiting.trying = true;
            let (node, volume) = (self.clone(), waiting.volume.clone());
            let name = name.clone();
            env.spawn.spawn(async move {
                let tried = node.try_volume(&volume).await;
                node.has_tried(&name, tried);
            });
        }
    }

    /// Reports an event of an attempt at `volume`, each only once while the volume waits.
    pub(super) fn say(&self, volume: &Name, event: NodeEvent) {
        let mut waiting = self.waiting.borrow_mut();
        let line = event.to_string();
        let new = waiting
            .get_mut(volume)
            .is_none_or(|waiting| waiting.said.insert(line));
        if new {
            self.platform.event(event);
        }
    }

    pub(super) async fn try_volume(&self, volume: &config::Volume) -> Result<(), Refusal> {
        let origin = self.known(&volume.origin.value)?;
        self.open_volume(volume, &origin).await
    }

    pub(super) fn has_tried(&self, name: &Name, tried: Result<(), Refusal>) {
        let now = self.env().timer.now();
        let mut all = self.waiting.borrow_mut();
        let Some(waiting) = all.get_mut(name) else {
            return;
        };
        let Err(why) = tried else {
            if !waiting.why.is_empty() {
                self.platform.event(NodeEvent::VolumeServed {
                    volume: name.clone(),
                });
            }
            all.remove(name);
            return;
        };
        if why != waiting.why {
            self.platform.event(NodeEvent::VolumeNotServed {
                volume: name.clone(),
                why: why.clone(),
            });
        }
        waiting.why = why;
        waiting.trying = false;
        waiting.next = now + waiting.pause;
        waiting.pause = Nanos((waiting.pause.0 * 2).min(PAUSE_MAX.0));
    }

    /// Removes `name` from the waiting volumes. Returns true if it was one.
    pub(super) fn give_up_waiting(&self, name: &Name) -> Result<bool, Refusal> {
        let mut all = self.waiting.borrow_mut();
        if all.get(name).is_some_and(|waiting| waiting.trying) {
            return Err(format!("volume {name} is being opened; try again"));
        }
        if let Some(waiting) = all
            .get(name)
            .filter(|w| w.volume.in_force() == VolumeMode::WriteBack)
        {
            return Err(format!(
                "volume {name} is not served yet, and may have dirty data for its origin: {}. Mend \
                 that first",
                waiting.why
            ));
        }
        Ok(all.remove(name).is_some())
    }

    /// Begins no more attempts, and waits for the running ones until `by`.
    pub(super) async fn end_waiting(&self, by: Nanos) {
        self.waiting
            .borrow_mut()
            .retain(|_, waiting| waiting.trying);
        let left = by.since(self.env().timer.now());
        self.attempts_ended(left, || false).await;
    }

    /// Waits for the running attempts, for at most `most` and not once `is_over`.
    async fn attempts_ended(&self, most: Nanos, is_over: impl Fn() -> bool) {
        let timer = self.env().timer;
        let end = timer.now() + most;
        let trying = || self.waiting.borrow().values().any(|waiting| waiting.trying);
        while trying() && timer.now() < end && !is_over() {
            timer.sleep(TICK).await;
        }
    }

    /// The waiting volumes, each with the reason.
    pub fn report_waiting(&self) -> Vec<status::WaitingReport> {
        let all = self.waiting.borrow();
        let waiting = all.iter().map(|(name, waiting)| status::WaitingReport {
            name: name.to_string(),
            origin: waiting.volume.origin.value.to_string(),
            pool: waiting.volume.pool.value.to_string(),
            why: match waiting.why.as_str() {
                "" => "it is being opened".to_owned(),
                why => why.to_owned(),
            },
        });
        waiting.collect()
    }
}
