//! Measures a model as fio measures a device: a fixed number of requests in
//! flight, each replaced by the next when it completes.

use super::{Completed, DriveModel, DriveOp, DriveRequest};
use block::{Extent, Fua, Lba, Nanos, Sectors};

/// Results of a run.
#[derive(Clone, Debug)]
pub struct DriveMeasured {
    /// The latency of each request counted, in the order of completion.
    pub latencies: Vec<Nanos>,
    /// The time over which the requests completed.
    pub elapsed: Nanos,
    /// Bytes moved by the requests.
    pub bytes: u64,
}

impl DriveMeasured {
    /// Requests completed a second.
    pub fn iops(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Megabytes (10^6 bytes) a second.
    pub fn mb_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.elapsed.as_secs_f64()
    }

    /// The mean latency in seconds.
    pub fn latency_mean_s(&self) -> f64 {
        let sum: u64 = self.latencies.iter().map(|latency| latency.0).sum();
        sum as f64 / 1e9 / self.latencies.len() as f64
    }
}

/// A run: `depth` requests in flight until `count` have completed after a
/// warm-up of `warm_up` that are not counted.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    /// Requests in flight.
    pub depth: u64,
    /// Requests completed before counting begins.
    pub warm_up: u64,
    /// Requests counted.
    pub count: u64,
}

impl ClosedLoop {
    /// Runs `model` from `start` on with the requests that `next` makes of ids.
    pub fn run(
        self,
        model: &mut impl DriveModel,
        start: Nanos,
        mut next: impl FnMut(u64) -> DriveRequest,
    ) -> DriveMeasured {
        let depth = self.depth as usize;
        // In-flight requests by slot; the id contains the slot.
        let mut flight: Vec<(Nanos, u64)> = Vec::with_capacity(depth);
        let mut done: Vec<Completed> = Vec::new();
        for slot in 0..self.depth {
            let request = next(slot);
            flight.push((start, request.extent.len.bytes()));
            model.arrive(start, request);
        }
        let mut seen = 0;
        let mut measured = DriveMeasured {
            latencies: Vec::with_capacity(self.count as usize),
            elapsed: Nanos::ZERO,
            bytes: 0,
        };
        let mut counted_from = start;
        while seen < self.warm_up + self.count {
            let now = model
                .next_event()
                .expect("a request in flight has an event");
            model.advance(now, &mut done);
            for Completed { at, id } in done.drain(..) {
                seen += 1;
                let (arrived, bytes) = flight[id as usize];
                if seen > self.warm_up && seen <= self.warm_up + self.count {
                    measured.latencies.push(at - arrived);
                    measured.bytes += bytes;
                    measured.elapsed = at - counted_from;
                } else if seen == self.warm_up {
                    counted_from = at;
                }
                let request = next(id);
                flight[id as usize] = (at, request.extent.len.bytes());
                model.arrive(at, request);
            }
        }
        measured
    }
}

/// Requests of `op` and `len` at independent uniform places of `capacity`,
/// aligned to their length.
pub fn random(
    op: DriveOp,
    len: Sectors,
    capacity: Sectors,
    seed: u64,
) -> impl FnMut(u64) -> DriveRequest {
    let mut rng = fastrand::Rng::with_seed(seed);
    let places = capacity.0 / len.0;
    move |id| request(id, op, Extent::new(Lba(rng.u64(0..places) * len.0), len))
}

/// Requests of `op` and `len` one after the other from `from` on.
pub fn sequential(op: DriveOp, len: Sectors, from: Lba) -> impl FnMut(u64) -> DriveRequest {
    let mut at = from;
    move |id| {
        let extent = Extent::new(at, len);
        at = extent.end();
        request(id, op, extent)
    }
}

/// A request to the first unit that need not be durable.
pub fn request(id: u64, op: DriveOp, extent: Extent) -> DriveRequest {
    DriveRequest {
        id,
        unit: 0,
        op,
        extent,
        fua: Fua::No,
    }
}
