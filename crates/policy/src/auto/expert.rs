//! The rules that `auto` chooses between. All judge a line by the same few
//! bytes, so that a change of rule moves nothing.

use super::class::{COUNT_MAX, Class, bucket};
use super::hazard::Hazards;
use super::scale::Scale;
use crate::Request;

/// How many rules there are.
pub(crate) const EXPERTS: usize = 4;

/// A rule for which line is worth least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Expert {
    /// Learned reuse: see [`super::hazard`].
    Reuse,
    /// Recency: LRU.
    Recency,
    /// Frequency with a window of recency, the least recent of equals first.
    Frequency,
    /// The same, but the most recent of equals first, so that what came first stays: as
    /// TinyLFU, which takes a newcomer only if it was seen more often than another. It
    /// keeps a part of a loop that is longer than the pool.
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

/// What is known of one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Ticks at its last access.
    pub(crate) last: u32,
    pub(crate) class: Class,
    /// Accesses remembered, faded.
    pub(crate) count: u8,
}

impl Line {
    /// The line is used `now`.
    #[inline]
    pub(crate) fn touch(&mut self, now: u32, request: &Request, scale: &Scale) {
        let age = now.wrapping_sub(self.last);
        let faded = scale.faded(self.count, age);
        self.count = faded + u8::from(faded < COUNT_MAX);
        self.class = Class::of(self.count, Some(age), request, scale);
        self.last = now;
    }
}

/// What `line` is worth under `expert`: higher is kept.
#[inline(always)]
pub(crate) fn score(expert: Expert, hazards: &Hazards, scale: &Scale, line: Line, now: u32) -> f32 {
    let age = now.wrapping_sub(line.last);
    match expert {
        Expert::Reuse => hazards.worth(line.class, bucket(age)),
        Expert::Recency => -(age as f32),
        Expert::Frequency | Expert::Tenure if age <= scale.window() => f32::MAX,
        Expert::Frequency => f32::from(scale.faded(line.count, age)) - scale.tie(age),
        Expert::Tenure => f32::from(scale.faded(line.count, age)) + scale.tie(age),
    }
}
