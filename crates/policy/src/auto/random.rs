//! A small generator for choosing samples: xorshift64* (Vigna 2016).

/// Uniform numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct UniformNumbers(u64);

impl UniformNumbers {
    pub(crate) fn new(seed: u64) -> UniformNumbers {
        UniformNumbers(crate::index::mix(seed) | 1)
    }

    /// A number below `n`.
    #[inline]
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(n)) >> 32) as u32
    }
}
