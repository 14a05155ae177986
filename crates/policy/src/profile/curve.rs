//! Miss-ratio curves of LRU by spatial sampling, with an error band.
//!
//! Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC construction with SHARDS", FAST 2015:
//! the fixed-size variant with its adjustment for sampling error. Four samplers with independent
//! hash functions share the budget; the curve is their mean, and the band follows from their
//! differences.
//!
//! A resident line may lack the requested block. An access that touches a block not touched before
//! is a miss at every size. A block may have been lost with its line, and the line come back since.
//! That is not followed, so with lines of many blocks small sizes look a little too good.

use super::access::{Blocks, Hashes};
use super::order::{LineOrder, POSITIONS};
use crate::PolicyOp;
use crate::index::mix;
use serde::{Deserialize, Serialize};
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

const SAMPLERS: usize = 4;
/// Most lines that each sampler follows: less than half of the capacity of a hash table with 8192
/// places, so that removals never make the table grow.
const LINES_MAX: usize = 3500;
/// Bins of the distance histogram in each of its 48 octaves.
const BINS_PER_OCTAVE: u32 = 32;
const BINS: usize = (BINS_PER_OCTAVE * 48) as usize;
/// 97.5% of Student's t with one degree of freedom less than samplers stays
/// below this.
const STUDENT: f64 = 3.182;

/// The curve under construction.
#[derive(Debug)]
pub struct MissRatioCurve {
    samplers: [Sampler; SAMPLERS],
    accesses: u64,
    /// Parts of lines that were read.
    parts_read: u64,
}

/// A point of the curve.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Cache size in lines.
    pub lines: u64,
    /// Estimated miss ratio of LRU, cold misses included.
    pub miss_ratio: f64,
    /// Half the width of the band that is to hold the true value in 19 cases of
    /// 20, by the differences between the samplers.
    pub error: f64,
}

impl MissRatioCurve {
    /// Each sampler follows at most one line in `one_in`, at least 1.
    pub fn new(one_in: u32) -> MissRatioCurve {
        MissRatioCurve {
            samplers: std::array::from_fn(|_| Sampler::new(u32::MAX / one_in.max(1))),
            accesses: 0,
            parts_read: 0,
        }
    }

    /// Counts one read of `blocks` of a line.
    pub fn access(&mut self, line: u64, blocks: Blocks) {
        self.sample(line, blocks, PolicyOp::Read, Hashes::of(line));
    }

    #[inline]
    pub(super) fn sample(&mut self, line: u64, blocks: Blocks, op: PolicyOp, hashes: Hashes) {
        self.accesses += 1;
        if op == PolicyOp::Read {
            self.parts_read += u64::from(blocks.count_ones());
        }
        let [first, second] = hashes.0;
        let halves = [first, first >> 32, second, second >> 32];
        for (sampler, half) in self.samplers.iter_mut().zip(halves) {
            if half as u32 <= sampler.threshold {
                sampler.follow(line, blocks, op, half as u32);
            }
        }
    }

    /// Counts `more` reads of the line of the last access, at no distance.
    pub(super) fn read_again(&mut self, blocks: Blocks, more: u64) {
        self.accesses += more;
        self.parts_read += more * u64::from(blocks.count_ones());
    }

    /// The estimate for a cache of `lines`.
    pub fn at(&self, lines: u64) -> CurvePoint {
        self.point(lines, |sampler| sampler.far(lines) + sampler.cold)
    }

    /// The share of accesses that miss at any size, as of an endless pool.
    pub fn plateau(&self) -> CurvePoint {
        self.point(u64::MAX, |sampler| sampler.cold)
    }

    fn point(&self, lines: u64, missed: impl Fn(&Sampler) -> f64) -> CurvePoint {
        // The adjustment: the excess or the lack of a sample counts as reuses at no distance, which
        // no cache misses.
        let all = self.accesses.max(1) as f64;
        let ratios = self.samplers.each_ref();
        let ratios = ratios.map(|s| (missed(s) / all).clamp(0.0, 1.0));
        let n = SAMPLERS as f64;
        let mean = ratios.iter().sum::<f64>() / n;
        let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
        CurvePoint {
            lines,
            miss_ratio: if self.accesses == 0 { 1.0 } else { mean },
            error: STUDENT * (variance / n).sqrt(),
        }
    }

    /// Share of the parts of lines read that were touched for the first time.
    pub fn first_reads(&self) -> f64 {
        let first: f64 = self.samplers.iter().map(|s| s.parts_first_read).sum();
        let read = self.parts_read.max(1) as f64;
        (first / SAMPLERS as f64 / read).min(1.0)
    }

    /// Accesses counted.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Distinct lines, estimated.
    pub fn unique_lines(&self) -> f64 {
        let new: f64 = self.samplers.iter().map(|s| s.new).sum();
        new / SAMPLERS as f64
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        self.samplers.iter().map(Sampler::state_bytes).sum()
    }
}

/// Hashes a line by the finaliser that chose it, over other bits.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, line: u64) {
        self.0 = mix(self.0 ^ line ^ u64::MAX);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The record of a line that is followed.
#[derive(Clone, Copy, Debug)]
struct Followed {
    /// The position of its last access.
    position: u32,
    /// The parts that were ever touched.
    touched: Blocks,
}

#[derive(Debug)]
struct Sampler {
    /// A line is followed if its hash is at most this.
    threshold: u32,
    lines: HashMap<u64, Followed, BuildHasherDefault<Mixed>>,
    /// Lines followed, by hash, the highest first, for lowering the threshold.
    by_hash: BinaryHeap<(u32, u64)>,
    /// Marked where a line's last access is.
    order: LineOrder,
    next: u32,
    /// Weight of the reuses at each distance.
    histogram: Box<[f64]>,
    /// Weight of the accesses that no size would have hit.
    cold: f64,
    /// Weight of the first accesses to a line.
    new: f64,
    /// Weight of the parts of lines that were read before they were touched otherwise.
    parts_first_read: f64,
}

