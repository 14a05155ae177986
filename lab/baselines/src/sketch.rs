//! Recent frequency of keys: a count-min sketch of four-bit counters with conservative update,
//! halved after every so many increments.
//!
//! Cormode and Muthukrishnan 2005; Estan and Varghese 2002 (conservative
//! update); ageing after Einziger, Friedman and Manes, "TinyLFU: a highly
//! efficient cache admission policy", ACM Transactions on Storage 2017.

use policy::{LineKey, mix};

const ROWS: u32 = 4;
const COUNT_MAX: u64 = 15;
/// Increments between halvings, for each line of the pool.
const SAMPLE_PER_LINE: u64 = 10;

/// Four-bit frequency estimates in about eight bytes for each line.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    /// Sixteen counters a word; the four rows lie in one array.
    words: Vec<u64>,
    /// Counters minus one: a power of two.
    mask: u64,
    sample: u64,
    increments: u64,
}

impl Sketch {
    /// A sketch for a pool of `lines`.
    pub(crate) fn new(lines: u32) -> Sketch {
        let counters = (u64::from(lines.max(16)) * 4).next_power_of_two() * u64::from(ROWS);
        Sketch {
            words: vec![0; (counters / 16) as usize],
            mask: counters - 1,
            sample: u64::from(lines.max(1)) * SAMPLE_PER_LINE,
            increments: 0,
        }
    }

    /// Fits the sketch to a pool of `lines`; the counts are lost if the sketch has to grow.
    pub(crate) fn fit(&mut self, lines: u32) {
        let fitting = Sketch::new(lines);
        if fitting.mask > self.mask {
            *self = fitting;
        } else {
            self.sample = fitting.sample;
        }
    }

    /// Word and bit shift of the counters of `key`.
    fn places(&self, key: LineKey) -> [(usize, u32); ROWS as usize] {
        let hash = mix(key.0);
        let mut step = 0u64;
        [(); ROWS as usize].map(|()| {
            step += 1;
            let at = mix(hash.wrapping_add(step)) & self.mask;
            ((at / 16) as usize, (at % 16) as u32 * 4)
        })
    }

    fn count(&self, (word, shift): (usize, u32)) -> u64 {
        self.words[word] >> shift & COUNT_MAX
    }

    /// Counts one access.
    pub(crate) fn add(&mut self, key: LineKey) {
        let places = self.places(key);
        let least = self.least(&places);
        if least < COUNT_MAX {
            for place in places {
                if self.count(place) == least {
                    self.words[place.0] += 1 << place.1;
                }
            }
        }
        self.increments += 1;
        if self.increments >= self.sample {
            self.increments /= 2;
            for word in &mut self.words {
                *word = *word >> 1 & 0x7777_7777_7777_7777;
            }
        }
    }

    fn least(&self, places: &[(usize, u32)]) -> u64 {
        let counts = places.iter().map(|place| self.count(*place));
        counts.min().unwrap_or(0)
    }

    /// Recent frequency of `key`, at most 15.
    pub(crate) fn estimate(&self, key: LineKey) -> u64 {
        self.least(&self.places(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_frequent_from_rare_and_forgets() {
        let mut sketch = Sketch::new(1000);
        for round in 0..5 {
            for key in 0..100 {
                sketch.add(LineKey(key));
            }
            sketch.add(LineKey(1_000_000 + round));
        }
        assert!((0..100).all(|key| sketch.estimate(LineKey(key)) == 5));
        assert!((0..5).all(|round| sketch.estimate(LineKey(1_000_000 + round)) == 1));
        for key in 10_000..30_000 {
            sketch.add(LineKey(key));
        }
        assert!((0..100).all(|key| sketch.estimate(LineKey(key)) <= 3));
    }
}
