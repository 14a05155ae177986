//! From a key to the node that describes the key.
//!
//! The index stores node numbers only; the keys live in the nodes and are fetched through `key_of`,
//! so that a line's key is in memory once.
//!
//! [`HashIndex`] is a hash table of cache-line buckets that never rehashes and leaves no
//! tombstones, after F14 (Bronson and Shi, "Open-sourcing F14", Facebook 2019). A bucket is 64
//! bytes: twelve entries, each a one-byte tag and a node number, and a count. The count is that of
//! entries that did not fit here and went on to a later bucket. A look-up stops at the first bucket
//! with a count of zero.
//!
//! Invariants:
//!     tag = 0 ⟺ the entry is empty
//!     bucket.passed = entries with a probe that starts at or before the bucket and
//!                     that are stored after it
//!
//! At the design load of 80% an entry costs 6.7 bytes, and 1.1 buckets are read per look-up.

use crate::LineKey;

/// A map from keys to node numbers below a capacity fixed by `new` or `grow`.
///
/// `key_of(n)` returns the key of node `n`; it must answer for every node
/// inserted and not yet removed.
pub trait Index {
    /// Knowledge of the keys to come: a hash seed, or their number.
    type Universe: Copy;

    /// An empty index for up to `nodes` nodes.
    fn new(universe: Self::Universe, nodes: u32) -> Self;

    /// Makes room for up to `nodes` nodes. Allocates.
    fn grow(&mut self, nodes: u32, key_of: impl Fn(u32) -> LineKey);

    /// The node of `key`.
    fn get(&self, key: LineKey, key_of: impl Fn(u32) -> LineKey) -> Option<u32>;

    /// Returns the node of `key` if one look finds the node; `None` means nothing. Smaller than
    /// `get` where inlined.
    fn get_near(&self, key: LineKey, key_of: impl Fn(u32) -> LineKey) -> Option<u32>;

    /// Maps `key`, which is absent, to `node`.
    fn insert(&mut self, key: LineKey, node: u32);

    /// Removes `key`, which maps to `node`.
    fn remove(&mut self, key: LineKey, node: u32);
}

const WAYS: usize = 12;
/// Entries per bucket at full capacity: 80% of the ways.
const LOAD_TENTHS: u64 = 96;

#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u8; WAYS],
    passed: u32,
    nodes: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// Maps any keys; 6.7 bytes for each node of its capacity.
#[derive(Clone, Debug)]
pub struct HashIndex {
    seed: u64,
    buckets: Vec<Bucket>,
}

impl HashIndex {
    fn buckets_for(nodes: u32) -> usize {
        (u64::from(nodes) * 10).div_ceil(LOAD_TENTHS) as usize + 1
    }

    /// The first bucket of `key` and its tag.
    #[inline]
    fn place(&self, key: LineKey) -> (usize, u8) {
        let hash = fold(key.0 ^ self.seed);
        let bucket = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, hash as u8 | 1)
    }

    #[inline]
    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[inline]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Both halves of a product, of which either alone mixes badly: half the
/// instructions of [`mix`], and the table needs no more.
#[inline]
fn fold(x: u64) -> u64 {
    // The golden ratio's digits, as in Fibonacci hashing (Knuth, volume 3, 6.4).
    let product = u128::from(x) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

impl Bucket {
    /// The ways of tag `tag`, a bit for each.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn ways(&self, tag: u8) -> u32 {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        let [low @ .., a, b, c, d] = self.tags;
        // The bytes after the tags, so that one instruction loads all sixteen bytes.
        let high = u64::from(u32::from_le_bytes([a, b, c, d])) | u64::from(self.passed) << 32;
        let low = i64::from_le_bytes(low);
        // SAFETY: every processor of this architecture has SSE2.
        let equal = unsafe {
            let tags = _mm_set_epi64x(high as i64, low);
            _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag as i8)))
        };
        equal as u32 & ((1 << WAYS) - 1)
    }

    /// As `ways`, one tag after the other.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn ways_one_by_one(&self, tag: u8) -> u32 {
        let equal = self.tags.iter().map(|t| u32::from(*t == tag));
        equal.rev().fold(0, |ways, equal| ways << 1 | equal)
    }

    /// The ways of tag `tag`, a bit for each.
    #[cfg(not(target_arch = "x86_64"))]
    fn ways(&self, tag: u8) -> u32 {
        self.ways_one_by_one(tag)
    }

    /// The first node of tag `tag` for which `is` holds.
    #[inline]
    fn get(&self, tag: u8, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut ways = self.ways(tag);
        while ways != 0 {
            let node = self.nodes[ways.trailing_zeros() as usize];
            if is(node) {
                return Some(node);
            }
            ways &= ways - 1;
        }
        None
    }

    /// The first way of tag `tag` that holds `node`.
    fn way_of(&self, tag: u8, node: u32) -> Option<usize> {
        let ways = self.ways(tag);
        (0..WAYS).find(|way| ways >> way & 1 == 1 && self.nodes[*way] == node)
    }

    /// The first empty way.
    fn empty_way(&self) -> Option<usize> {
        let ways = self.ways(0);
        (ways != 0).then_some(ways.trailing_zeros() as usize)
    }
}

