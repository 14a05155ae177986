//! The record of one line, in eight bytes.

use super::class::{COUNT_MAX, LineClass};
use super::scale::AgeScale;
use crate::{LineParts, PolicyRequest};

/// Uses since a line came that are distinguished.
pub(crate) const USES_MAX: u8 = 7;

const COUNT_BITS: u32 = 4;
const USES_BITS: u32 = 3;

/// ```text
/// word: bits 15..7  class
///             6..4  uses since the line came, the first one too; 0 of no line
///             3..0  accesses remembered, faded
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PackedLine {
    /// Ticks at its last access.
    pub(crate) last: u32,
    word: u16,
    /// The parts touched since the line came, which its slot holds.
    pub(crate) held: LineParts,
}

impl PackedLine {
    /// No line.
    pub(crate) const VACANT: PackedLine = PackedLine::unpacked(0);

    /// The record of [`PackedLine::packed`].
    #[inline]
    pub(crate) const fn unpacked(packed: u64) -> PackedLine {
        PackedLine {
            last: packed as u32,
            word: (packed >> 32) as u16,
            held: LineParts((packed >> 48) as u16),
        }
    }

    /// The record as one number; 0 is no line.
    #[inline]
    pub(crate) const fn packed(self) -> u64 {
        self.last as u64 | (self.word as u64) << 32 | (self.held.0 as u64) << 48
    }

    /// A line that comes `now`.
    pub(crate) fn new(now: u32, class: LineClass, count: u8, touched: LineParts) -> PackedLine {
        PackedLine {
            last: now,
            word: word(class, 1, count),
            held: touched,
        }
    }

    /// A line of an earlier run, used as often as `count`.
    pub(crate) fn adopted(last: u32, class: LineClass, count: u8, held: LineParts) -> PackedLine {
        PackedLine {
            last,
            word: word(class, count.clamp(1, USES_MAX), count),
            held,
        }
    }

    #[inline]
    pub(crate) fn is_vacant(self) -> bool {
        self.uses() == 0
    }

    #[inline]
    pub(crate) fn class(self) -> LineClass {
        LineClass(self.word >> (USES_BITS + COUNT_BITS))
    }

    #[inline]
    pub(crate) fn count(self) -> u8 {
        (self.word & u16::from(COUNT_MAX)) as u8
    }

    #[inline]
    pub(crate) fn uses(self) -> u8 {
        (self.word >> COUNT_BITS) as u8 & USES_MAX
    }

    /// The parts held after a use of `touched`.
    #[inline]
    pub(crate) fn used(self, touched: LineParts) -> PackedLine {
        self.resident(self, touched)
    }

    /// The line is used `now`.
    #[inline]
    pub(crate) fn touch(&mut self, now: u32, request: &PolicyRequest, scale: &AgeScale) {
        let age = now.wrapping_sub(self.last);
        let faded = scale.faded(self.count(), age);
        let count = faded + u8::from(faded < COUNT_MAX);
        let class = LineClass::of(count, Some(age), request, scale);
        let uses = self.uses();
        self.word = word(class, uses + u8::from(uses < USES_MAX), count);
        self.held = self.held.with(request.parts);
        self.last = now;
    }

    /// The same accesses, of a slot that the line enters now.
    pub(crate) fn entering(self, touched: LineParts) -> PackedLine {
        PackedLine::new(self.last, self.class(), self.count(), touched)
    }

    /// The same accesses, of the slot that `resident` is in and that is `touched` now.
    pub(crate) fn resident(self, resident: PackedLine, touched: LineParts) -> PackedLine {
        let uses = resident.uses();
        PackedLine {
            last: self.last,
            word: word(self.class(), uses + u8::from(uses < USES_MAX), self.count()),
            held: resident.held.with(touched),
        }
    }
}

#[inline]
fn word(class: LineClass, uses: u8, count: u8) -> u16 {
    class.0 << (USES_BITS + COUNT_BITS) | u16::from(uses) << COUNT_BITS | u16::from(count)
}

#[cfg(test)]
mod tests {
    use super::super::class::CLASSES;
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        assert!(PackedLine::VACANT.is_vacant() && PackedLine::VACANT.packed() == 0);
        for class in 0..CLASSES as u16 {
            for count in 1..=COUNT_MAX {
                let line = PackedLine::adopted(9, LineClass(class), count, LineParts::WHOLE);
                let out = (line.class(), line.count(), line.uses());
                assert_eq!(out, (LineClass(class), count, count.min(USES_MAX)));
                assert!(!line.is_vacant());
                assert_eq!(PackedLine::unpacked(line.packed()), line);
            }
        }
    }

    #[test]
    fn a_line_holds_what_was_touched_since_it_came() {
        let scale = AgeScale::of(1000);
        let part = |first| PolicyRequest {
            parts: LineParts::of(first, 1, 4),
            ..PolicyRequest::default()
        };
        let mut line = PackedLine::new(0, LineClass(0), 3, part(0).parts);
        line.touch(1, &part(5), &scale);
        assert_eq!((line.held.count(), line.uses(), line.count()), (2, 2, 4));
        let again = line.entering(part(9).parts);
        assert_eq!(
            (again.held, again.uses(), again.count()),
            (part(9).parts, 1, 4)
        );
        line.touch(2, &part(6), &scale);
        let there = line.resident(again, part(6).parts);
        assert_eq!((there.held.count(), there.uses(), there.count()), (2, 2, 5));
    }
}
