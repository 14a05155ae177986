//! The memory of a resident line over a restart, in two bytes.

/// The use of a line: the same bits for every policy, so that lines exported
/// by one can be adopted by another. Any 16 bits are a heat.
///
/// ```text
/// bits 15..10  kind
///       9..5   age
///       4      zero
///       3..0   uses
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Heat(pub u16);

impl Heat {
    const USES_BITS: u32 = 5;
    const AGE_BITS: u32 = 5;

    /// `uses` saturates at 15, `age` at 31, `kind` is below 64.
    pub(crate) fn new(uses: u8, age: u8, kind: u8) -> Heat {
        let (uses, age, kind) = (u16::from(uses), u16::from(age), u16::from(kind));
        let high = age.min(31) | kind << Heat::AGE_BITS;
        Heat(uses.min(15) | high << Heat::USES_BITS)
    }

    /// Heat of which only the uses are known.
    pub(crate) fn of_uses(uses: u8) -> Heat {
        Heat::new(uses, 0, 0)
    }

    /// The standing of the line: zero without a use since its admission, up to 15 with uses.
    pub fn uses(self) -> u8 {
        (self.0 & 15) as u8
    }

    /// The age of the last use, in half octaves; 31 for the longest, zero also for an unknown age.
    pub fn age(self) -> u8 {
        (self.0 >> Heat::USES_BITS & 31) as u8
    }

    /// Further memory of the exporting policy; zero if none.
    pub fn kind(self) -> u8 {
        (self.0 >> (Heat::USES_BITS + Heat::AGE_BITS)) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for (uses, age, kind) in [(0, 0, 0), (15, 31, 63), (3, 17, 40)] {
            let heat = Heat::new(uses, age, kind);
            assert_eq!((heat.uses(), heat.age(), heat.kind()), (uses, age, kind));
        }
        assert_eq!(Heat::new(200, 77, 1), Heat::new(15, 31, 1));
    }
}
