//! The wear that devices report, read at intervals.
//!
//! Invariant: an unresponsive device delays nothing but the next reading of wear.

use super::Node;
use crate::platform::Platform;
use block::{Deadline, Nanos};
use control::config::Name;
use control::status::WearReport;
use std::rc::Rc;

/// Longest age of a device's wear before it is read again.
const WEAR_AGE_MAX: Nanos = Nanos::from_secs(600);
/// Time limit of reading one device's wear.
const ANSWER_MAX: Nanos = Nanos::from_secs(10);

impl<P: Platform> Node<P> {
    /// Reads the wear of the devices that are due, unless a reading is running.
    pub(super) fn look_at_wear(node: &Rc<Self>) {
        let now = node.env().timer.now();
        let is_due = |asked: Option<Nanos>| asked.is_none_or(|at| now.since(at) >= WEAR_AGE_MAX);
        let open = node.devices.open.borrow();
        let due = open
            .iter()
            .filter(|(_, opened)| opened.is_file() && is_due(opened.wear.get().0));
        let due: Vec<(Name, String)> = due
            .map(|(name, opened)| (name.clone(), opened.place.clone()))
            .collect();
        if due.is_empty() || node.asks_wear.replace(true) {
            return;
        }
        let node = node.clone();
        let spawn = node.env().spawn;
        spawn.spawn(async move {
            for (name, place) in due {
                if node.stopped.get() {
                    break;
                }
                let deadline = Deadline::new(&node.env().timer, ANSWER_MAX);
                let wear = deadline.bound(node.platform.wear(&place)).await.flatten();
                // The device may have been closed meanwhile.
                if let Some(opened) = node.devices.open.borrow().get(&name)
                    && opened.place == place
                {
                    opened.wear.set((Some(now), wear));
                    node.spare_the_worn(&name, wear);
                }
            }
            node.asks_wear.set(false);
        });
    }

    /// Lets a worn device get fewer new lines of its pool.
    fn spare_the_worn(&self, name: &Name, wear: Option<WearReport>) {
        let Some(wear) = wear else { return };
        for pool in self.pools.borrow().values() {
            if let Some(id) = pool.devices.borrow().get(name) {
                let worn = f32::from(wear.used_percent) / 100.0;
                pool.cache.set_worn(*id, worn);
            }
        }
    }
}
