//! A hard disk: one arm, one angle, one segment of buffer, a queue it reorders.
//!
//! For a request taken up at `t`, whose command was decoded meanwhile:
//!
//! - `seek = curve(|cylinder - head|)`, nothing within a track;
//! - `wait = turn * frac(angle(sector) - (t + seek)/turn)`; the spindle turns from
//!   time zero on at a phase of its own;
//! - `transfer = size / rate(cylinder)`; done at `t + seek + wait + transfer`.
//!
//! A read that continues the last one is served from the read-ahead, one just
//! behind it from the look-behind (see `buffer`). Of the oldest
//! `queue_depth` requests the drive serves next the one with the least
//! `service - age_weight * age`; one that the head would reach with less than
//! `guard` to spare after its seek is expected a turn later. Requests past
//! `queue_depth` wait in order of arrival.
//!
//! Invariants: requests wait only while one is served; a write that completes
//! is on the medium, so a flush has nothing to wait for.
//!
//! Left out: a volatile write cache (put a [`Controller`](super::Controller)
//! with the drive's cache in front), several buffer segments, write settling,
//! defects, recalibration, spin-up.

mod buffer;
mod parameters;
mod seek;
mod surface;

pub use parameters::{HddFirmware, HddParameters};
pub use seek::SeekCurve;
pub use surface::Surface;

use super::{Completed, Model, Op, Request, float, nanos};
use block::{IoResult, Nanos};
use buffer::Buffer;
use std::collections::VecDeque;

/// A hard disk drive.
#[derive(Debug)]
pub struct Hdd {
    shape: Shape,
    /// Where the head is: the end of the last transfer, as a share of the stroke.
    head: f64,
    buffer: Option<Buffer>,
    /// The requests the drive sees, at most `queue_depth`.
    queue: Vec<Waiting>,
    /// Those that do not fit the queue, oldest first.
    overflow: VecDeque<Waiting>,
    serving: Option<Completed>,
}

/// What never changes in a drive; nanoseconds and bytes a nanosecond.
#[derive(Debug)]
struct Shape {
    sectors: u64,
    seek: SeekCurve,
    surface: Surface,
    turn_ns: f64,
    phase: f64,
    command_ns: f64,
    bus_rate: f64,
    read_ahead_sectors: u64,
    look_behind_sectors: u64,
    queue_depth: usize,
    age_weight: f64,
    guard_ns: f64,
}

/// A request in the queue, with what its service needs computed once.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u64,
    op: Op,
    first: u64,
    end: u64,
    arrived: f64,
    /// When its command is decoded.
    ready: f64,
    first_cylinder: f64,
    end_cylinder: f64,
    /// The angle of its first sector, in turns.
    angle: f64,
    transfer_ns: f64,
}

/// How a request would be served.
#[derive(Clone, Copy, Debug)]
struct Plan {
    done: f64,
    /// What the drive adds to `done` when it compares, as it may miss the sector.
    risk: f64,
}

impl Hdd {
    /// A drive at rest over its first cylinder, whose spindle stands at `phase`
    /// turns at time zero (`0.0..1.0`; draw it at random for each drive, since
    /// spindles are independent).
    ///
    /// `Err` names the parameter that no drive can have, its range and the remedy.
    pub fn new(parameters: &HddParameters, phase: f64) -> IoResult<Hdd> {
        let shape = parameters.shape(phase)?;
        Ok(Hdd {
            queue: Vec::with_capacity(shape.queue_depth),
            shape,
            head: 0.0,
            buffer: None,
            overflow: VecDeque::new(),
            serving: None,
        })
    }

    /// Where sectors lie.
    pub fn surface(&self) -> &Surface {
        &self.shape.surface
    }

