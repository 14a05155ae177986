//! A drive at another cost: each of its times is multiplied by one factor, down to no time at all.
//!
//! The drive lives in a time of its own, which passes so much slower. A cost is kept in thousandths,
//! so that times are exact.

use block::Nanos;
use drives::{Completed, DriveModel, DriveRequest};

/// A cost of 1, in thousandths.
const ONE: u128 = 1_000;

/// A drive at a factor of its cost.
pub struct Slowed<M> {
    drive: M,
    thousandths: u128,
    /// Completions at no cost.
    at_once: Vec<Completed>,
}

impl<M: DriveModel> Slowed<M> {
    /// The drive at so many times its cost.
    pub fn new(drive: M, cost: f64) -> Slowed<M> {
        Slowed {
            drive,
            thousandths: (cost * ONE as f64).round() as u128,
            at_once: Vec::new(),
        }
    }

    /// The drive's own time.
    fn inner(&self, now: Nanos) -> Nanos {
        Nanos((u128::from(now.0) * ONE / self.thousandths) as u64)
    }

    /// The first time at which the drive's own time is `inner`.
    fn outer(&self, inner: Nanos) -> Nanos {
        Nanos((u128::from(inner.0) * self.thousandths).div_ceil(ONE) as u64)
    }
}

impl<M: DriveModel> DriveModel for Slowed<M> {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        match self.thousandths {
            0 => self.at_once.push(Completed {
                at: now,
                id: request.id,
            }),
            _ => self.drive.arrive(self.inner(now), request),
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        match self.thousandths {
            0 => self.at_once.first().map(|completed| completed.at),
            _ => self.drive.next_event().map(|inner| self.outer(inner)),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        if self.thousandths == 0 {
            return done.append(&mut self.at_once);
        }
        let before = done.len();
        self.drive.advance(self.inner(now), done);
        for completed in &mut done[before..] {
            completed.at = self.outer(completed.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Extent, Fua, Lba, Sectors};
    use drives::catalogue::hdd::ST3500320AS;
    use drives::{DriveOp, Hdd};

    /// Reads eight places, of which four come later; returns the completions.
    fn read(cost: f64) -> Vec<Completed> {
        let mut drive = Slowed::new(Hdd::new(&ST3500320AS, 0.0).unwrap(), cost);
        let mut done = Vec::new();
        for wave in 0..2 {
            let now = Nanos((wave as f64 * cost * 1e9) as u64);
            for place in 0..4 {
                let request = DriveRequest {
                    id: 4 * wave + place,
                    unit: 0,
                    op: DriveOp::Read,
                    extent: Extent::new(Lba(place * 7_654_321), Sectors(8)),
                    fua: Fua::No,
                };
                drive.arrive(now, request);
            }
            while let Some(at) = drive.next_event() {
                drive.advance(at, &mut done);
            }
        }
        done
    }

    #[test]
    fn every_time_is_so_much_longer() {
        let own = read(1.0);
        assert_eq!(own.len(), 8);
        for cost in [2.0, 3.0] {
            let times = |one: &Completed| Completed {
                at: Nanos(one.at.0 * cost as u64),
                ..*one
            };
            assert_eq!(read(cost), own.iter().map(times).collect::<Vec<_>>());
        }
        let faster = read(0.1);
        assert!(
            faster.iter().zip(&own).all(|(fast, own)| {
                fast.id == own.id && (fast.at.0 * 10).abs_diff(own.at.0) < 10
            })
        );
    }

    #[test]
    fn at_no_cost_a_request_ends_as_it_comes() {
        let free = read(0.0);
        assert_eq!(free.len(), 8);
        assert!(free.iter().all(|completed| completed.at == Nanos::ZERO));
    }
}
