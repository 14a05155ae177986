//! Models of drives of one kind, striped, as one device.

use block::{Extent, Fua, IoResult, Lba, Nanos, Sectors};
use drives::catalogue::Drive;
use drives::{Completed, DriveModel, DriveOp, DriveRequest, SsdWear};

/// Bytes on one drive before the next.
const STRIPE: Sectors = Sectors(128);
/// Bits of a model's id that name the request; its piece is above.
pub(crate) const ID_BITS: u32 = 40;

/// Drives of one kind, striped. Addresses past their end start over: a trace of
/// a larger device keeps its distances between requests but for that.
pub(crate) struct DriveStripe {
    drives: Vec<Box<dyn DriveModel + Send>>,
    capacity: u64,
    in_flight: u32,
    busy_since: Nanos,
    busy: Nanos,
    bytes: u64,
}

impl DriveStripe {
    pub(crate) fn new(drive: &Drive, drives: u32) -> IoResult<DriveStripe> {
        let phase = |i: u32| f64::from(i) / f64::from(drives);
        let model = |i| drive.model(phase(i), SsdWear::Steady);
        Ok(DriveStripe {
            drives: (0..drives).map(model).collect::<IoResult<_>>()?,
            capacity: drive.capacity().0 / STRIPE.0 * STRIPE.0,
            in_flight: 0,
            busy_since: Nanos::ZERO,
            busy: Nanos::ZERO,
            bytes: 0,
        })
    }

    /// Sends `extent` to the drives in pieces numbered from `first` on, so that
    /// ids are unique in each model; returns how many there are.
    pub(crate) fn submit(
        &mut self,
        now: Nanos,
        id: u64,
        first: u32,
        op: DriveOp,
        extent: Extent,
    ) -> u32 {
        self.bytes += extent.len.bytes();
        let drives = self.drives.len() as u64;
        let (mut at, end) = (extent.start.0, extent.end().0);
        let mut pieces = 0;
        while at < end {
            let upto = if drives == 1 {
                let rest = self.capacity - at % self.capacity;
                end.min(at + rest)
            } else {
                end.min((at / STRIPE.0 + 1) * STRIPE.0)
            };
            let (drive, start) = if drives == 1 {
                (0, at)
            } else {
                let stripe = at / STRIPE.0;
                (stripe % drives, stripe / drives * STRIPE.0 + at % STRIPE.0)
            };
            let place = Extent::new(Lba(start % self.capacity), Sectors(upto - at));
            let request = DriveRequest {
                id: id | u64::from(first + pieces) << ID_BITS,
                unit: 0,
                op,
                extent: place,
                fua: Fua::No,
            };
            self.drives[drive as usize].arrive(now, request);
            pieces += 1;
            at = upto;
        }
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += pieces;
        pieces
    }

    /// Flushes the answered writes of each drive: as many pieces as there are drives.
    pub(crate) fn flush(&mut self, now: Nanos, id: u64) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        for (drive, piece) in self.drives.iter_mut().zip(0u64..) {
            let request = DriveRequest {
                id: id | piece << ID_BITS,
                unit: 0,
                op: DriveOp::Flush,
                extent: Extent::new(Lba::ZERO, Sectors::ZERO),
                fua: Fua::No,
            };
            drive.arrive(now, request);
            self.in_flight += 1;
        }
    }

    /// Pieces that have not ended.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.drives.iter().filter_map(|d| d.next_event()).min()
    }

    pub(crate) fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        let before = done.len();
        for drive in &mut self.drives {
            if drive.next_event().is_some_and(|at| at <= now) {
                drive.advance(now, done);
            }
        }
        let ended = (done.len() - before) as u32;
        if ended > 0 && ended == self.in_flight {
            self.busy += now.since(self.busy_since);
        }
        self.in_flight -= ended;
    }

    /// Bytes submitted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time with at least one request in flight.
    pub(crate) fn busy(&self) -> Nanos {
        self.busy
    }
}
