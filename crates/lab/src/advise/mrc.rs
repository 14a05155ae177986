//! Miss-ratio curves of LRU by spatial sampling, with an error band, in less
//! than a mebibyte whatever the trace.
//!
//! Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with
//! SHARDS", FAST 2015: the fixed-size variant with its adjustment for sampling
//! error. Four samplers with independent hash functions share the budget; the
//! curve is their mean, the band twice the standard error between them.

use std::collections::{BinaryHeap, HashMap};

const SAMPLERS: usize = 4;
/// Keys that each sampler follows at the most.
const KEYS_MAX: usize = 3072;
/// Positions of the order tree before it is renumbered.
const POSITIONS: usize = 4 * KEYS_MAX;
/// Bins of the distance histogram: so many for each octave, 48 octaves.
const BINS_PER_OCTAVE: u32 = 32;
const BINS: usize = (BINS_PER_OCTAVE * 48) as usize;

/// The curve under construction.
#[derive(Debug)]
pub struct MissRatioCurve {
    samplers: Vec<Sampler>,
    accesses: u64,
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Point {
    /// Cache size in lines.
    pub lines: u64,
    /// Estimated miss ratio of LRU, cold misses included.
    pub miss_ratio: f64,
    /// Half the width of the band that holds the true value in about 19 cases
    /// of 20.
    pub error: f64,
}

impl Default for MissRatioCurve {
    fn default() -> MissRatioCurve {
        MissRatioCurve {
            samplers: (0..SAMPLERS as u64).map(Sampler::new).collect(),
            accesses: 0,
        }
    }
}

impl MissRatioCurve {
    /// Counts one access to a line.
    pub fn access(&mut self, line: u64) {
        self.accesses += 1;
        for sampler in &mut self.samplers {
            sampler.access(line);
        }
    }

    /// The estimate for a cache of `lines`.
    pub fn at(&self, lines: u64) -> Point {
        let ratios: Vec<f64> = self
            .samplers
            .iter()
            .map(|s| s.miss_ratio(lines, self.accesses))
            .collect();
        let n = SAMPLERS as f64;
        let mean = ratios.iter().sum::<f64>() / n;
        let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Point {
            lines,
            miss_ratio: mean,
            error: 2.0 * (variance / n).sqrt(),
        }
    }

    /// Accesses counted.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The share of accesses that are the first to their line, estimated: the
    /// miss ratio that no size goes below.
    pub fn plateau(&self) -> f64 {
        self.at(u64::MAX).miss_ratio
    }

    /// Distinct lines, estimated.
    pub fn unique_lines(&self) -> f64 {
        let cold = self.samplers.iter().map(|s| s.cold).sum::<f64>();
        cold / SAMPLERS as f64
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.samplers.iter().map(Sampler::state_bytes).sum()
    }
}

#[derive(Debug)]
struct Sampler {
    seed: u64,
    /// A key is followed if its hash is below this.
    threshold: u32,
    /// Followed keys: the position of the last access.
    last: HashMap<u64, u32>,
    /// Followed keys by hash, the highest first, for lowering the threshold.
    by_hash: BinaryHeap<(u32, u64)>,
    /// Fenwick tree over positions: one where a key's last access is.
    tree: Vec<u32>,
    next: usize,
    /// Weight of the reuses at each distance.
    histogram: Vec<f64>,
    cold: f64,
    weight: f64,
}

impl Sampler {
    fn new(seed: u64) -> Sampler {
        Sampler {
            seed,
            threshold: u32::MAX,
            last: HashMap::with_capacity(KEYS_MAX + 1),
            by_hash: BinaryHeap::with_capacity(KEYS_MAX + 1),
            tree: vec![0; POSITIONS + 1],
            next: 0,
            histogram: vec![0.0; BINS],
            cold: 0.0,
            weight: 0.0,
        }
    }

    fn access(&mut self, line: u64) {
        let hash = hash(line, self.seed);
        if hash > self.threshold {
            return;
        }
        let scale = 4_294_967_296.0 / (f64::from(self.threshold) + 1.0);
        self.weight += scale;
        if self.next == POSITIONS {
            self.renumber();
        }
        match self.last.get(&line).copied() {
            Some(position) => {
                let newer = self.last.len() as u32 - self.count(position as usize);
                self.histogram[bin((f64::from(newer) * scale) as u64)] += scale;
                self.mark(position as usize, false);
            }
            None => {
                self.cold += scale;
                self.by_hash.push((hash, line));
            }
        }
        self.last.insert(line, self.next as u32);
        self.mark(self.next, true);
        self.next += 1;
        while self.last.len() > KEYS_MAX {
            self.lower_threshold();
        }
    }

    /// Stops following the keys of the highest hash.
    fn lower_threshold(&mut self) {
        let Some(&(highest, _)) = self.by_hash.peek() else {
            return;
        };
        while let Some(&(hash, line)) = self.by_hash.peek() {
            if hash < highest {
                break;
            }
            self.by_hash.pop();
            if let Some(position) = self.last.remove(&line) {
                self.mark(position as usize, false);
            }
        }
        self.threshold = highest.saturating_sub(1);
    }

