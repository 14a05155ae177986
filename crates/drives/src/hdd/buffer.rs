//! The buffer segment behind the last read: read-ahead and look-behind.
//!
//! After a read the head reads on. `end` is the end of the requested data so far,
//! and `media` the instant at which the head passed it. A read that begins between
//! the look-behind and the read-ahead around `end` completes at
//! `max(start + size/bus, media + (its end - end)/rate)`. The head gets at most
//! the read-ahead in front of the host and then pauses. A write empties the segment.
//!
//! Left out: the turn a paused head waits before it reads on.

use super::{HddShape, QueuedRequest};
use crate::DriveOp;
use std::ops::RangeInclusive;

/// One segment: sectors `first..end` have been read, and the head reads on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    first: u64,
    end: u64,
    end_cylinder: f64,
    /// Time at which the head passed `end`.
    media: f64,
}

impl Buffer {
    /// A segment past every sector, which serves nothing.
    pub const EMPTY: Buffer = Buffer {
        first: u64::MAX,
        end: u64::MAX,
        end_cylinder: 1.0,
        media: 0.0,
    };

    /// The segment after the arm served `request` until `done`.
    pub fn after(request: &QueuedRequest, done: f64) -> Buffer {
        if request.op != DriveOp::Read {
            return Buffer::EMPTY;
        }
        Buffer {
            first: request.first,
            end: request.end,
            end_cylinder: request.end_cylinder,
            media: done,
        }
    }

    /// The first sectors of the reads that this segment serves.
    pub fn reach(&self, shape: &HddShape) -> RangeInclusive<u64> {
        let oldest = self.end.saturating_sub(shape.firmware.look_behind_sectors);
        self.first.max(oldest)..=self.end.saturating_add(shape.firmware.read_ahead_sectors)
    }

    /// End of `request` if this segment serves it from `now` on; `None` if it does not.
    pub fn done(&self, shape: &HddShape, request: &QueuedRequest, now: f64) -> Option<f64> {
        if request.op != DriveOp::Read || !self.reach(shape).contains(&request.first) {
            return None;
        }
        let bytes = ((request.end - request.first) * block::SECTOR_BYTES) as f64;
        let from_buffer = request.ready.max(now) + bytes / shape.bus_rate;
        Some(from_buffer.max(self.extended(shape, request, now).media))
    }

    /// The segment after serving `request` from `now` on.
    pub fn extended(&self, shape: &HddShape, request: &QueuedRequest, now: f64) -> Buffer {
        if request.end <= self.end {
            return *self;
        }
        let room = (shape.firmware.read_ahead_sectors * block::SECTOR_BYTES) as f64;
        let paused_since = now - room / shape.surface.rate(self.end_cylinder);
        let resumes = self.media.max(paused_since);
        let to_end = shape
            .surface
            .stream_ns(self.end_cylinder, request.end_cylinder);
        Buffer {
            first: self.first,
            end: request.end,
            end_cylinder: request.end_cylinder,
            media: resumes + to_end,
        }
    }
}
