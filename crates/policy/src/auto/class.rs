//! The class of a line at its last access, a small number. It follows from the number of accesses,
//! the distance of the last two, and the shape of the request. Lines of one class are expected to
//! be reused alike.

use super::scale::AgeScale;
use crate::{PolicyOp, PolicyRequest};

/// Ages and distances fall into this many half-octave buckets of ticks.
pub(crate) const BUCKETS: usize = 32;
/// A count saturates here.
pub(crate) const COUNT_MAX: u8 = 15;

const COUNTS: u16 = 6;
const DISTANCES: u16 = 8;
const SHAPES: u16 = 8;

/// Classes of the finest level.
pub(crate) const CLASSES: usize = (COUNTS * DISTANCES * SHAPES) as usize;
/// Classes without the shape of the request.
pub(crate) const COARSE: usize = (COUNTS * DISTANCES) as usize;

/// [`counted`] of each count, in classes.
const OF_COUNT: [u16; COUNT_MAX as usize + 1] = {
    let mut of = [0; COUNT_MAX as usize + 1];
    let mut count = 0;
    while count < of.len() {
        of[count] = counted(count as u8) * DISTANCES * SHAPES;
        count += 1;
    }
    of
};
/// The octave of each distance in sixteenths of the pool, in classes.
const OF_DISTANCE: [u16; 2 * AgeScale::SIXTEENTHS_MAX as usize] = {
    let mut of = [0; 2 * AgeScale::SIXTEENTHS_MAX as usize];
    let mut distance = 0;
    while distance < of.len() {
        let octave = octave(distance as u32);
        let octave = if octave < 6 { octave } else { 6 };
        of[distance] = (1 + octave) * SHAPES;
        distance += 1;
    }
    of
};

/// A class of the finest level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineClass(pub(crate) u16);

impl LineClass {
    /// Returns the class of a line seen `count` times, the last time `distance` ticks after the
    /// time before; `None` for an unknown distance.
    #[inline]
    pub(crate) fn of(
        count: u8,
        distance: Option<u32>,
        request: &PolicyRequest,
        scale: &AgeScale,
    ) -> LineClass {
        // Parts of the pool, so that the octaves are the same at every size.
        let distance = distance.map_or(0, |ticks| {
            OF_DISTANCE[scale.sixteenths(ticks) as usize % OF_DISTANCE.len()]
        });
        let longer = |than| u16::from(request.len_bytes > than);
        let length = longer(4096) + longer(16_384) + longer(65_536);
        let shape = length * 2 + u16::from(request.op == PolicyOp::Write);
        LineClass(OF_COUNT[usize::from(count % (COUNT_MAX + 1))] + distance + shape)
    }

    /// All of the class but the count.
    pub(crate) fn kind(self) -> u8 {
        (self.0 % (DISTANCES * SHAPES)) as u8
    }

    /// A class from the number of [`LineClass::kind`]; bits beyond its range are ignored.
    pub(crate) fn recalled(count: u8, kind: u8) -> LineClass {
        let kind = u16::from(kind) % (DISTANCES * SHAPES);
        LineClass(counted(count) * DISTANCES * SHAPES + kind)
    }

    /// The class without the shape of the request.
    pub(crate) fn coarse(self) -> usize {
        (self.0 / SHAPES) as usize
    }
}

/// The group of a count.
const fn counted(count: u8) -> u16 {
    match count {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 | 5 => 3,
        6..=9 => 4,
        _ => 5,
    }
}

/// Zero for zero, else one more than the binary logarithm, rounded down.
const fn octave(x: u32) -> u16 {
    (u32::BITS - x.leading_zeros()) as u16
}

/// The bucket of an age in ticks.
#[inline]
pub(crate) fn bucket(ticks: u32) -> usize {
    if ticks < 2 {
        return ticks as usize;
    }
    let log = u32::BITS - 1 - ticks.leading_zeros();
    let half = ticks >> (log - 1) & 1;
    ((2 * log + half) as usize).min(BUCKETS - 1)
}

/// The least age in ticks of a bucket.
pub(crate) const fn bucket_start(bucket: usize) -> u32 {
    match bucket {
        0 | 1 => bucket as u32,
        _ => (2 + (bucket as u32 & 1)) << (bucket / 2 - 1),
    }
}

/// [`bucket_start`] of the bucket after each.
pub(crate) const BUCKET_ENDS: [u32; BUCKETS] = {
    let mut ends = [0; BUCKETS];
    let mut bucket = 0;
    while bucket < BUCKETS {
        ends[bucket] = bucket_start(bucket + 1);
        bucket += 1;
    }
    ends
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_partition_the_ages() {
        for b in 0..BUCKETS {
            assert_eq!(bucket(bucket_start(b)), b);
            assert!(b == 0 || bucket(bucket_start(b) - 1) == b - 1);
        }
        assert_eq!(bucket(u32::MAX), BUCKETS - 1);
    }

    #[test]
    fn every_class_is_in_range() {
        for count in 0..=COUNT_MAX {
            for distance in [None, Some(0), Some(100), Some(u32::MAX)] {
                for len_bytes in [512, 1 << 14, 1 << 16, 1 << 20] {
                    for op in [PolicyOp::Read, PolicyOp::Write] {
                        let request = PolicyRequest {
                            op,
                            len_bytes,
                            ..PolicyRequest::default()
                        };
                        let class = LineClass::of(count, distance, &request, &AgeScale::of(1000));
                        assert!((class.0 as usize) < CLASSES && class.coarse() < COARSE);
                        assert_eq!(LineClass::recalled(count, class.kind()), class);
                    }
                }
            }
        }
    }
}
