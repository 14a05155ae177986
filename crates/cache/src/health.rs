//! The end of trust in a pool device.
//!
//! A fault is an operation that failed, took longer than the limit for hits, or returned bytes that
//! do not match their checksum. A write that took longer while the device answered others waited in
//! the device's queue, and so did a hit that took longer beside slow writes. That is load, and no
//! fault, as long as the cache can reduce it (`budget`). Faults are counted over windows of
//! [`WINDOW`]. A device is ejected when one window has [`FAULTS_MAX`] faults that are at least one
//! in [`OPERATIONS_PER_FAULT`] of its operations. A device that reports itself gone is ejected at
//! once.
//!
//! The count admits a few bad sectors: their blocks are dropped and not read again. The ratio
//! admits more of them on a fast, busy device. With every hit stalling for the default limit of 100
//! ms, one client at depth 1 waits through 16 hits, 2 s, before the device is out; at depth 16, 0.1
//! s.
//!
//! The mean time of a write shows the service of a device: while slots are free, one that is over
//! [`SLOW`] times as slow as the fastest gets that much fewer new lines. So does one that is more
//! worn: with less than a half of the life that the freshest has left.

use block::{IoErrorKind, Nanos};
use std::cell::Cell;

/// The span over which faults are counted.
pub(crate) const WINDOW: Nanos = Nanos::from_secs(10);
/// Faults in a window that eject.
pub(crate) const FAULTS_MAX: u32 = 16;
/// Operations for each fault above which a device is kept.
pub(crate) const OPERATIONS_PER_FAULT: u64 = 100;

/// Advantage of the best device that is no less service of another: equal devices differ as much by
/// chance.
const SLOW: f32 = 2.0;
/// The least share of its turns that a slow device uses, so that its recovery is seen.
const SERVICE_MIN: f32 = 0.125;
/// Writes that the mean time goes back over.
const WRITES_MEAN: u64 = 16;

/// The fault of a pool device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceFault {
    /// The device is lost: unplugged, or its link is down.
    Gone,
    /// An operation failed.
    Error,
    /// An operation took too long.
    Late,
    /// The device returned bytes that do not match their checksum.
    Corrupt,
}

impl DeviceFault {
    pub(crate) fn of(kind: IoErrorKind) -> DeviceFault {
        if kind == IoErrorKind::Gone {
            DeviceFault::Gone
        } else {
            DeviceFault::Error
        }
    }

    /// A stable identifier for reports.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceFault::Gone => "gone",
            DeviceFault::Error => "error",
            DeviceFault::Late => "late",
            DeviceFault::Corrupt => "corrupt",
        }
    }
}

/// The record of one device.
#[derive(Default)]
pub(crate) struct DeviceHealth {
    window_start: Cell<Nanos>,
    faults: Cell<u32>,
    operations: Cell<u64>,
    /// Pool writes that the device has answered, well or not.
    answered: Cell<u64>,
    faults_ever: Cell<u64>,
    /// Faded mean of the time of a pool write; zero before the first.
    write_mean: Cell<Nanos>,
    /// The share of its rated writes that is used up.
    worn: Cell<f32>,
}

impl DeviceHealth {
    #[inline]
    pub(crate) fn operation(&self) {
        self.operations(1);
    }

    #[inline]
    pub(crate) fn operations(&self, count: u64) {
        self.operations.set(self.operations.get() + count);
    }

