//! A model run against real time, to delay a real file as the device would.
//!
//! The caller reads its clock, passes on arriving requests, sleeps until
//! [`next_due`](Pacer::next_due), and returns the requests that
//! [`take_due`](Pacer::take_due) names. A caller that wakes late delays its own requests but
//! not the model's: the schedule stays the device's.
//!
//! Not here: the clock, the sleep, and the file.

use super::{Completed, DriveModel, DriveRequest};
use block::Nanos;

/// Times at which each request of a real device may complete.
#[derive(Debug)]
pub struct DrivePacer<M> {
    model: M,
    /// The latest time seen; stays if a clock steps back.
    now: Nanos,
    /// Completed and not yet taken, in order of time.
    due: Vec<Completed>,
}

impl<M: DriveModel> DrivePacer<M> {
    /// Paces by an idle `model`.
    pub fn new(model: M) -> DrivePacer<M> {
        DrivePacer {
            model,
            now: Nanos::ZERO,
            due: Vec::new(),
        }
    }

    /// A request arrives at the real time `now`.
    pub fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        self.run(now);
        self.model.arrive(self.now, request);
    }

    /// Time of the next call of [`take_due`](Pacer::take_due); `None` while nothing is in flight.
    /// At that time a request may be due, or only a decision of the model.
    pub fn next_due(&self) -> Option<Nanos> {
        let due = self.due.first().map(|completed| completed.at);
        due.or_else(|| self.model.next_event())
    }

    /// Appends the requests that may complete by `now`, in order of time, each
    /// with the time the device would have needed until.
    pub fn take_due(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        self.run(now);
        done.append(&mut self.due);
    }

    fn run(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        while let Some(at) = self.model.next_event().filter(|at| *at <= self.now) {
            self.model.advance(at, &mut self.due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriveOp, Hdd, catalogue::hdd, measure::request};
    use block::{Extent, Lba, Sectors};

    #[test]
    fn a_read_is_done_when_its_time_has_come() {
        let mut pacer = DrivePacer::new(Hdd::new(&hdd::SAS15K, 0.0).unwrap());
        let page = Extent::new(Lba(1_000_000), Sectors(8));
        pacer.arrive(Nanos::from_millis(1), request(7, DriveOp::Read, page));
        let due = pacer.next_due().unwrap();
        let mut done = Vec::new();
        pacer.take_due(Nanos(due.0 - 1), &mut done);
        assert!(done.is_empty());
        pacer.take_due(due, &mut done);
        assert_eq!((done[0].id, done[0].at), (7, due));
    }
}