impl Sampler {
    fn new(threshold: u32) -> Sampler {
        Sampler {
            threshold,
            lines: HashMap::with_capacity_and_hasher(2 * LINES_MAX, BuildHasherDefault::default()),
            by_hash: BinaryHeap::with_capacity(LINES_MAX + 1),
            order: LineOrder::new(),
            next: 0,
            histogram: vec![0.0; BINS].into(),
            cold: 0.0,
            new: 0.0,
            parts_first_read: 0.0,
        }
    }

    #[inline(never)]
    fn follow(&mut self, line: u64, blocks: Blocks, op: PolicyOp, hash: u32) {
        let scale = 4_294_967_296.0 / (f64::from(self.threshold) + 1.0);
        if self.next as usize == POSITIONS {
            self.renumber();
        }
        let position = self.next;
        self.next += 1;
        let known = self.lines.get_mut(&line);
        if op == PolicyOp::Read {
            let touched = known.as_ref().map_or(0, |known| known.touched);
            let first_read = blocks & !touched;
            if first_read != 0 {
                self.parts_first_read += scale * f64::from(first_read.count_ones());
            }
        }
        match known {
            Some(known) => {
                let newer = self.order.beyond(known.position, position);
                if blocks & !known.touched == 0 {
                    self.histogram[bin((f64::from(newer) * scale) as u64)] += scale;
                } else {
                    self.cold += scale;
                }
                self.order.clear(known.position);
                known.position = position;
                known.touched |= blocks;
            }
            None => {
                self.cold += scale;
                self.new += scale;
                self.by_hash.push((hash, line));
                let touched = blocks;
                self.lines.insert(line, Followed { position, touched });
            }
        }
        self.order.mark(position);
        while self.lines.len() > LINES_MAX {
            self.lower_threshold();
        }
    }

    /// Stops following the lines of the highest hash.
    fn lower_threshold(&mut self) {
        let Some(&(highest, _)) = self.by_hash.peek() else {
            return;
        };
        while let Some(&(hash, line)) = self.by_hash.peek() {
            if hash < highest {
                break;
            }
            self.by_hash.pop();
            if let Some(known) = self.lines.remove(&line) {
                self.order.clear(known.position);
            }
        }
        self.threshold = highest.saturating_sub(1);
    }

    /// Gives the positions from zero on, in order, to the lines followed.
    fn renumber(&mut self) {
        let mut order: Vec<&mut Followed> = self.lines.values_mut().collect();
        order.sort_unstable_by_key(|known| known.position);
        self.order.reset();
        self.next = order.len() as u32;
        for (known, position) in order.into_iter().zip(0..) {
            known.position = position;
            self.order.mark(position);
        }
    }

    /// Weight of the reuses that a cache of `lines` is too small for.
    fn far(&self, lines: u64) -> f64 {
        self.histogram[bin(lines)..].iter().sum()
    }

    fn state_bytes(&self) -> usize {
        // The table keeps its load below 7/8 in powers of two, a byte of
        // control for each place.
        let places = (self.lines.capacity() * 8 / 7).next_power_of_two();
        places * (size_of::<(u64, Followed)>() + 1)
            + self.by_hash.capacity() * size_of::<(u32, u64)>()
            + self.order.state_bytes()
            + self.histogram.len() * size_of::<f64>()
    }
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
    use crate::{Instruction, LineKey, PolicyRequest, Unpinned, registry};

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
        let mut curve = MissRatioCurve::new(1);
        stream(accesses).for_each(|line| curve.access(line, 1));
        assert!(curve.state_bytes() <= 1 << 20, "{}", curve.state_bytes());
        let sizes = [
            100u32, 500, 1000, 2000, 5000, 10_000, 20_000, 40_000, 80_000,
        ];
        let mut error = 0.0;
        for lines in sizes {
            let mut lru = registry::build("lru", lines, 1).expect("registered");
            let misses = stream(accesses)
                .filter(|line| {
                    let answer = lru.access(LineKey(*line), &PolicyRequest::default(), &Unpinned);
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
        let mut curve = MissRatioCurve::new(1);
        (0..1000).for_each(|i| curve.access(i % 10, 1));
        assert_eq!(curve.at(10).miss_ratio, 0.01);
        assert_eq!(curve.at(9).miss_ratio, 1.0);
        assert_eq!((curve.at(10).error, curve.unique_lines()), (0.0, 10.0));
    }

    #[test]
    fn a_block_not_touched_before_is_a_miss_at_any_size() {
        let mut curve = MissRatioCurve::new(1);
        for round in 0..8 {
            (0..10).for_each(|line| curve.access(line, 1 << (round % 4)));
        }
        assert_eq!(curve.plateau().miss_ratio, 0.5);
        assert_eq!(curve.first_reads(), 0.5);
        assert_eq!((curve.at(10).miss_ratio, curve.unique_lines()), (0.5, 10.0));
    }

    #[test]
    fn a_thin_sample_agrees_within_its_band() {
        let (mut full, mut thin) = (MissRatioCurve::new(1), MissRatioCurve::new(32));
        stream(300_000).for_each(|line| full.access(line, 1));
        stream(300_000).for_each(|line| thin.access(line, 1));
        for lines in [1000, 5000, 20_000] {
            let (exact, point) = (full.at(lines), thin.at(lines));
            let off = (exact.miss_ratio - point.miss_ratio).abs();
            assert!(
                off <= point.error + exact.error && off < 0.05,
                "{exact:?} {point:?}"
            );
        }
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
