//! The policies by name.

use crate::{Auto, HashIndex, Lru, Policy};

/// The chance of a reuse from which `auto-endurance` spends a write on a line.
pub const CHANCE_MIN: f32 = 0.12;

/// Every policy that a pool may have.
pub const POLICIES: [&str; 3] = ["auto", "auto-endurance", "lru"];

/// Most bytes of memory for each slot of the policy called `name`, with those for lines that are
/// not resident.
pub fn memory_per_slot(name: &str) -> u64 {
    match name {
        // A node and the index.
        "lru" => 24 + 8,
        // The line, the index and eight ghosts.
        _ => 16 + 8 + 32,
    }
}

/// Builds the policy called `name` over any keys; `None` for an unknown name. `seed` keys the hash
/// index and any random choice.
pub fn build(name: &str, slots: u32, seed: u64) -> Option<Box<dyn Policy>> {
    Some(match name {
        "auto" => Box::new(Auto::<HashIndex>::new(seed, slots, 0.0)),
        "auto-endurance" => Box::new(Auto::<HashIndex>::new(seed, slots, CHANCE_MIN)),
        "lru" => Box::new(Lru::<HashIndex>::new(seed, slots)),
        _ => return None,
    })
}
