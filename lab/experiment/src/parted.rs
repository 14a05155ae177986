//! A drive in partitions of one length, which its heads serve as one drive.
//!
//! A request's unit is the number of its partition, from 0.

use block::{Nanos, Sectors};
use drives::{Completed, DriveModel, DriveOp, DriveRequest};

/// A drive, and how long each of its partitions is.
pub struct Parted<M> {
    drive: M,
    partition: Sectors,
}

impl<M: DriveModel> Parted<M> {
    /// Partitions of `drive`, from its first sector on.
    pub fn new(drive: M, partition: Sectors) -> Parted<M> {
        Parted { drive, partition }
    }
}

impl<M: DriveModel> DriveModel for Parted<M> {
    fn arrive(&mut self, now: Nanos, mut request: DriveRequest) {
        if request.op != DriveOp::Flush {
            request.extent.start.0 += u64::from(request.unit) * self.partition.0;
        }
        request.unit = 0;
        self.drive.arrive(now, request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.drive.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        self.drive.advance(now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Extent, Fua, Lba};
    use drives::Hdd;
    use drives::catalogue::hdd::ST3500320AS;

    const PARTITION: Sectors = Sectors(1 << 26);

    /// Reads these places of a drive in partitions, or of a bare one; returns the completions.
    fn read(places: &[(u32, u64)], parted: bool) -> Vec<Completed> {
        let mut drive = Parted::new(Hdd::new(&ST3500320AS, 0.0).unwrap(), PARTITION);
        for (id, (unit, start)) in places.iter().enumerate() {
            let (unit, start) = match parted {
                true => (*unit, *start),
                false => (0, start + u64::from(*unit) * PARTITION.0),
            };
            let request = DriveRequest {
                id: id as u64,
                unit,
                op: DriveOp::Read,
                extent: Extent::new(Lba(start), Sectors(8)),
                fua: Fua::No,
            };
            drive.arrive(Nanos::ZERO, request);
        }
        let mut done = Vec::new();
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
        }
        done
    }

    #[test]
    fn requests_of_all_partitions_move_the_same_heads() {
        let places = [(0, 100), (1, 100), (0, 5_000_000), (1, 1 << 25), (0, 0)];
        let parted = read(&places, true);
        assert_eq!(parted.len(), places.len());
        assert_eq!(parted, read(&places, false));
        // Another place is another seek.
        let other = places.map(|(unit, start)| (1 - unit, start));
        assert_ne!(parted, read(&other, true));
    }
}
