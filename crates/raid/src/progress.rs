//! The state of background work: progress, pauses, and the regions that are left to process.

use block::{Nanos, Sectors};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

/// Sectors that may be left out in a row at first.
const LEFT_OUT: Sectors = Sectors::from_mib(1);
/// Pause of the filling where more cannot be read: twice as long each time.
const REST: RangeInclusive<Nanos> = Nanos::from_secs(1)..=Nanos::from_secs(60);
/// The pauses between two tries to fill gaps of members.
const GAPS_PAUSE: RangeInclusive<Nanos> = Nanos::from_secs(10)..=Nanos::from_secs(3600);

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

/// The regions in which copies may differ, since a crash or a write that failed.
#[derive(Default)]
pub(crate) struct SuspectRegions {
    unsynced: RefCell<BTreeSet<usize>>,
    /// Regions in which a write has failed since a rebuild or a resync began. That goes over them
    /// again.
    again: RefCell<BTreeSet<usize>>,
}

impl SuspectRegions {
    pub fn is_empty(&self) -> bool {
        self.unsynced.borrow().is_empty()
    }

    pub fn has(&self, region: usize) -> bool {
        self.unsynced.borrow().contains(&region)
    }

    pub fn has_any(&self, regions: Range<usize>) -> bool {
        self.unsynced.borrow().range(regions).next().is_some()
    }

    pub fn all(&self) -> Vec<usize> {
        self.unsynced.borrow().iter().copied().collect()
    }

    pub fn add(&self, regions: impl IntoIterator<Item = usize>) {
        self.unsynced.borrow_mut().extend(regions);
    }

    /// Notes that a write to `regions` has failed.
    pub fn add_again(&self, regions: Range<usize>) {
        self.again.borrow_mut().extend(regions);
    }

    /// Begins a rebuild or a resync.
    pub fn begin(&self) {
        self.again.borrow_mut().clear();
    }

    /// Removes a region that was processed, unless a write to it has failed meanwhile.
    pub fn settle(&self, region: usize) {
        if !self.again.borrow().contains(&region) {
            self.unsynced.borrow_mut().remove(&region);
        }
    }

    /// Forgets that a write to `region` has failed, for that is processed again.
    pub fn forget_again(&self, region: usize) {
        self.again.borrow_mut().remove(&region);
    }

    /// Takes the regions to which a write has failed.
    pub fn take_again(&self) -> BTreeSet<usize> {
        self.again.take()
    }
}

/// The state of an array's background work.
#[derive(Default)]
pub(crate) struct BackgroundWork {
    pub suspects: SuspectRegions,
    /// The pauses of rebuilds.
    pub rests: Rests,
    progress: Cell<MaintenanceProgress>,
    /// Progress of the running scrub.
    scrub: Cell<MaintenanceProgress>,
    /// The scrub is to end where it is.
    scrub_cancelled: Cell<bool>,
    /// Time of the next attempt to fill gaps of members, and the pause after that.
    gaps_due: Cell<Nanos>,
    gaps_pause: Cell<Nanos>,
}

impl BackgroundWork {
    /// Returns the progress of the rebuild or resync, if one runs.
    pub fn progress(&self) -> Option<MaintenanceProgress> {
        Some(self.progress.get()).filter(|now| now.total > Sectors::ZERO)
    }

    pub fn set_progress(&self, progress: MaintenanceProgress) {
        self.progress.set(progress);
    }

    /// Returns the progress of the scrub, if one runs.
    pub fn scrubbing(&self) -> Option<MaintenanceProgress> {
        Some(self.scrub.get()).filter(|now| now.total > Sectors::ZERO)
    }

    pub fn set_scrubbing(&self, progress: MaintenanceProgress) {
        self.scrub.set(progress);
    }

    /// Cancels the running scrub, or lets the next begin.
    pub fn cancel_scrub(&self, cancelled: bool) {
        self.scrub_cancelled.set(cancelled);
    }

    pub fn is_scrub_cancelled(&self) -> bool {
        self.scrub_cancelled.get()
    }

    pub fn are_gaps_due(&self, now: Nanos) -> bool {
        now >= self.gaps_due.get()
    }

    /// Begins the pause after a try to fill gaps: twice as long as the last if it was `in_vain`.
    pub fn rest_gaps(&self, now: Nanos, in_vain: bool) {
        let pause = match in_vain {
            true => Nanos(self.gaps_pause.get().0 * 2),
            false => Nanos::ZERO,
        };
        let pause = pause.clamp(*GAPS_PAUSE.start(), *GAPS_PAUSE.end());
        self.gaps_pause.set(pause);
        self.gaps_due.set(now + pause);
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