impl Index for HashIndex {
    /// The hash seed.
    type Universe = u64;

    fn new(seed: u64, nodes: u32) -> HashIndex {
        HashIndex {
            seed: mix(seed),
            buckets: vec![Bucket::default(); HashIndex::buckets_for(nodes)],
        }
    }

    fn grow(&mut self, nodes: u32, key_of: impl Fn(u32) -> LineKey) {
        let buckets = HashIndex::buckets_for(nodes);
        if buckets <= self.buckets.len() {
            return;
        }
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::default(); buckets]);
        for bucket in &old {
            for way in 0..WAYS {
                if bucket.tags[way] != 0 {
                    self.insert(key_of(bucket.nodes[way]), bucket.nodes[way]);
                }
            }
        }
    }

    #[inline]
    fn get(&self, key: LineKey, key_of: impl Fn(u32) -> LineKey) -> Option<u32> {
        let (mut at, tag) = self.place(key);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(node) = bucket.get(tag, |node| key_of(node) == key) {
                return Some(node);
            }
            if bucket.passed == 0 {
                break;
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn get_near(&self, key: LineKey, key_of: impl Fn(u32) -> LineKey) -> Option<u32> {
        let (at, tag) = self.place(key);
        let bucket = &self.buckets[at];
        let way = bucket.ways(tag).trailing_zeros() as usize;
        let node = *bucket.nodes.get(way)?;
        (key_of(node) == key).then_some(node)
    }

    fn insert(&mut self, key: LineKey, node: u32) {
        let (mut at, tag) = self.place(key);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            if let Some(way) = bucket.empty_way() {
                bucket.tags[way] = tag;
                bucket.nodes[way] = node;
                return;
            }
            bucket.passed += 1;
            at = self.next(at);
        }
        panic!("more nodes inserted than the index was built for");
    }

    fn remove(&mut self, key: LineKey, node: u32) {
        let (mut at, tag) = self.place(key);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            if let Some(way) = bucket.way_of(tag, node) {
                bucket.tags[way] = 0;
                return;
            }
            bucket.passed -= 1;
            at = self.next(at);
        }
        panic!("{key:?} removed but not in the index");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Every key hashes to one of few buckets here, so that probes overflow.
    fn crowded(keys: &[u64]) -> HashIndex {
        HashIndex::new(7, keys.len() as u32)
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0u64..80, any::<bool>()), 1..800)) {
            let nodes: Vec<u64> = (0..80).collect();
            let key_of = |n: u32| LineKey(nodes[n as usize]);
            let mut index = crowded(&nodes);
            let mut model = HashMap::new();
            for (k, insert) in ops {
                let key = LineKey(k);
                prop_assert_eq!(index.get(key, key_of), model.get(&k).copied());
                if insert && !model.contains_key(&k) {
                    index.insert(key, k as u32);
                    model.insert(k, k as u32);
                } else if !insert && model.remove(&k).is_some() {
                    index.remove(key, k as u32);
                }
            }
            index.grow(500, key_of);
            for k in 0..80 {
                prop_assert_eq!(index.get(LineKey(k), key_of), model.get(&k).copied());
            }
            for k in model.into_keys() {
                index.remove(LineKey(k), k as u32);
            }
            prop_assert!(index.buckets.iter().all(|b| b.passed == 0 && b.tags == [0; WAYS]));
        }
    }

    #[test]
    fn every_way_is_found_by_its_tag() {
        for tag in 0..=255u8 {
            for way in 0..WAYS {
                let mut bucket = Bucket {
                    tags: [tag ^ 1, tag ^ 128, tag ^ 3]
                        .repeat(4)
                        .try_into()
                        .expect("twelve"),
                    ..Bucket::default()
                };
                assert_eq!(bucket.get(tag, |_| true), None);
                bucket.tags[way] = tag;
                bucket.nodes[way] = 7;
                bucket.passed = u32::from_le_bytes([tag; 4]);
                assert_eq!(bucket.get(tag, |node| node == 7), Some(7));
                assert_eq!(bucket.get(tag, |node| node == 8), None);
                assert_eq!(bucket.way_of(tag, 7), Some(way));
                assert_eq!(bucket.ways(tag), bucket.ways_one_by_one(tag));
            }
        }
    }

    #[test]
    fn holds_its_capacity_at_the_stated_size() {
        let nodes = 100_000u32;
        let mut index = HashIndex::new(1, nodes);
        let key_of = |n: u32| LineKey(u64::from(n) << 20);
        for n in 0..nodes {
            index.insert(key_of(n), n);
        }
        assert!((0..nodes).all(|n| index.get(key_of(n), key_of) == Some(n)));
        assert_eq!(index.get(LineKey(1), key_of), None);
        assert!(index.buckets.len() * 64 <= nodes as usize * 67 / 10);
    }
}
