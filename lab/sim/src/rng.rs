//! The world's randomness: xoshiro256++, seeded through SplitMix64.
//!
//! Source: Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators" (2018). Written out here because a trace hash must never change
//! with a library's version. Not for secrets.

/// A stream of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct SimRng([u64; 4]);

impl SimRng {
    /// The stream that `seed` names.
    pub fn new(seed: u64) -> SimRng {
        let mut state = seed;
        SimRng(std::array::from_fn(|_| split_mix(&mut state)))
    }

    /// An independent stream; `purpose` keeps streams of one seed apart, so
    /// that a new kind of choice does not disturb the others.
    pub fn fork(seed: u64, purpose: u64) -> SimRng {
        let mut state = purpose;
        SimRng::new(seed ^ split_mix(&mut state))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..n`; `n` is at least 1.
    ///
    /// Multiply and shift without rejection: the bias is below `n / 2^64`.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0, "an empty range");
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `min..=max`.
    #[inline]
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        match (max - min).checked_add(1) {
            Some(n) => min + self.below(n),
            None => self.bits(),
        }
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_authors_reference() {
        // The reference C program's first outputs from the state 1, 2, 3, 4.
        let mut rng = SimRng([1, 2, 3, 4]);
        let first: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(first, [41943041, 58720359, 3588806011781223]);
        // The reference SplitMix64's first output from 0.
        assert_eq!(split_mix(&mut 0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn ranges_are_reached_and_kept() {
        let mut rng = SimRng::new(7);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[rng.between(0, 5) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert!(!(0..100).any(|_| rng.chance(0.0)));
        assert!((0..100).all(|_| rng.chance(1.0)));
        assert_ne!(SimRng::fork(1, 1).bits(), SimRng::fork(1, 2).bits());
    }
}
