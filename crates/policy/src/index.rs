//! From a key to the node that describes it.
//!
//! The index stores node numbers only; the keys live in the nodes and are
//! fetched through `key_of`, so that a line's key is in memory once.
//!
//! [`HashIndex`] serves the live engine, [`DenseIndex`] the simulator.

mod dense;
mod hash;

pub use dense::DenseIndex;
pub use hash::HashIndex;
pub(crate) use hash::mix;

use crate::Key;

/// A map from keys to node numbers below a capacity fixed by `new` or `grow`.
///
/// `key_of(n)` returns the key of node `n`; it must answer for every node
/// inserted and not yet removed.
pub trait Index {
    /// What is known of the keys to come: a hash seed, or their number.
    type Universe: Copy;

    /// An empty index for up to `nodes` nodes.
    fn new(universe: Self::Universe, nodes: u32) -> Self;

    /// Makes room for up to `nodes` nodes. Allocates.
    fn grow(&mut self, nodes: u32, key_of: impl Fn(u32) -> Key);

    /// The node of `key`.
    fn get(&self, key: Key, key_of: impl Fn(u32) -> Key) -> Option<u32>;

    /// The node of `key` if one look finds it; `None` means nothing. Smaller than
    /// `get` where it is inlined.
    fn get_near(&self, key: Key, key_of: impl Fn(u32) -> Key) -> Option<u32>;

    /// Maps `key`, which is absent, to `node`.
    fn insert(&mut self, key: Key, node: u32);

    /// Removes `key`, which maps to `node`.
    fn remove(&mut self, key: Key, node: u32);
}
