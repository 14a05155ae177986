//! The state of background work: its progress, its pauses, and the regions that are left to it.

use block::{Nanos, Sectors};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// Sectors that may be left out in a row at first.
const LEFT_OUT: Sectors = Sectors::from_mib(1);

/// Pause of the filling where more cannot be read: twice as long each time.
const REST: RangeInclusive<Nanos> = Nanos::from_secs(1)..=Nanos::from_secs(60);

/// Progress of a rebuild or resync.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaintenanceProgress {
    /// The member that is filled; `None` while copies are compared after a crash.
    pub role: Option<usize>,
    /// Sectors of the array that have been processed.
    pub done: Sectors,
    /// Sectors to process; 0 if nothing runs.
    pub total: Sectors,
    /// Time of the beginning.
    pub began: Nanos,
}

impl MaintenanceProgress {
    /// Returns the remaining time at the rate so far.
    pub fn left(&self, now: Nanos) -> Option<Nanos> {
        let (done, left) = (self.done.0, self.total.0.saturating_sub(self.done.0));
        let spent = (now - self.began).0;
        (done > 0).then(|| Nanos((u128::from(spent) * u128::from(left) / u128::from(done)) as u64))
    }
}

/// Sectors left out since the last successful read, and the end of the pause.
///
/// Each pause doubles the sectors that may be left out after it, so that every rebuild ends.
pub(crate) struct Rests {
    left_out: Cell<Sectors>,
    most: Cell<Sectors>,
    pause: Cell<Nanos>,
    until: Cell<Nanos>,
}

impl Default for Rests {
    fn default() -> Rests {
        Rests {
            left_out: Cell::default(),
            most: Cell::new(LEFT_OUT),
            pause: Cell::new(*REST.start()),
            until: Cell::default(),
        }
    }
}

impl Rests {
    pub fn is_over(&self, now: Nanos) -> bool {
        now >= self.until.get()
    }

    /// Resets the limits: data could be read.
    pub fn end(&self) {
        self.left_out.set(Sectors::ZERO);
        self.most.set(LEFT_OUT);
        self.pause.set(*REST.start());
    }

    pub fn begin(&self, now: Nanos) {
        let pause = self.pause.get();
        self.until.set(now + pause);
        self.pause.set(Nanos(pause.0 * 2).min(*REST.end()));
        self.left_out.set(Sectors::ZERO);
    }

    /// Leaves out `len` more sectors; begins a pause and returns false if that exceeds the limit.
    pub fn leave_out(&self, len: Sectors, now: Nanos) -> bool {
        let left_out = self.left_out.get() + len;
        let may = left_out <= self.most.get();
        match may {
            true => self.left_out.set(left_out),
            false => {
                self.begin(now);
                self.most.set(Sectors(self.most.get().0.saturating_mul(2)));
            }
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_for_a_sector_as_before() {
        let progress = |done| MaintenanceProgress {
            role: None,
            done: Sectors(done),
            total: Sectors(1000),
            began: Nanos::from_secs(10),
        };
        let left = |done| progress(done).left(Nanos::from_secs(16));
        assert_eq!(left(0), None);
        assert_eq!(left(250), Some(Nanos::from_secs(18)));
        assert_eq!(left(1000), Some(Nanos::ZERO));
    }

    /// All unreadable sectors are left out in the end, however many they are.
    #[test]
    fn each_rest_lets_twice_as_much_be_left_out() {
        let rests = Rests::default();
        let (mut now, mut left, mut pauses) = (Nanos::ZERO, 1000, Vec::new());
        while left > 0 {
            match rests.leave_out(LEFT_OUT, now) {
                true => left -= 1,
                false => {
                    assert!(!rests.is_over(now));
                    pauses.push(rests.until.get() - now);
                    now = rests.until.get();
                    assert!(rests.is_over(now));
                }
            }
        }
        let seconds = [1, 2, 4, 8, 16, 32, 60, 60, 60];
        assert_eq!(pauses, seconds.map(Nanos::from_secs));
        rests.end();
        assert!(rests.leave_out(LEFT_OUT, now) && !rests.leave_out(LEFT_OUT, now));
        assert_eq!(rests.until.get() - now, Nanos::from_secs(1));
    }
}
