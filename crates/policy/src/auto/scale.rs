//! Ages as parts of the pool, so that learnt state is the same at every size.

/// Ages that depend on the size of the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgeScale {
    /// Accesses in a tick, as a power of two.
    pub(crate) shift: u32,
    /// The pool's lines in ticks: the time to touch as many.
    lines: u32,
    /// 2^40 divided by them, rounded up: division by them as a product.
    reciprocal: u64,
    /// Ticks above which [`AgeScale::sixteenths`] distinguishes nothing.
    ticks_max: u32,
    /// Ticks without an access in which a count is halved.
    halving: u32,
}

/// Ticks for as many accesses as the pool has lines, at the most.
const TICKS_PER_POOL: u32 = 4096;

/// Pools' worth of accesses after which a count is halved.
const FADE_POOLS: u32 = 8;

impl AgeScale {
    pub(crate) fn of(lines: u32) -> AgeScale {
        let shift = (lines / TICKS_PER_POOL)
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        let lines = (lines >> shift).max(1);
        AgeScale {
            shift,
            lines,
            reciprocal: (1u64 << 40).div_ceil(u64::from(lines)),
            ticks_max: lines * (AgeScale::SIXTEENTHS_MAX / 16),
            halving: lines * FADE_POOLS,
        }
    }

    /// The most that [`AgeScale::sixteenths`] returns.
    pub(crate) const SIXTEENTHS_MAX: u32 = 32;

    /// Sixteenths of the pool's lines in `ticks` ticks, rounded down.
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

    /// The weight of an age among lines seen equally often: less than one use.
    pub(crate) fn tie(&self, age: u32) -> f32 {
        (age as f32 / (self.lines * 1024) as f32).min(0.9)
    }

    /// Age below which the rules of frequency keep any line.
    pub(crate) fn window(&self) -> u32 {
        self.lines / 100
    }
}
