//! The time to move the heads: Lee's curve through three datasheet points.

use std::ops::RangeInclusive;

/// Seek time as a function of distance, `a*sqrt(x) + b*x + c`, with `x` the
/// distance as a share of the full stroke and times in any one unit.
///
/// Source: E. K. Lee and R. H. Katz, "An analytic performance model of disk
/// arrays", SIGMETRICS 1993: the three points are the track-to-track time, the
/// mean over independent uniform cylinders (`E[sqrt(x)] = 8/15`, `E[x] = 1/3`)
/// and the full stroke.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SeekCurve {
    a: f64,
    b: f64,
    c: f64,
}

impl SeekCurve {
    /// The curve through the three points. The curve rises all the way if `average` lies in
    /// [`SeekCurve::averages`].
    pub fn fit(track: f64, average: f64, full: f64) -> SeekCurve {
        SeekCurve {
            a: (-10.0 * track + 15.0 * average - 5.0 * full) / 3.0,
            b: (7.0 * track - 15.0 * average + 8.0 * full) / 3.0,
            c: track,
        }
    }

    /// The mean seeks that give a curve that rises all the way: below them
    /// `a < 0`, above them the slope `a/2 + b` at the full stroke is negative.
    pub fn averages(track: f64, full: f64) -> RangeInclusive<f64> {
        (2.0 * track + full) / 3.0..=(4.0 * track + 11.0 * full) / 15.0
    }

    /// The time to move by `x` of the full stroke, for `x` in `0..=1`.
    #[inline]
    pub fn time(&self, x: f64) -> f64 {
        self.a * x.sqrt() + self.b * x + self.c
    }
}
