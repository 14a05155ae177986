//! Some of a number of regions: a bit for each.

/// A set of regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Regions {
    count: usize,
    words: Vec<u64>,
}

impl Regions {
    /// An empty set among `count` regions.
    pub fn none(count: usize) -> Regions {
        Regions {
            count,
            words: vec![0; count.div_ceil(64)],
        }
    }

    /// The regions with set bits in `words`, the lowest of a word first; `None` if the number of
    /// words is not that of `count` regions.
    pub fn from_words(count: usize, words: Vec<u64>) -> Option<Regions> {
        (words.len() == count.div_ceil(64)).then_some(Regions { count, words })
    }

    /// Their bits.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// True if `region` is among them.
    #[inline]
    pub fn has(&self, region: usize) -> bool {
        self.words[region / 64] >> (region % 64) & 1 == 1
    }

    /// Adds `region`. Returns true if the region was not there.
    pub fn add(&mut self, region: usize) -> bool {
        debug_assert!(region < self.count);
        let new = !self.has(region);
        self.words[region / 64] |= 1 << (region % 64);
        new
    }

    /// Takes `region` away.
    pub fn remove(&mut self, region: usize) {
        self.words[region / 64] &= !(1 << (region % 64));
    }

    /// Adds every region.
    pub fn add_all(&mut self) {
        for (word, first) in self.words.iter_mut().zip((0..self.count).step_by(64)) {
            *word = u64::MAX >> 64_usize.saturating_sub(self.count - first);
        }
    }

    /// Adds those of `other`, of as many.
    pub fn merge(&mut self, other: &Regions) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    /// True if all of them are among `other`, of as many.
    pub fn are_in(&self, other: &Regions) -> bool {
        let mut words = self.words.iter().zip(&other.words);
        words.all(|(mine, theirs)| mine & !theirs == 0)
    }

    /// The number of regions.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The regions, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self
            .words
            .iter()
            .enumerate()
            .filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| at * 64 + bit)
        })
    }
}
