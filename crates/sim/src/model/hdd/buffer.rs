//! The buffer segment behind the last read: read-ahead and look-behind.
//!
//! After a read the head reads on. With `end` the end of what was asked for so
//! far and `media` the instant the head passed it, a read that begins between
//! the look-behind and the read-ahead around `end` completes at
//! `max(start + size/bus, media + (its end - end)/rate)`. The head gets at most
//! the read-ahead in front of the host and then pauses.
//!
//! Left out: the turn a paused head waits before it reads on.

use super::{Shape, Waiting};

/// One segment: sectors `first..end` have been read, and the head reads on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    first: u64,
    end: u64,
    end_cylinder: f64,
    /// When the head passed `end`.
    media: f64,
}

impl Buffer {
    /// The segment after a read from the medium that was done at `done`.
    pub fn read(request: &Waiting, done: f64) -> Buffer {
        Buffer {
            first: request.first,
            end: request.end,
            end_cylinder: request.end_cylinder,
            media: done,
        }
    }

    /// Whether a read is served from this segment rather than by a seek.
    pub fn serves(&self, shape: &Shape, request: &Waiting) -> bool {
        let oldest = self.end.saturating_sub(shape.look_behind_sectors);
        request.first >= self.first.max(oldest)
            && request.first <= self.end + shape.read_ahead_sectors
    }

    /// When a read it serves is done, if taken up at `now` with its command
    /// decoded at `start`.
    pub fn done(&self, shape: &Shape, request: &Waiting, now: f64, start: f64) -> f64 {
        let bytes = ((request.end - request.first) * block::SECTOR_BYTES) as f64;
        let from_buffer = start + bytes / shape.bus_rate;
        from_buffer.max(self.extended(shape, request, now).media)
    }

    /// The segment after serving a read that was taken up at `now`.
    pub fn extended(&self, shape: &Shape, request: &Waiting, now: f64) -> Buffer {
        if request.end <= self.end {
            return *self;
        }
        let room = (shape.read_ahead_sectors * block::SECTOR_BYTES) as f64;
        let paused_since = now - room / shape.surface.rate(self.end_cylinder);
        let resumes = self.media.max(paused_since);
        Buffer {
            first: self.first,
            end: request.end,
            end_cylinder: request.end_cylinder,
            media: resumes
                + shape
                    .surface
                    .stream_ns(self.end_cylinder, request.end_cylinder),
        }
    }
}
