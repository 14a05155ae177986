//! When pool devices that were ejected for being late are tried again: after pauses that double.
//!
//! Invariants:
//!     one attempt at a device runs at a time
//!     a device that is late again and again is tried less and less often

use block::Nanos;
use cache::DeviceId;
use control::config::Name;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How long a device that was late is left alone, the first time and at most.
const PAUSE: Nanos = Nanos::from_secs(10);
const PAUSE_MAX: Nanos = Nanos::from_secs(600);
/// A device that serves for so long after its return begins with the first pause again.
const FORGIVEN_AFTER: Nanos = Nanos::from_secs(3600);

/// The devices that were late.
#[derive(Default)]
pub(super) struct Returns(RefCell<BTreeMap<(Name, DeviceId), Return>>);

struct Return {
    /// When it is tried next, or since when it serves.
    at: Nanos,
    pause: Nanos,
    trying: bool,
    serves: bool,
}

impl Returns {
    /// Whether the device is to be tried now; from then on it is.
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
