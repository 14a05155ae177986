//! The parts of a line that an access touches, in sixteenths.
//!
//! Exact for lines of up to 16 blocks; in longer ones a part counts as touched if any of its blocks
//! is.

/// A bit for each sixteenth of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LineParts(pub(crate) u16);

/// The binary logarithm of how many parts a line has.
const LOG: u32 = u16::BITS.trailing_zeros();

/// The ones of each byte: without the processor's own instruction, which the oldest ones lack,
/// a third of the time of counting them.
const ONES: [u8; 256] = {
    let mut ones = [0; 256];
    let mut byte = 0;
    while byte < ones.len() {
        ones[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    ones
};

impl LineParts {
    /// The parts of a line.
    pub const MAX: usize = u16::BITS as usize;
    /// All of the line.
    pub const WHOLE: LineParts = LineParts(u16::MAX);
    /// No part.
    pub const NONE: LineParts = LineParts(0);

    /// The parts of a line of `1 << log` blocks that `count` blocks (at least one) from `first` on
    /// touch.
    #[inline]
    pub fn of(first: u32, count: u32, log: u32) -> LineParts {
        let (from, to) = if log <= LOG {
            (first << (LOG - log), (first + count) << (LOG - log))
        } else {
            let longer = log - LOG;
            (first >> longer, ((first + count - 1) >> longer) + 1)
        };
        let below = |part: u32| (1u32 << part) - 1;
        LineParts((below(to) & !below(from)) as u16)
    }

    /// Both together.
    #[inline]
    #[must_use]
    pub fn with(self, other: LineParts) -> LineParts {
        LineParts(self.0 | other.0)
    }

    /// True if `other` is a subset.
    #[inline]
    pub fn cover(self, other: LineParts) -> bool {
        other.0 & !self.0 == 0
    }

    /// The number of parts.
    #[inline]
    pub fn count(self) -> usize {
        let [low, high] = self.0.to_le_bytes();
        usize::from(ONES[usize::from(low)] + ONES[usize::from(high)])
    }
}

/// An access touches all of a line of one block.
impl Default for LineParts {
    fn default() -> LineParts {
        LineParts::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_blocks_touched() {
        for log in 0..=8 {
            let blocks = 1u32 << log;
            for first in 0..blocks {
                for count in 1..=blocks - first {
                    let touched = (first..first + count).map(|block| LineParts::of(block, 1, log));
                    let each = touched.fold(LineParts::NONE, LineParts::with);
                    assert_eq!(LineParts::of(first, count, log), each);
                    let (from, to) = (16 * first / blocks, (16 * (first + count)).div_ceil(blocks));
                    assert_eq!(each.count() as u32, to - from);
                    assert!(LineParts::WHOLE.cover(each) && each.cover(each));
                    assert_eq!(each.cover(LineParts::WHOLE), to - from == 16);
                }
            }
        }
    }
}
