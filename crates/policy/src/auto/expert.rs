//! The rules that `auto` chooses between. All judge a line by the same few
//! bytes, so that a change of rule moves nothing.

use super::class::bucket;
use super::hazard::Hazards;
use super::line::PackedLine;
use super::scale::AgeScale;

/// The number of rules.
pub(crate) const EXPERTS: usize = 4;

/// A rule for the line that is worth least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Expert {
    /// Learned reuse: see [`super::hazard`].
    Reuse,
    /// Recency: LRU.
    Recency,
    /// Frequency with a window of recency, the least recent of equals first.
    Frequency,
    /// The same, but the most recent of equals first, so that early lines stay: as TinyLFU, which
    /// takes a newcomer only if it was seen more often than another. This rule keeps a part of a
    /// loop that is longer than the pool.
    Tenure,
}

impl Expert {
    pub(crate) const ALL: [Expert; EXPERTS] = [
        Expert::Reuse,
        Expert::Recency,
        Expert::Frequency,
        Expert::Tenure,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Expert::Reuse => "reuse",
            Expert::Recency => "recency",
            Expert::Frequency => "frequency",
            Expert::Tenure => "tenure",
        }
    }
}

/// Least part found by the next read for a window. A line below that has none: it would take the
/// room of a fuller one at once, and lose it before it is filled.
const FOUND_MIN: f32 = 0.9;

/// Returns the worth of `line` under `expert`: the higher is kept. Except for recency, the chance
/// that a use finds its parts counts as a part of the use.
#[inline(always)]
pub(crate) fn score(
    expert: Expert,
    hazards: &Hazards,
    scale: &AgeScale,
    line: PackedLine,
    now: u32,
) -> f32 {
    let age = now.wrapping_sub(line.last);
    let uses = || f32::from(scale.faded(line.count(), age));
    match expert {
        Expert::Recency => -(age as f32),
        Expert::Reuse => hazards.worth(line.class(), bucket(age)) * hazards.found(line),
        Expert::Frequency | Expert::Tenure => {
            let found = hazards.found(line);
            match expert {
                _ if age <= scale.window() && found >= FOUND_MIN => f32::MAX,
                Expert::Frequency => uses() * found - scale.tie(age),
                _ => uses() * found + scale.tie(age),
            }
        }
    }
}
