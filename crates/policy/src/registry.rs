//! The policies by name. A new one is one line in the table below.

use crate::belady::Belady;
use crate::{
    Arc, Auto, Clock, Clock2QPlus, DenseIndex, Expert, HashIndex, Index, Lirs, Lru, Policy, S3Fifo,
    Sieve, TwoQ, WTinyLfu,
};

/// The chance of a reuse from which `auto-endurance` spends a write on a line.
const CHANCE_MIN: f32 = 0.12;

/// Code that runs over whichever policy was named, compiled for each.
pub trait Visit {
    /// What it returns.
    type Output;
    /// Runs with the policy named.
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Output;
}

macro_rules! policies {
    ($($(#[$doc:meta])* $list:ident: $($([$only:meta])? $name:literal, $about:literal => $make:expr;)*)*) => {
        $(
            $(#[$doc])*
            pub const $list: &[(&str, &str)] = &[$($(#[$only])? ($name, $about)),*];
        )*

        fn with<I: Index + 'static, V: Visit>(
            name: &str,
            universe: I::Universe,
            slots: u32,
            visit: V,
        ) -> Option<V::Output> {
            match name {
                $($($(#[$only])? $name => Some(visit.visit($make(universe, slots))),)*)*
                _ => None,
            }
        }
    };
}

policies! {
    /// Every online policy: its name and what it is.
    POLICIES:
    "auto", "learns reuse and picks the rule that misses least" => |u, s| Auto::<I>::new(u, s, 0.0);
    "auto-endurance", "auto that fills only what is likely to be reused" => |u, s| Auto::<I>::new(u, s, CHANCE_MIN);
    "lru", "least recently used" => Lru::<I>::new;
    "clock", "FIFO with a second chance" => Clock::<I>::new;
    "2q", "FIFO for newcomers, LRU for lines that return" => TwoQ::<I>::new;
    "arc", "recency and frequency balanced by ghost hits" => Arc::<I>::new;
    "sieve", "FIFO whose survivors keep their place" => Sieve::<I>::new;
    "clock2q-plus", "small, main and ghost queues with a correlation window" => Clock2QPlus::<I>::new;
    "lirs", "ranks by the recency of re-use" => Lirs::<I>::new;
    "w-tinylfu-1", "frequency decides who leaves a window of 1%" => |u, s| WTinyLfu::<I>::new(u, s, 1);
    "w-tinylfu-20", "frequency decides who leaves a window of 20%" => |u, s| WTinyLfu::<I>::new(u, s, 20);
    "s3-fifo", "small, main and ghost FIFO queues" => S3Fifo::<I>::new;
    [cfg(test)] "fifo", "the oldest goes, used or not" => crate::fifo::Fifo::<I>::new;

    /// One rule of `auto` each, which measure what its choice is worth; not for use.
    RULES:
    "auto-reuse", "the rule of learned reuse of auto, always" => |u, s| Auto::<I>::fixed(u, s, Expert::Reuse);
    "auto-recency", "the rule of recency of auto, always" => |u, s| Auto::<I>::fixed(u, s, Expert::Recency);
    "auto-frequency", "the rule of frequency of auto, always" => |u, s| Auto::<I>::fixed(u, s, Expert::Frequency);
    "auto-tenure", "the rule of tenure of auto, always" => |u, s| Auto::<I>::fixed(u, s, Expert::Tenure);
}

/// Bytes of memory that the policy called `name` takes for each slot at most, with what it
/// remembers of lines that are not resident.
pub fn memory_per_slot(name: &str) -> u64 {
    match name {
        // The line, the index and eight ghosts.
        "auto" | "auto-endurance" => 16 + 8 + 32,
        // A node and the index.
        "lru" | "clock" | "sieve" => 24 + 8,
        // The same, and up to two ghosts.
        _ => 3 * (24 + 8),
    }
}

struct IntoBox;

impl Visit for IntoBox {
    type Output = Box<dyn Policy>;
    fn visit<P: Policy + 'static>(self, policy: P) -> Box<dyn Policy> {
        Box::new(policy)
    }
}

/// The policy called `name` over any keys, for the live engine; `None` if there
/// is none of that name. `seed` keys the hash index and any random choice.
pub fn build(name: &str, slots: u32, seed: u64) -> Option<Box<dyn Policy>> {
    with::<HashIndex, _>(name, seed, slots, IntoBox)
}

/// Runs `visit` with the policy called `name` over the keys `0 .. keys`, for
/// simulation without virtual calls.
pub fn visit_dense<V: Visit>(name: &str, slots: u32, keys: u32, visit: V) -> Option<V::Output> {
    with::<DenseIndex, V>(name, keys, slots, visit)
}

/// Runs `visit` with the policy called `name` over any keys.
pub fn visit_hashed<V: Visit>(name: &str, slots: u32, seed: u64, visit: V) -> Option<V::Output> {
    with::<HashIndex, V>(name, seed, slots, visit)
}

/// Runs `visit` with Belady's optimum over the keys `0 .. keys`; `next_use` as
/// for [`Belady::new`].
pub fn visit_belady<V: Visit>(
    slots: u32,
    keys: u32,
    next_use: std::sync::Arc<Vec<u32>>,
    visit: V,
) -> V::Output {
    visit.visit(Belady::<DenseIndex>::new(keys, slots, next_use))
}
