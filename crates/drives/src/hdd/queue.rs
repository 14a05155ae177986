//! The requests a drive chooses from, laid out for the choice.
//!
//! Choosing evaluates every request at every service. The numbers for that lie in columns that the
//! compiler turns into vector instructions.

use super::{HddShape, QueuedRequest};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// The oldest requests in columns, and the rest behind them in order of arrival.
#[derive(Debug)]
pub(super) struct DiskQueue {
    depth: usize,
    seen: Vec<QueuedRequest>,
    first: Vec<u64>,
    cylinder: Vec<f64>,
    angle: Vec<f64>,
    transfer: Vec<f64>,
    ready: Vec<f64>,
    arrived: Vec<f64>,
    /// Scratch for [`DiskQueue::choose`].
    scores: Vec<f64>,
    unseen: VecDeque<QueuedRequest>,
}

impl DiskQueue {
    /// An empty queue of which the drive sees `depth` requests.
    pub fn new(depth: usize) -> DiskQueue {
        let column = || Vec::with_capacity(depth);
        DiskQueue {
            depth,
            seen: Vec::with_capacity(depth),
            first: Vec::with_capacity(depth),
            cylinder: column(),
            angle: column(),
            transfer: column(),
            ready: column(),
            arrived: column(),
            scores: column(),
            unseen: VecDeque::new(),
        }
    }

    /// Adds the youngest request.
    pub fn push(&mut self, request: QueuedRequest) {
        if self.seen.len() == self.depth {
            self.unseen.push_back(request);
            return;
        }
        self.first.push(request.first);
        self.cylinder.push(request.first_cylinder);
        self.angle.push(request.angle);
        self.transfer.push(request.transfer_ns);
        self.ready.push(request.ready);
        self.arrived.push(request.arrived);
        self.seen.push(request);
    }

    /// Takes out the request at `index` and lets the next one be seen.
    pub fn remove(&mut self, index: usize) -> QueuedRequest {
        self.first.swap_remove(index);
        self.cylinder.swap_remove(index);
        self.angle.swap_remove(index);
        self.transfer.swap_remove(index);
        self.ready.swap_remove(index);
        self.arrived.swap_remove(index);
        let request = self.seen.swap_remove(index);
        if let Some(next) = self.unseen.pop_front() {
            self.push(next);
        }
        request
    }

    /// The index of the request with the least `service - age_weight * age`, if any waits. The
    /// buffer may serve requests with a first sector in `near`: `buffered` returns the end of such
    /// a service, if possible.
    pub fn choose(
        &mut self,
        shape: &HddShape,
        head: f64,
        now: f64,
        near: RangeInclusive<u64>,
        buffered: impl Fn(&QueuedRequest) -> Option<f64>,
    ) -> Option<usize> {
        let len = self.seen.len();
        let (cylinder, angle) = (&self.cylinder[..len], &self.angle[..len]);
        let (transfer, ready) = (&self.transfer[..len], &self.ready[..len]);
        let arrived = &self.arrived[..len];
        self.scores.resize(len, 0.0);
        let scores = &mut self.scores[..len];
        for i in 0..len {
            let start = ready[i].max(now);
            let reach = shape.reach(head, cylinder[i], angle[i], start);
            let credit = shape.firmware.age_weight * (now - arrived[i]);
            scores[i] = reach.at + reach.risk + transfer[i] - now - credit;
        }
        for (i, first) in self.first.iter().enumerate() {
            if near.contains(first)
                && let Some(done) = buffered(&self.seen[i])
            {
                scores[i] = done - now - shape.firmware.age_weight * (now - arrived[i]);
            }
        }
        let least = scores
            .iter()
            .fold(f64::INFINITY, |a, b| if *b < a { *b } else { a });
        scores.iter().position(|score| *score == least)
    }
}
