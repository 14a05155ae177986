//! Times of new attempts at pool devices that were ejected for being late: after pauses that
//! double.
//!
//! Invariants:
//!     a device that is late again and again is tried at growing intervals
//!     a device that is late again and again is tried less and less often

use block::Nanos;
use cache::DeviceId;
use control::config::Name;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// First and longest pause before a late device is tried.
const PAUSE: Nanos = Nanos::from_secs(10);
const PAUSE_MAX: Nanos = Nanos::from_secs(600);
/// Time of service after its return, after which a device begins with the first pause again.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(3600);

/// The devices that were late.
#[derive(Default)]
pub(super) struct Returns(RefCell<BTreeMap<(Name, DeviceId), Return>>);

struct Return {
    /// Time of the next attempt, or of the return to service.
    at: Nanos,
    pause: Nanos,
    trying: bool,
    serves: bool,
}

impl Returns {
    /// True if the device is to be tried now. The attempt then counts as begun.
    pub(super) fn is_due(&self, device: &(Name, DeviceId), now: Nanos) -> bool {
        let mut all = self.0.borrow_mut();
        let known = all.entry(device.clone()).or_insert(Return {
            at: now + PAUSE,
            pause: PAUSE,
            trying: false,
            serves: false,
        });
        if std::mem::take(&mut known.serves) {
            known.put_off(now);
        }
        let due = !known.trying && known.at <= now;
        known.trying |= due;
        due
    }

    pub(super) fn has_tried(&self, device: &(Name, DeviceId), now: Nanos, serves: bool) {
        if let Some(known) = self.0.borrow_mut().get_mut(device) {
            known.trying = false;
            known.serves = serves;
            match serves {
                true => known.at = now,
                false => known.put_off(now),
            }
        }
    }

    pub(super) fn forgive(&self, now: Nanos) {
        let mut all = self.0.borrow_mut();
        all.retain(|_, known| !known.serves || now.since(known.at) < FORGIVEN_AFTER);
    }
}

impl Return {
    fn put_off(&mut self, now: Nanos) {
        self.pause = Nanos((self.pause.0 * 2).min(PAUSE_MAX.0));
        self.at = now + self.pause;
    }
}
