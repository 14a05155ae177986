//! Place of a sector on the platters, and its speed under the head.
//!
//! The media rate falls linearly from the outer cylinder to the inner one:
//! `rate(x) = Ro - (Ro - Ri)*x`, `x` in `0..=1`. A cylinder holds the data that pass in
//! its turns, so the capacity up to `x` is a quadratic in `x`; the inverse gives
//! the cylinder of a sector. Hence reading from the first sector to
//! cylinder `x` takes `x` times the time for the whole drive: the distance in
//! `x` is also the media time and the number of turns.
//!
//! Left out: zones are a continuum, heads share one track number, and tracks
//! are skewed just right, as the rates printed by the makers include switches.

/// The layout of a drive's sectors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Surface {
    sectors: f64,
    rate_outer: f64,
    rate_inner: f64,
    /// Nanoseconds to stream the whole drive.
    stream_ns: f64,
    /// Turns to stream the whole drive: the number of tracks.
    tracks: f64,
    track: f64,
}

impl Surface {
    /// A drive of `sectors` with media rates in bytes a nanosecond and a turn
    /// in nanoseconds.
    pub fn new(sectors: u64, rate_outer: f64, rate_inner: f64, turn_ns: f64) -> Surface {
        let bytes = (sectors * block::SECTOR_BYTES) as f64;
        let stream_ns = bytes / ((rate_outer + rate_inner) / 2.0);
        Surface {
            sectors: sectors as f64,
            rate_outer,
            rate_inner,
            stream_ns,
            tracks: stream_ns / turn_ns,
            track: turn_ns / stream_ns,
        }
    }

    /// The cylinder of a sector address, from 0 (outermost) to 1.
    pub fn cylinder(&self, sector: u64) -> f64 {
        let share = sector as f64 / self.sectors;
        let (ro, ri) = (self.rate_outer, self.rate_inner);
        let rate_there = (ro * ro - (ro * ro - ri * ri) * share).sqrt();
        // The root of the quadratic in the form that also holds for Ro = Ri.
        share * (ro + ri) / (ro + rate_there)
    }

    /// The media rate at a cylinder, in bytes a nanosecond.
    pub fn rate(&self, cylinder: f64) -> f64 {
        self.rate_outer - (self.rate_outer - self.rate_inner) * cylinder
    }

    /// Nanoseconds in which the head streams from one cylinder to another.
    pub fn stream_ns(&self, from: f64, to: f64) -> f64 {
        (to - from) * self.stream_ns
    }

    /// The angle of a cylinder's position on its track, in turns; only the
    /// fraction matters.
    pub fn turns(&self, cylinder: f64) -> f64 {
        cylinder * self.tracks
    }

    /// The width of one track as a share of the full stroke.
    pub fn track(&self) -> f64 {
        self.track
    }
}
