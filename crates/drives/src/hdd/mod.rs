//! A hard disk: one arm, one angle, one segment of buffer, a queue it reorders.
//!
//! For a request taken up at `t`, its command already decoded:
//!
//! - `seek = curve(|cylinder - head|)`, nothing within a track;
//! - `wait = turn * frac(angle(sector) - (t + seek)/turn)`; the spindle turns from
//!   time zero on at a phase of its own;
//! - `transfer = size / rate(cylinder)`; done at `t + seek + wait + transfer`.
//!
//! A read that continues the last one is served from the read-ahead, one just
//! behind it from the look-behind (see `buffer`). Of the oldest
//! `queue_depth` requests the drive serves next the one with the least
//! `service - age_weight * age`. A request that the head would reach with less than
//! `guard` to spare after its seek is expected a turn later. Requests past
//! `queue_depth` wait in order of arrival.
//!
//! Invariants: requests wait only while one is served; a write that completes
//! is on the medium, so a flush has nothing to wait for and passes the queue.
//!
//! Left out: a volatile write cache (put a [`Controller`](super::Controller)
//! with the drive's cache in front), several buffer segments, write settling,
//! defects, recalibration, spin-up.

mod buffer;
mod parameters;
mod queue;
mod seek;
mod shape;
mod surface;

pub use parameters::{HddFirmware, HddParameters};
pub use seek::SeekCurve;
pub use surface::Surface;

use super::{Completed, DriveModel, DriveOp, DriveRequest, float, nanos};
use block::{IoResult, Nanos};
use buffer::Buffer;
use queue::DiskQueue;
use shape::{FirmwareShape, HddShape, QueuedRequest};
use std::collections::VecDeque;

/// A hard disk drive.
#[derive(Debug)]
pub struct Hdd {
    shape: HddShape,
    /// Position of the head: the end of the last transfer, as a share of the stroke.
    head: f64,
    buffer: Buffer,
    queue: DiskQueue,
    serving: Option<Completed>,
    /// Commands that need no arm, in order of completion.
    commands: VecDeque<Completed>,
}

impl Hdd {
    /// A drive at rest over its first cylinder. The spindle stands at `phase` turns at time zero
    /// (`0.0..=1.0`; to be drawn at random for each drive, since spindles are independent).
    ///
    /// `Err` names the parameter that no drive can have, its range and the remedy.
    pub fn new(parameters: &HddParameters, phase: f64) -> IoResult<Hdd> {
        let shape = parameters.shape(phase)?;
        Ok(Hdd {
            queue: DiskQueue::new(shape.firmware.queue_depth),
            shape,
            head: 0.0,
            buffer: Buffer::EMPTY,
            serving: None,
            commands: VecDeque::new(),
        })
    }

    /// The layout of the sectors.
    pub fn surface(&self) -> &Surface {
        &self.shape.surface
    }

    /// The seek curve, in nanoseconds.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.shape.seek
    }

    /// Takes up the best of the waiting requests, at `now`.
    fn serve_next(&mut self, now: f64) {
        let (shape, buffer) = (&self.shape, &self.buffer);
        let buffered = |request: &QueuedRequest| buffer.done(shape, request, now);
        let near = buffer.reach(shape);
        let chosen = self.queue.choose(shape, self.head, now, near, buffered);
        self.serving = chosen.map(|index| self.serve(now, index));
    }

    /// Takes up the request at `index` of the queue, at `now`.
    fn serve(&mut self, now: f64, index: usize) -> Completed {
        let request = self.queue.remove(index);
        let (shape, buffer) = (&self.shape, &self.buffer);
        let done = match buffer.done(shape, &request, now) {
            Some(done) => {
                self.buffer = buffer.extended(shape, &request, now);
                done
            }
            None => {
                let start = request.ready.max(now);
                let reach = shape.reach(self.head, request.first_cylinder, request.angle, start);
                let done = reach.at + request.transfer_ns;
                self.buffer = Buffer::after(&request, done);
                done
            }
        };
        self.head = request.end_cylinder;
        Completed {
            at: nanos(done),
            id: request.id,
        }
    }
}

impl DriveModel for Hdd {
    fn arrive(&mut self, now: Nanos, request: DriveRequest) {
        request.assert_inside(self.shape.sectors);
        if matches!(request.op, DriveOp::Flush | DriveOp::Discard) {
            self.commands.push_back(Completed {
                at: nanos(float(now) + self.shape.firmware.command_ns),
                id: request.id,
            });
            return;
        }
        self.queue.push(self.shape.waiting(now, request));
        if self.serving.is_none() {
            self.serve_next(float(now));
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let served = self.serving.iter();
        served.chain(self.commands.front()).map(|c| c.at).min()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            if self.commands.front().is_some_and(|next| next.at == at) {
                done.extend(self.commands.pop_front());
            } else {
                done.extend(self.serving);
                self.serve_next(float(at));
            }
        }
    }
}
