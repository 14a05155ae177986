//! The policies by name, those of the engine and the baselines. A new one is one line in the
//! table below.

use crate::DenseIndex;
use crate::arc::Arc;
use crate::belady::Belady;
use crate::clock::SecondChance;
use crate::clock2q_plus::Clock2QPlus;
use crate::lirs::Lirs;
use crate::s3fifo::S3Fifo;
use crate::sieve::Sieve;
use crate::tinylfu::WTinyLfu;
use crate::twoq::TwoQ;
use policy::registry::CHANCE_MIN;
use policy::{Auto, Expert, HashIndex, Index, Lru, Policy};

/// Code that runs over any named policy, compiled for each.
pub trait PolicyVisitor {
    /// Result of the visit.
    type Output;
    /// Runs with the policy named.
    fn visit<P: Policy + 'static>(self, policy: P) -> Self::Output;
}

macro_rules! policies {
    ($($(#[$doc:meta])* $list:ident: $($name:literal => $make:expr;)*)*) => {
        $(
            $(#[$doc])*
            pub const $list: &[&str] = &[$($name),*];
        )*

        fn with<I: Index + 'static, V: PolicyVisitor>(
            name: &str,
            universe: I::Universe,
            slots: u32,
            visit: V,
        ) -> Option<V::Output> {
            match name {
                $($($name => Some(visit.visit($make(universe, slots))),)*)*
                _ => None,
            }
        }
    };
}

policies! {
    /// Every online policy; docs/policies.md describes each.
    POLICIES:
    "auto" => |u, s| Auto::<I>::new(u, s, 0.0);
    "auto-endurance" => |u, s| Auto::<I>::new(u, s, CHANCE_MIN);
    "lru" => Lru::<I>::new;
    "clock" => SecondChance::<I>::new;
    "2q" => TwoQ::<I>::new;
    "arc" => Arc::<I>::new;
    "sieve" => Sieve::<I>::new;
    "clock2q-plus" => Clock2QPlus::<I>::new;
    "lirs" => Lirs::<I>::new;
    "w-tinylfu-1" => |u, s| WTinyLfu::<I>::new(u, s, 1);
    "w-tinylfu-20" => |u, s| WTinyLfu::<I>::new(u, s, 20);
    "s3-fifo" => S3Fifo::<I>::new;

    /// Each rule of `auto` alone, to measure the value of its choice; not for use.
    RULES:
    "auto-reuse" => |u, s| Auto::<I>::fixed(u, s, Expert::Reuse);
    "auto-recency" => |u, s| Auto::<I>::fixed(u, s, Expert::Recency);
    "auto-frequency" => |u, s| Auto::<I>::fixed(u, s, Expert::Frequency);
    "auto-tenure" => |u, s| Auto::<I>::fixed(u, s, Expert::Tenure);
}

struct IntoBox;

impl PolicyVisitor for IntoBox {
    type Output = Box<dyn Policy>;
    fn visit<P: Policy + 'static>(self, policy: P) -> Box<dyn Policy> {
        Box::new(policy)
    }
}

/// The policy called `name` over any keys, as the live engine builds its own; `None` if there
/// is none of that name. `seed` keys the hash index and any random choice.
pub fn build(name: &str, slots: u32, seed: u64) -> Option<Box<dyn Policy>> {
    with::<HashIndex, _>(name, seed, slots, IntoBox)
}

/// Runs `visit` with the policy called `name` over the keys `0 .. keys`, for
/// simulation without virtual calls.
pub fn visit_dense<V: PolicyVisitor>(
    name: &str,
    slots: u32,
    keys: u32,
    visit: V,
) -> Option<V::Output> {
    with::<DenseIndex, V>(name, keys, slots, visit)
}

/// Runs `visit` with the policy called `name` over any keys.
pub fn visit_hashed<V: PolicyVisitor>(
    name: &str,
    slots: u32,
    seed: u64,
    visit: V,
) -> Option<V::Output> {
    with::<HashIndex, V>(name, seed, slots, visit)
}

/// Runs `visit` with Belady's optimum over the keys `0 .. keys`; `next_use` as
/// for [`Belady::new`].
pub fn visit_belady<V: PolicyVisitor>(
    slots: u32,
    keys: u32,
    next_use: std::sync::Arc<Vec<u32>>,
    visit: V,
) -> V::Output {
    visit.visit(Belady::<DenseIndex>::new(keys, slots, next_use))
}