    /// The seek curve, in nanoseconds.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.shape.seek
    }

    /// Takes up the best of the waiting requests, at `now`.
    fn serve_next(&mut self, now: f64) {
        let mut best = None;
        for (index, request) in self.queue.iter().enumerate() {
            let plan = self.plan(now, request);
            let age = now - request.arrived;
            let score = plan.done + plan.risk - now - self.shape.age_weight * age;
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, index));
            }
        }
        self.serving = best.map(|(_, index)| self.serve(now, index));
    }

    /// Takes up the request at `index` of the queue, at `now`.
    fn serve(&mut self, now: f64, index: usize) -> Completed {
        let request = self.queue.swap_remove(index);
        let done = self.plan(now, &request).done;
        if let Some(next) = self.overflow.pop_front() {
            self.queue.push(next);
        }
        self.buffer = match request.op {
            Op::Read => {
                self.head = request.end_cylinder;
                Some(match self.buffer {
                    Some(buffer) if buffer.serves(&self.shape, &request) => {
                        buffer.extended(&self.shape, &request, now)
                    }
                    _ => Buffer::read(&request, done),
                })
            }
            Op::Write => {
                self.head = request.end_cylinder;
                None
            }
            Op::Flush | Op::Discard => self.buffer,
        };
        Completed {
            at: nanos(done),
            id: request.id,
        }
    }

    /// How `request` would be served if it were taken up at `now`.
    fn plan(&self, now: f64, request: &Waiting) -> Plan {
        let start = now.max(request.ready);
        match (request.op, &self.buffer) {
            (Op::Flush | Op::Discard, _) => Plan {
                done: start,
                risk: 0.0,
            },
            (Op::Read, Some(buffer)) if buffer.serves(&self.shape, request) => Plan {
                done: buffer.done(&self.shape, request, now, start),
                risk: 0.0,
            },
            (Op::Read | Op::Write, _) => self.shape.reach(self.head, request, start),
        }
    }
}

impl Shape {
    /// Seeks, waits for the sector to come round, and transfers.
    fn reach(&self, head: f64, request: &Waiting, start: f64) -> Plan {
        let distance = (request.first_cylinder - head).abs();
        let seeks = distance >= self.surface.track();
        let there = start + if seeks { self.seek.time(distance) } else { 0.0 };
        let wait = self.turn_ns * ahead(request.angle - there / self.turn_ns - self.phase);
        let risky = seeks && wait < self.guard_ns;
        Plan {
            done: there + wait + request.transfer_ns,
            risk: if risky { self.turn_ns } else { 0.0 },
        }
    }

    fn waiting(&self, now: Nanos, request: Request) -> Waiting {
        let (first, end) = match request.op {
            Op::Read | Op::Write => (request.extent.start.0, request.extent.end().0),
            Op::Flush | Op::Discard => (0, 0),
        };
        assert!(end <= self.sectors, "{request:?} past the end of the drive");
        let arrived = float(now);
        let first_cylinder = self.surface.cylinder(first);
        let end_cylinder = self.surface.cylinder(end);
        Waiting {
            id: request.id,
            op: request.op,
            first,
            end,
            arrived,
            ready: arrived + self.command_ns,
            first_cylinder,
            end_cylinder,
            angle: self.surface.turns(first_cylinder),
            transfer_ns: self.surface.stream_ns(first_cylinder, end_cylinder),
        }
    }
}

impl Model for Hdd {
    fn arrive(&mut self, now: Nanos, request: Request) {
        let waiting = self.shape.waiting(now, request);
        if self.queue.len() < self.shape.queue_depth {
            self.queue.push(waiting);
        } else {
            self.overflow.push_back(waiting);
        }
        if self.serving.is_none() {
            self.serve_next(float(now));
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.serving.map(|served| served.at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completed>) {
        while let Some(served) = self.serving.filter(|served| served.at <= now) {
            done.push(served);
            self.serve_next(float(served.at));
        }
    }
}

/// How far a difference of angles lies ahead, in `0..1` turns.
///
/// A difference that only rounding makes negative is no turn at all, so that
/// queued writes that continue one another stream.
fn ahead(turns: f64) -> f64 {
    const ROUNDING: f64 = 1e-6;
    let fraction = turns - (turns as i64) as f64;
    let fraction = if fraction < 0.0 {
        fraction + 1.0
    } else {
        fraction
    };
    if fraction > 1.0 - ROUNDING {
        0.0
    } else {
        fraction
    }
}
