//! The rules that `auto` chooses between. All judge a line by the same few
//! bytes, so that a change of rule moves nothing.

use super::class::{COUNT_MAX, Class, bucket};
use super::hazard::Hazards;
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

/// Ages that depend on the size of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Accesses in a tick, as a power of two.
    pub(crate) shift: u32,
    /// The pool's lines in ticks: how long it takes to touch as many.
    lines: u32,
    /// 2^40 divided by them, rounded up: division by them as a product.
    reciprocal: u64,
    /// Ticks above which [`Scale::sixteenths`] tells nothing apart.
    ticks_max: u32,
    /// Ticks without an access in which a count is halved.
    halving: u32,
}

/// Ticks for as many accesses as the pool has lines, at the most.
const TICKS_PER_POOL: u32 = 4096;
/// Pools' worth of accesses after which a count is halved.
const FADE_POOLS: u32 = 8;

impl Scale {
    pub(crate) fn of(lines: u32) -> Scale {
        let shift = (lines / TICKS_PER_POOL)
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        let lines = (lines >> shift).max(1);
        Scale {
            shift,
            lines,
            reciprocal: (1u64 << 40).div_ceil(u64::from(lines)),
            ticks_max: lines * (Scale::SIXTEENTHS_MAX / 16),
            halving: lines * FADE_POOLS,
        }
    }

    /// The most that [`Scale::sixteenths`] tells.
    pub(crate) const SIXTEENTHS_MAX: u32 = 32;

    /// Sixteenths of the pool's lines in so many ticks, rounded down.
    #[inline]
    pub(crate) fn sixteenths(&self, ticks: u32) -> u32 {
        // Exact: sixteen times the factor has 18 bits, the reciprocal's error is below 2^13.
        ((u64::from(ticks.min(self.ticks_max)) * self.reciprocal) >> 36) as u32
    }

    /// A count after `age` ticks without an access.
    #[inline]
    pub(crate) fn faded(&self, count: u8, age: u32) -> u8 {
        match age < self.halving {
            true => count,
            false => count >> (age / self.halving).min(7),
        }
    }

    /// What an age counts among lines seen equally often: less than one use.
    fn tie(&self, age: u32) -> f32 {
        (age as f32 / (self.lines * 1024) as f32).min(0.9)
    }

    /// Age below which the rules of frequency keep any line.
    fn window(&self) -> u32 {
        self.lines / 100
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
