//! Paces a device like a stripe over model drives.
//!
//! A request is cut at the stripes' borders. Neighbouring pieces on one drive are one request
//! there, and the whole request ends with its last piece. A flush goes to every drive.
//!
//! Not here: a bus or controller in front of the drives, and any scaling: a file smaller than the
//! drives is on their outermost tracks.

use block::{Extent, IoResult, Lba, Nanos, Sectors};
use drives::catalogue::Drive;
use drives::{Completed, DriveModel, DriveOp, DriveRequest, SsdWear};
use filter::{AccessVerb, DelayPacer, RawAccess};
use std::collections::HashMap;

type DrivePacer = drives::DrivePacer<Box<dyn DriveModel + Send>>;

/// Drives of one kind, striped.
pub struct StripeModel {
    drives: Vec<DrivePacer>,
    stripe: Sectors,
    /// Number of pieces that each request still waits for.
    pieces: HashMap<u64, u32>,
    /// Requests without pieces, which end at once.
    empty: Vec<u64>,
    completed: Vec<Completed>,
}

impl StripeModel {
    /// Makes a stripe over `drives` drives called `name`, with `stripe` on each before the next.
    pub fn new(name: &str, drives: u32, stripe: Sectors) -> IoResult<StripeModel> {
        let drive = Drive::named(name)?;
        let pacers = (0..drives).map(|i| {
            // Spindles turn independently; evenly spread phases model that.
            let phase = f64::from(i) / f64::from(drives);
            Ok(drives::DrivePacer::new(
                drive.model(phase, SsdWear::Steady)?,
            ))
        });
        Ok(StripeModel {
            drives: pacers.collect::<IoResult<_>>()?,
            stripe,
            pieces: HashMap::new(),
            empty: Vec::new(),
            completed: Vec::new(),
        })
    }

    /// Capacity of a stripe over `drives` drives called `name`.
    pub fn capacity(name: &str, drives: u32, stripe: Sectors) -> IoResult<Sectors> {
        let stripes = Drive::named(name)?.capacity().0 / stripe.0;
        Ok(Sectors(stripes * stripe.0 * u64::from(drives)))
    }

    /// The part of `extent` on each drive. There is one run for each: stripes that follow each
    /// other on a drive are side by side there.
    fn parts(&self, extent: Extent) -> impl Iterator<Item = (usize, Extent)> {
        let drives = self.drives.len() as u64;
        let (stripe, start, end) = (self.stripe.0, extent.start.0, extent.end().0);
        // Number of sectors before `at` that are on `drive`.
        let before = move |at: u64, drive: u64| {
            let (row, rest) = (at / (stripe * drives), at % (stripe * drives));
            row * stripe + rest.saturating_sub(drive * stripe).min(stripe)
        };
        (0..drives).filter_map(move |drive| {
            let (from, to) = (before(start, drive), before(end, drive));
            (from < to).then(|| (drive as usize, Extent::new(Lba(from), Sectors(to - from))))
        })
    }
}

impl DelayPacer for StripeModel {
    fn arrive(&mut self, now: Nanos, id: u64, access: &RawAccess) {
        let op = match access.verb {
            AccessVerb::Read => DriveOp::Read,
            AccessVerb::Write | AccessVerb::Zero => DriveOp::Write,
            AccessVerb::Discard => DriveOp::Discard,
            AccessVerb::Flush => DriveOp::Flush,
            AccessVerb::Extents => {
                self.empty.push(id);
                return;
            }
        };
        let parts: Vec<_> = match op {
            DriveOp::Flush => (0..self.drives.len())
                .map(|drive| (drive, Extent::default()))
                .collect(),
            _ => self.parts(access.extent).collect(),
        };
        self.pieces.insert(id, parts.len() as u32);
        for (drive, extent) in parts {
            let request = DriveRequest {
                id,
                unit: 0,
                op,
                extent,
                fua: access.fua,
            };
            self.drives[drive].arrive(now, request);
        }
    }

    fn next_due(&self) -> Option<Nanos> {
        if !self.empty.is_empty() {
            return Some(Nanos::ZERO);
        }
        self.drives
            .iter()
            .filter_map(|drive| drive.next_due())
            .min()
    }

    fn take_due(&mut self, now: Nanos, due: &mut Vec<u64>) {
        due.append(&mut self.empty);
        for drive in &mut self.drives {
            drive.take_due(now, &mut self.completed);
        }
        for completed in self.completed.drain(..) {
            let left = self.pieces.get_mut(&completed.id);
            let left = left.expect("a piece belongs to a request in flight");
            *left -= 1;
            if *left == 0 {
                self.pieces.remove(&completed.id);
                due.push(completed.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Fua;

    fn stripe(drives: u32) -> StripeModel {
        StripeModel::new("SAS15K", drives, Sectors(8)).unwrap()
    }

    fn parts(drives: u32, start: u64, len: u64) -> Vec<(usize, u64, u64)> {
        let extent = Extent::new(Lba(start), Sectors(len));
        let stripe = stripe(drives);
        let parts = stripe.parts(extent);
        parts.map(|(d, e)| (d, e.start.0, e.len.0)).collect()
    }

    #[test]
    fn requests_are_cut_at_the_stripes() {
        assert_eq!(parts(1, 5, 100), [(0, 5, 100)]);
        assert_eq!(parts(2, 4, 8), [(0, 4, 4), (1, 0, 4)]);
        assert_eq!(parts(2, 0, 32), [(0, 0, 16), (1, 0, 16)]);
        assert_eq!(parts(4, 36, 4), [(0, 12, 4)]);
        assert_eq!(parts(4, 62, 4), [(0, 16, 2), (3, 14, 2)]);
    }

    /// Advances the time until all requests have ended; returns the end.
    fn run(stripe: &mut StripeModel, requests: u64) -> Nanos {
        let mut due = Vec::new();
        let mut now = Nanos::ZERO;
        while let Some(at) = stripe.next_due() {
            now = now.max(at);
            stripe.take_due(now, &mut due);
        }
        due.sort_unstable();
        assert_eq!(due, (0..requests).collect::<Vec<_>>());
        now
    }

    #[test]
    fn every_request_ends_once_and_more_drives_are_faster() {
        let load = |drives| {
            let mut stripe = stripe(drives);
            for id in 0..64 {
                let access = RawAccess {
                    verb: [
                        AccessVerb::Read,
                        AccessVerb::Write,
                        AccessVerb::Flush,
                        AccessVerb::Extents,
                    ][id as usize % 4],
                    extent: Extent::new(Lba(id * 7919 % 100_000 * 8), Sectors(24)),
                    fua: Fua::No,
                };
                stripe.arrive(Nanos::ZERO, id, &access);
            }
            run(&mut stripe, 64)
        };
        let (one, eight) = (load(1), load(8));
        assert!(eight < one, "{eight} with 8 drives, {one} with 1");
    }
}
