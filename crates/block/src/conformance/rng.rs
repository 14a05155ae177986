//! A seeded source of choices: SplitMix64 (Steele, Lea, Flood: "Fast splittable
//! pseudorandom number generators", OOPSLA 2014).

/// The same seed gives the same choices on every machine.
pub(super) struct SuiteRng(u64);

impl SuiteRng {
    pub(super) fn new(seed: u64) -> SuiteRng {
        SuiteRng(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to `n - 1`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// A permutation of the 64-bit words in which each bit depends on all.
pub(super) fn mix(word: u64) -> u64 {
    let z = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
