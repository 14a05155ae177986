//! An array indexed by key, for simulations over dense block numbers.

use policy::{Index, LineKey};

const ABSENT: u32 = u32::MAX;

/// Maps the keys `0 .. n` in four bytes each.
#[derive(Clone, Debug)]
pub struct DenseIndex {
    nodes: Vec<u32>,
}

impl Index for DenseIndex {
    /// The number of keys.
    type Universe = u32;

    fn new(keys: u32, _nodes: u32) -> DenseIndex {
        DenseIndex {
            nodes: vec![ABSENT; keys as usize],
        }
    }

    fn grow(&mut self, _nodes: u32, _key_of: impl Fn(u32) -> LineKey) {}

    #[inline]
    fn get(&self, key: LineKey, _key_of: impl Fn(u32) -> LineKey) -> Option<u32> {
        let node = self.nodes[key.0 as usize];
        (node != ABSENT).then_some(node)
    }

    #[inline]
    fn get_near(&self, key: LineKey, key_of: impl Fn(u32) -> LineKey) -> Option<u32> {
        self.get(key, key_of)
    }

    #[inline]
    fn insert(&mut self, key: LineKey, node: u32) {
        self.nodes[key.0 as usize] = node;
    }

    #[inline]
    fn remove(&mut self, key: LineKey, _node: u32) {
        self.nodes[key.0 as usize] = ABSENT;
    }
}
