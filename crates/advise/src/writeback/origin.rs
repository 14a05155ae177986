//! The time that an origin takes for the writes of a log's cleaner.

use crate::array::DriveStripe;
use block::{Extent, IoResult, Lba, Nanos, Sectors};
use drives::catalogue::Drive;
use drives::{Completed, DriveOp};
use std::ops::Range;

/// Writes that are at the origin at once: as `writelog::clean`.
const DEPTH: usize = 4;
const BLOCK_SECTORS: u64 = 8;

/// The known speed of an origin.
#[derive(Clone, Debug)]
pub enum OriginTakes {
    /// Bytes a second, for writes of any kind; above zero.
    Rate(u64),
    /// Drives of one kind, striped: by their model.
    Drives(Box<Drive>, u32),
}

/// An origin as the cleaner finds it.
pub(super) enum CleanedOrigin {
    Rate(u64),
    Model { drives: DriveStripe, next_id: u64 },
}

impl CleanedOrigin {
    pub(super) fn new(takes: &OriginTakes) -> IoResult<CleanedOrigin> {
        Ok(match takes {
            OriginTakes::Rate(bytes) => CleanedOrigin::Rate(*bytes),
            OriginTakes::Drives(drive, count) => CleanedOrigin::Model {
                drives: DriveStripe::new(drive, *count)?,
                next_id: 0,
            },
        })
    }

    /// Returns the time at which `runs` of blocks, given from `now` on, and then a flush have
    /// ended.
    pub(super) fn carry(&mut self, now: Nanos, runs: &[Range<u64>]) -> Nanos {
        match self {
            CleanedOrigin::Rate(rate) => {
                let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
                now + Nanos((blocks as f64 * 4096e9 / *rate as f64) as u64)
            }
            CleanedOrigin::Model { drives, next_id } => {
                let mut now = now;
                for some in runs.chunks(DEPTH) {
                    for run in some {
                        let len = Sectors((run.end - run.start) * BLOCK_SECTORS);
                        let extent = Extent::new(Lba(run.start * BLOCK_SECTORS), len);
                        drives.submit(now, *next_id, 0, DriveOp::Write, extent);
                        *next_id += 1;
                    }
                    now = wait(drives, now);
                }
                drives.flush(now, *next_id);
                *next_id += 1;
                wait(drives, now)
            }
        }
    }
}

/// Returns the time at which all requests in flight have ended.
fn wait(drives: &mut DriveStripe, now: Nanos) -> Nanos {
    let (mut now, mut done) = (now, Vec::<Completed>::new());
    while drives.in_flight() > 0 {
        let next = drives.next_event().expect("something is in flight");
        now = now.max(next);
        drives.advance(now, &mut done);
        done.clear();
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_takes_bytes_by_the_second() {
        let mut origin = CleanedOrigin::new(&OriginTakes::Rate(8192)).unwrap();
        let end = origin.carry(Nanos(5), &[0..1, 7..9]);
        assert_eq!(end, Nanos(5) + Nanos::from_millis(1500));
    }

    #[test]
    fn a_disk_takes_longer_for_many_places_than_for_one() {
        let takes = OriginTakes::Drives(Box::new(Drive::named("ST3500320AS").unwrap()), 1);
        let carry = |runs: &[Range<u64>]| {
            let mut origin = CleanedOrigin::new(&takes).unwrap();
            origin.carry(Nanos::ZERO, runs).as_secs_f64()
        };
        let apart: Vec<_> = (0..64).map(|i| i * 1_000_000..i * 1_000_000 + 1).collect();
        let (one, many) = (carry(std::slice::from_ref(&(0..64))), carry(&apart));
        assert!((0.001..0.03).contains(&one), "{one}");
        assert!((0.1..1.0).contains(&many), "{many}");
    }
}
