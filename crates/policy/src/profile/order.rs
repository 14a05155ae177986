//! Which of a row of positions are marked, and how many are beyond one.
//!
//! Three levels: a bit a position, a count for each 64, a count for each 1024.
//! Marking costs three steps, counting at most 32 additions, fewer near the last mark.

/// Positions there are.
pub(super) const POSITIONS: usize = 1 << 14;
const WORD: usize = 64;
const WORDS_PER_BLOCK: usize = 16;

#[derive(Debug)]
pub(super) struct LineOrder {
    bits: Box<[u64]>,
    words: Box<[u8]>,
    blocks: [u32; POSITIONS / WORD / WORDS_PER_BLOCK],
}

impl LineOrder {
    pub(super) fn new() -> LineOrder {
        LineOrder {
            bits: vec![0; POSITIONS / WORD].into(),
            words: vec![0; POSITIONS / WORD].into(),
            blocks: [0; POSITIONS / WORD / WORDS_PER_BLOCK],
        }
    }

    /// Marks a position that is not marked.
    pub(super) fn mark(&mut self, position: u32) {
        let word = position as usize / WORD;
        self.bits[word] |= 1 << (position % WORD as u32);
        self.words[word] += 1;
        self.blocks[word / WORDS_PER_BLOCK] += 1;
    }

    /// Takes the mark from a position that has one.
    pub(super) fn clear(&mut self, position: u32) {
        let word = position as usize / WORD;
        self.bits[word] &= !(1 << (position % WORD as u32));
        self.words[word] -= 1;
        self.blocks[word / WORDS_PER_BLOCK] -= 1;
    }

    /// Marks beyond `position`, where none is from `end` on, which is further.
    pub(super) fn beyond(&self, position: u32, end: u32) -> u32 {
        let (word, last) = (position as usize / WORD, (end as usize - 1) / WORD);
        let (block, last_block) = (word / WORDS_PER_BLOCK, last / WORDS_PER_BLOCK);
        let within = self.bits[word] >> (position % WORD as u32) >> 1;
        let words_end = last.min(block * WORDS_PER_BLOCK + WORDS_PER_BLOCK - 1);
        let words = &self.words[word + 1..=words_end];
        let words: u32 = words.iter().map(|n| u32::from(*n)).sum();
        let blocks: u32 = self.blocks[block + 1..=last_block].iter().sum();
        within.count_ones() + words + blocks
    }

    pub(super) fn reset(&mut self) {
        *self = LineOrder::new();
    }

    pub(super) fn state_bytes(&self) -> usize {
        size_of::<LineOrder>() + self.bits.len() * size_of::<u64>() + self.words.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set() {
        let (mut order, mut set) = (LineOrder::new(), BTreeSet::new());
        let mut x = 7u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (x >> 40) as u32 % POSITIONS as u32;
            if set.remove(&at) {
                order.clear(at);
            } else {
                set.insert(at);
                order.mark(at);
            }
            let asked = (x >> 20) as u32 % POSITIONS as u32;
            let end = set.last().map_or(0, |last| last + 1).max(asked + 1);
            for end in [end, POSITIONS as u32] {
                let beyond = order.beyond(asked, end) as usize;
                assert_eq!(beyond, set.range(asked + 1..).count());
            }
        }
        order.reset();
        assert_eq!(order.beyond(0, POSITIONS as u32), 0);
    }
}