    /// Gives the positions from zero on, in order, to the keys followed.
    fn renumber(&mut self) {
        let mut order: Vec<(u32, u64)> = self.last.iter().map(|(k, at)| (*at, *k)).collect();
        order.sort_unstable();
        self.tree.fill(0);
        for (position, (_, line)) in order.iter().enumerate() {
            self.last.insert(*line, position as u32);
            self.mark(position, true);
        }
        self.next = order.len();
    }

    fn mark(&mut self, position: usize, present: bool) {
        let mut at = position + 1;
        while at <= POSITIONS {
            self.tree[at] = if present {
                self.tree[at] + 1
            } else {
                self.tree[at] - 1
            };
            at += at & at.wrapping_neg();
        }
    }

    /// Keys whose last access is at `position` or before.
    fn count(&self, position: usize) -> u32 {
        let mut at = position + 1;
        let mut sum = 0;
        while at > 0 {
            sum += self.tree[at];
            at &= at - 1;
        }
        sum
    }

    fn miss_ratio(&self, lines: u64, accesses: u64) -> f64 {
        if accesses == 0 {
            return 1.0;
        }
        let far: f64 = self.histogram[bin(lines)..].iter().sum();
        let far = if lines == u64::MAX { 0.0 } else { far };
        // The adjustment: what the sample holds too much or too little of is
        // taken to be reuses at no distance, which no cache misses.
        ((far + self.cold) / accesses as f64).clamp(0.0, 1.0)
    }

    fn state_bytes(&self) -> usize {
        // The table keeps its load below 7/8 in powers of two, a byte of
        // control for each slot.
        let slots = (self.last.capacity() * 8 / 7).next_power_of_two();
        slots * (size_of::<(u64, u32)>() + 1)
            + self.by_hash.capacity() * size_of::<(u32, u64)>()
            + self.tree.capacity() * size_of::<u32>()
            + self.histogram.capacity() * size_of::<f64>()
    }
}

/// The finaliser of SplitMix64 over the line and the seed, upper half.
fn hash(line: u64, seed: u64) -> u32 {
    let mut x = line ^ (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 32) as u32
}

/// The bin of a distance: exact below 64, then 32 for each octave.
fn bin(distance: u64) -> usize {
    let exact = u64::from(BINS_PER_OCTAVE);
    if distance < exact {
        return distance as usize;
    }
    let log = distance.ilog2() - BINS_PER_OCTAVE.ilog2();
    let within = (distance >> log) - exact;
    let bin = u64::from(log + 1) * exact + within;
    (bin as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Instruction, Key, Request, Unpinned, registry};

    /// A skewed stream with a scan now and then.
    fn stream(accesses: u64) -> impl Iterator<Item = u64> {
        let mut x = 88_172_645_463_325_252u64;
        (0..accesses).map(move |i| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let u = (x >> 11) as f64 / (1u64 << 53) as f64;
            match i / 10_000 % 5 {
                4 => 1_000_000 + i,
                _ => (u.powi(4) * 50_000.0) as u64,
            }
        })
    }

    #[test]
    fn agrees_with_simulated_lru_within_a_mebibyte() {
        let accesses = 300_000;
        let mut curve = MissRatioCurve::default();
        stream(accesses).for_each(|line| curve.access(line));
        assert!(curve.state_bytes() <= 1 << 20, "{}", curve.state_bytes());
        let sizes = [
            100u32, 500, 1000, 2000, 5000, 10_000, 20_000, 40_000, 80_000,
        ];
        let mut error = 0.0;
        for lines in sizes {
            let mut lru = registry::build("lru", lines, 1).expect("registered");
            let misses = stream(accesses)
                .filter(|line| {
                    let answer = lru.access(Key(*line), &Request::default(), &Unpinned);
                    !matches!(answer, Instruction::Hit(_))
                })
                .count();
            let exact = misses as f64 / accesses as f64;
            error += (curve.at(u64::from(lines)).miss_ratio - exact).abs();
        }
        error /= sizes.len() as f64;
        assert!(error <= 0.01, "mean absolute error {error}");
    }

    #[test]
    fn a_short_stream_is_exact() {
        let mut curve = MissRatioCurve::default();
        (0..1000).for_each(|i| curve.access(i % 10));
        assert_eq!(curve.at(10).miss_ratio, 0.01);
        assert_eq!(curve.at(9).miss_ratio, 1.0);
        assert_eq!((curve.at(10).error, curve.unique_lines()), (0.0, 10.0));
    }

    #[test]
    fn bins_are_monotonic() {
        let mut last = 0;
        for d in (0..5000).chain((13..47).map(|log| 1u64 << log)) {
            assert!(bin(d) >= last);
            last = bin(d);
        }
    }
}