    pub(crate) fn answer(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Records the time of a pool write.
    pub(crate) fn wrote(&self, time: Nanos) {
        let mean = match self.write_mean.get() {
            Nanos::ZERO => time.0,
            mean => (mean.0 * (WRITES_MEAN - 1) + time.0) / WRITES_MEAN,
        };
        self.write_mean.set(Nanos(mean.max(1)));
    }

    /// The faded mean of the time of a pool write; `None` before the first.
    pub(crate) fn write_mean(&self) -> Option<Nanos> {
        Some(self.write_mean.get()).filter(|mean| *mean != Nanos::ZERO)
    }

    /// Records the share of its rated writes that the device has used up.
    pub(crate) fn set_worn(&self, worn: f32) {
        self.worn.set(worn);
    }

    /// The share of its rated writes that the device has left.
    pub(crate) fn life(&self) -> f32 {
        (1.0 - self.worn.get()).clamp(0.0, 1.0)
    }

    /// The share of its turns that the device uses, beside one whose mean write takes `fastest` and
    /// one that has the life `freshest` left.
    pub(crate) fn service(&self, fastest: Option<Nanos>, freshest: f32) -> f32 {
        let speed = match (self.write_mean(), fastest) {
            (Some(own), Some(fastest)) => fastest.0 as f32 / own.0 as f32,
            _ => 1.0,
        };
        let life = match freshest > 0.0 {
            true => self.life() / freshest,
            false => 1.0,
        };
        (SLOW * speed.min(life)).clamp(SERVICE_MIN, 1.0)
    }

    pub(crate) fn faults_ever(&self) -> u64 {
        self.faults_ever.get()
    }

    /// The device is taken back: its faults so far do not count.
    pub(crate) fn forget(&self) {
        self.faults.set(0);
        self.operations.set(0);
        self.write_mean.set(Nanos::ZERO);
    }

    /// Records a fault; true if the device is to be ejected.
    pub(crate) fn fault(&self, fault: DeviceFault, now: Nanos) -> bool {
        if now.since(self.window_start.get()) > WINDOW {
            self.window_start.set(now);
            self.faults.set(0);
            self.operations.set(0);
        }
        self.faults.set(self.faults.get() + 1);
        self.faults_ever.set(self.faults_ever.get() + 1);
        let faults = self.faults.get();
        fault == DeviceFault::Gone
            || faults >= FAULTS_MAX
                && u64::from(faults) * OPERATIONS_PER_FAULT >= self.operations.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gone_ejects_at_once_and_others_by_their_rate() {
        assert!(DeviceHealth::default().fault(DeviceFault::Gone, Nanos::ZERO));
        let health = DeviceHealth::default();
        for _ in 1..FAULTS_MAX {
            assert!(!health.fault(DeviceFault::Late, Nanos::ZERO));
        }
        assert!(health.fault(DeviceFault::Late, Nanos::ZERO));
        assert_eq!(health.faults_ever(), u64::from(FAULTS_MAX));
    }

    #[test]
    fn a_device_as_slow_as_chance_uses_all_its_turns_and_a_slow_one_its_share() {
        let device = |times: &[u64]| {
            let health = DeviceHealth::default();
            times
                .iter()
                .for_each(|us| health.wrote(Nanos::from_micros(*us)));
            health
        };
        let fastest = device(&[100; 9]).write_mean();
        assert_eq!(device(&[]).service(fastest, 1.0), 1.0);
        assert_eq!(device(&[199; 9]).service(fastest, 1.0), 1.0);
        assert_eq!(device(&[800; 9]).service(fastest, 1.0), 0.25);
        assert_eq!(device(&[90_000; 9]).service(fastest, 1.0), SERVICE_MIN);
        let recovered = [[800; 99], [100; 99]].concat();
        assert_eq!(device(&recovered).service(fastest, 1.0), 1.0);
    }

    #[test]
    fn a_device_with_less_than_half_the_life_of_the_freshest_gets_less() {
        for (worn, freshest, service) in [
            (0.0, 1.0, 1.0),
            (0.5, 1.0, 1.0),
            (0.75, 1.0, 0.5),
            (0.75, 0.25, 1.0),
            (1.2, 1.0, SERVICE_MIN),
            (1.0, 0.0, 1.0),
        ] {
            let health = DeviceHealth::default();
            health.set_worn(worn);
            assert_eq!(health.service(None, freshest), service, "{worn}");
        }
    }

    #[test]
    fn faults_far_apart_do_not_eject() {
        let health = DeviceHealth::default();
        for s in 0..1000 {
            assert!(!health.fault(DeviceFault::Error, Nanos::from_secs(s)));
        }
    }

    #[test]
    fn few_faults_among_many_operations_do_not_eject() {
        let health = DeviceHealth::default();
        for _ in 0..1000 {
            (0..200).for_each(|_| health.operation());
            assert!(!health.fault(DeviceFault::Corrupt, Nanos::from_secs(1)));
        }
    }
}
