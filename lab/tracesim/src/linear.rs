//! Drives of one kind, one after another, as one model: for volumes longer than
//! a drive. A request across a border ends with its last piece.

use block::{Extent, Nanos, Sectors};
use drives::{Completed, DriveModel, DriveOp, DriveRequest};
use std::collections::HashMap;

/// Drives end to end.
pub(crate) struct Linear {
    drives: Vec<Box<dyn DriveModel + Send>>,
    each: Sectors,
    /// Pieces that each request in flight still waits for.
    pieces: HashMap<u64, u32>,
    of_drive: Vec<Completed>,
}

impl Linear {
    /// `drives` of `each` sectors.
    pub(crate) fn new(drives: Vec<Box<dyn DriveModel + Send>>, each: Sectors) -> Linear {
        Linear {
            drives,
            each,
            pieces: HashMap::new(),
            of_drive: Vec::new(),
        }
    }
}

impl DriveModel for Linear {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        let mut pieces = 0;
        for (drive, first) in self
            .drives
            .iter_mut()
            .zip((0u64..).step_by(self.each.0 as usize))
        {
            let here = Extent::new(block::Lba(first), self.each).intersect(request.extent);
            if here.is_empty() && request.op != DriveOp::Flush {
                continue;
            }
            let extent = Extent::new(block::Lba(here.start.0.saturating_sub(first)), here.len);
            drive.arrive(now, DriveRequest { extent, ..request });
            pieces += 1;
        }
        assert!(pieces > 0, "{request:?} is on no drive");
        self.pieces.insert(request.id, pieces);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.drives
            .iter()
            .filter_map(|drive| drive.next_event())
            .min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            for drive in &mut self.drives {
                drive.advance(at, &mut self.of_drive);
            }
            for completed in self.of_drive.drain(..) {
                let left = self.pieces.get_mut(&completed.id);
                let left = left.expect("a piece belongs to a request in flight");
                *left -= 1;
                if *left == 0 {
                    self.pieces.remove(&completed.id);
                    done.push(completed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Fua, Lba};
    use drives::SsdWear;
    use drives::catalogue::Drive;

    #[test]
    fn requests_across_a_border_end_once() {
        let drive = Drive::named("SAS15K").unwrap();
        let each = Sectors(drive.capacity().0 / 8 * 8);
        let drives = (0..3).map(|_| drive.model(0.0, SsdWear::Steady).unwrap());
        let mut linear = Linear::new(drives.collect(), each);
        let border = each.0;
        for (id, start, len) in [(0, 0, 8), (1, border - 8, 16), (2, 3 * border - 8, 8)] {
            let request = DriveRequest {
                id,
                unit: 0,
                op: DriveOp::Read,
                extent: Extent::new(Lba(start), Sectors(len)),
                fua: Fua::No,
            };
            linear.arrive(Nanos::ZERO, request);
        }
        let flush = DriveRequest {
            id: 3,
            unit: 0,
            op: DriveOp::Flush,
            extent: Extent::default(),
            fua: Fua::No,
        };
        linear.arrive(Nanos::ZERO, flush);
        let mut done = Vec::new();
        while let Some(at) = linear.next_event() {
            linear.advance(at, &mut done);
        }
        let mut ids: Vec<u64> = done.iter().map(|completed| completed.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3]);
    }
}
