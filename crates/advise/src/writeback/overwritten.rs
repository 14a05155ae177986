//! The share of the blocks written that is soon overwritten.
//!
//! Exact while at most [`EXACT_BLOCKS`] blocks are written within the time that counts. Beyond,
//! blocks are sampled by a hash of their numbers, half as many each time that memory is full. Each
//! sampled block counts for those that are left out (as SHARDS does, Waldspurger et al., FAST
//! 2015).
//!
//! Invariant: `last` has at most twice [`EXACT_BLOCKS`] blocks, each with a hash up to `limit`.

use block::Nanos;
use rustc_hash::FxHashMap;

/// 512 MiB written within 30 s.
const EXACT_BLOCKS: usize = 1 << 17;

pub(super) struct Overwritten {
    within: Nanos,
    last: FxHashMap<u64, Nanos>,
    blocks_max: usize,
    limit: u64,
    /// Number of blocks for which one in the sample stands.
    weight: f64,
    written: f64,
    overwritten: f64,
}

impl Overwritten {
    pub(super) fn new(within: Nanos) -> Overwritten {
        Overwritten::sampling(within, EXACT_BLOCKS)
    }

    fn sampling(within: Nanos, exact_blocks: usize) -> Overwritten {
        Overwritten {
            within,
            last: FxHashMap::default(),
            blocks_max: 2 * exact_blocks,
            limit: u64::MAX,
            weight: 1.0,
            written: 0.0,
            overwritten: 0.0,
        }
    }

    pub(super) fn write(&mut self, now: Nanos, block: u64) {
        if hash(block) > self.limit {
            return;
        }
        self.written += self.weight;
        let before = self.last.insert(block, now);
        if before.is_some_and(|before| now.since(before) <= self.within) {
            self.overwritten += self.weight;
        }
        if self.last.len() > self.blocks_max {
            let within = self.within;
            self.last.retain(|_, at| now.since(*at) <= within);
            while self.last.len() > self.blocks_max / 2 {
                self.limit /= 2;
                self.weight *= 2.0;
                let limit = self.limit;
                self.last.retain(|block, _| hash(*block) <= limit);
            }
        }
    }

    /// Share of the blocks written that was overwritten in time.
    pub(super) fn share(&self) -> f64 {
        self.overwritten / self.written.max(1.0)
    }
}

/// The finaliser of splitmix64 (Steele et al., OOPSLA 2014).
fn hash(block: u64) -> u64 {
    let x = block.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WITHIN: Nanos = Nanos(100);

    fn share(writes: &[(Nanos, u64)], exact_blocks: usize) -> (f64, usize) {
        let mut counted = Overwritten::sampling(WITHIN, exact_blocks);
        for (at, block) in writes {
            counted.write(*at, *block);
            assert!(counted.last.len() <= 2 * exact_blocks);
        }
        (counted.share(), counted.weight as usize)
    }

    /// Each write beside every later one.
    fn by_pairs(writes: &[(Nanos, u64)]) -> f64 {
        let overwritten = writes.iter().enumerate().filter(|(i, (at, block))| {
            let mut later = writes[i + 1..].iter();
            later.any(|(then, other)| other == block && then.since(*at) <= WITHIN)
        });
        overwritten.count() as f64 / writes.len().max(1) as f64
    }

    proptest! {
        #[test]
        fn counts_as_every_pair_of_writes_says(
            steps in prop::collection::vec((20u64..60, 0u64..40), 0..200),
        ) {
            let mut now = Nanos::ZERO;
            let timed = |(step, block)| {
                now += Nanos(step);
                (now, block)
            };
            let writes: Vec<_> = steps.into_iter().map(timed).collect();
            // At most six count at a time: older ones make room, and nothing is sampled.
            let (share, weight) = share(&writes, 12);
            prop_assert_eq!(weight, 1);
            prop_assert!((share - by_pairs(&writes)).abs() < 1e-12);
        }
    }

    #[test]
    fn canary_another_share_is_noticed() {
        let writes = [(Nanos(0), 1), (Nanos(100), 1), (Nanos(201), 1)];
        assert_eq!(share(&writes, 12).0, 1.0 / 3.0);
        assert_eq!(by_pairs(&writes), 1.0 / 3.0);
        let late = [(Nanos(0), 1), (Nanos(101), 1), (Nanos(202), 1)];
        assert_ne!(by_pairs(&late), share(&writes, 12).0);
    }

    #[test]
    fn a_sample_of_many_blocks_is_close() {
        // Of each three writes one overwrites the block of the write before.
        let write = |i: u64| (Nanos(i / 1000), if i % 3 == 2 { i - 1 } else { i });
        let writes: Vec<_> = (0..60_000).map(write).collect();
        let (share, weight) = share(&writes, 2000);
        assert!(weight >= 8, "{weight}");
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{share}");
    }
}
