//! Counts distinct values: HyperLogLog with linear counting below
//! (Flajolet, Fusy, Gandouet and Meunier, AofA 2007), 2048 registers, a
//! standard error of 2.3%.

const BITS: u32 = 11;
const REGISTERS: usize = 1 << BITS;

#[derive(Clone, Debug)]
pub(super) struct Distinct(Box<[u8]>);

impl Distinct {
    pub(super) fn new() -> Distinct {
        Distinct(vec![0; REGISTERS].into())
    }

    /// Takes in a thing by its hash.
    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let rank = (hash >> BITS | 1 << (64 - BITS)).trailing_zeros() as u8 + 1;
        let register = &mut self.0[hash as usize % REGISTERS];
        *register = rank.max(*register);
    }

    /// Takes in all that `other` has seen.
    pub(super) fn merge(&mut self, other: &Distinct) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = *theirs.max(mine);
        }
    }

    pub(super) fn estimate(&self) -> f64 {
        let n = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let empty = self.0.iter().filter(|rank| **rank == 0).count();
        let raw = 0.7213 / (1.0 + 1.079 / n) * n * n / sum;
        if raw <= 2.5 * n && empty > 0 {
            n * (n / empty as f64).ln()
        } else {
            raw
        }
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::mix;

    #[test]
    fn counts_within_a_few_percent() {
        let mut all = Distinct::new();
        assert_eq!(all.estimate(), 0.0);
        let mut part = Distinct::new();
        for n in [10u64, 100, 1000, 5000, 10_000, 100_000, 1_000_000] {
            for i in 0..n {
                let target = if i % 2 == 0 { &mut all } else { &mut part };
                target.add(mix(i));
                target.add(mix(i));
            }
            all.merge(&part);
            let error = all.estimate() / n as f64 - 1.0;
            assert!(error.abs() < 0.07, "{n}: {error}");
        }
    }
}
