//! Which missed lines are worth a fill, apart from which line makes room.
//!
//! Admission hears of misses only; a hit costs it nothing. Rules combine with
//! [`Both`]; frequency as an admission rule is part of W-TinyLFU (`tinylfu`),
//! expected reuse of `auto`.

use crate::sketch::Sketch;
use crate::{Key, Op, Reason, Request};
use block::Nanos;

/// Decides on each miss whether the line may enter.
pub trait Admission {
    /// `Ok` lets `key` in; `Err` says why not. Called once for each miss.
    fn admit(&mut self, key: Key, request: &Request) -> Result<(), Reason>;

    /// Passes the time, as [`crate::Policy::tick`].
    fn tick(&mut self, _now: Nanos) {}

    /// The pool now has `lines` live slots.
    fn resized(&mut self, _lines: u32) {}
}

/// Every miss enters.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstTouch;

impl Admission for FirstTouch {
    #[inline]
    fn admit(&mut self, _: Key, _: &Request) -> Result<(), Reason> {
        Ok(())
    }
}

/// The n-th miss enters, as remembered by a sketch that forgets over ten pools'
/// worth of misses. With n = 2 this is the second-touch rule.
#[derive(Clone, Debug)]
pub struct NthTouch {
    touches: u64,
    seen: Sketch,
}

impl NthTouch {
    /// Admits a line at its `touches`-th miss, from 1 to 15.
    pub fn new(touches: u8) -> NthTouch {
        assert!((1..=15).contains(&touches), "touches must be from 1 to 15");
        NthTouch {
            touches: u64::from(touches),
            seen: Sketch::new(0),
        }
    }
}

impl Admission for NthTouch {
    fn admit(&mut self, key: Key, _: &Request) -> Result<(), Reason> {
        self.seen.add(key);
        if self.seen.estimate(key) >= self.touches {
            Ok(())
        } else {
            Err(Reason::TouchedTooFewTimes)
        }
    }

    fn resized(&mut self, lines: u32) {
        self.seen.fit(lines);
    }
}

/// Requests of a sequential stream stay out, as do single requests so long that
/// slow storage serves them at its full rate.
#[derive(Clone, Copy, Debug)]
pub struct NonSequential {
    /// Requests of at least so many bytes stay out whatever their neighbours.
    pub len_bytes_max: u32,
}

impl Admission for NonSequential {
    fn admit(&mut self, _: Key, request: &Request) -> Result<(), Reason> {
        if request.sequential || request.len_bytes >= self.len_bytes_max {
            Err(Reason::Sequential)
        } else {
            Ok(())
        }
    }
}

/// At most so many fills in the long run, for the endurance of the pool.
///
/// A token bucket in lines, refilled by [`Admission::tick`] and holding a
/// minute's allowance. Misses of writes pass: their data has to go somewhere.
#[derive(Clone, Copy, Debug)]
pub struct WriteBudget {
    lines_per_second: f64,
    tokens: f64,
    last: Nanos,
}

/// How long an unused allowance is kept.
const BURST_SECONDS: f64 = 60.0;

impl WriteBudget {
    /// Allows `lines_per_second` fills for read misses.
    pub fn new(lines_per_second: f64) -> WriteBudget {
        WriteBudget {
            lines_per_second,
            tokens: lines_per_second * BURST_SECONDS,
            last: Nanos::ZERO,
        }
    }
}

impl Admission for WriteBudget {
    fn admit(&mut self, _: Key, request: &Request) -> Result<(), Reason> {
        if request.op == Op::Write {
            return Ok(());
        }
        if self.tokens < 1.0 {
            return Err(Reason::WriteBudget);
        }
        self.tokens -= 1.0;
        Ok(())
    }

    fn tick(&mut self, now: Nanos) {
        let earned = now.since(self.last).as_secs_f64() * self.lines_per_second;
        self.tokens = (self.tokens + earned).min(self.lines_per_second * BURST_SECONDS);
        self.last = self.last.max(now);
    }
}

/// Enters what both rules let in; the first is asked first.
#[derive(Clone, Copy, Debug)]
pub struct Both<A, B>(pub A, pub B);

impl<A: Admission, B: Admission> Admission for Both<A, B> {
    fn admit(&mut self, key: Key, request: &Request) -> Result<(), Reason> {
        self.0.admit(key, request)?;
        self.1.admit(key, request)
    }

    fn tick(&mut self, now: Nanos) {
        self.0.tick(now);
        self.1.tick(now);
    }

    fn resized(&mut self, lines: u32) {
        self.0.resized(lines);
        self.1.resized(lines);
    }
}

impl Admission for Box<dyn Admission> {
    fn admit(&mut self, key: Key, request: &Request) -> Result<(), Reason> {
        (**self).admit(key, request)
    }

    fn tick(&mut self, now: Nanos) {
        (**self).tick(now);
    }

    fn resized(&mut self, lines: u32) {
        (**self).resized(lines);
    }
}

/// Recognises sequential streams, several at once, from the requests of one
/// volume: the source of [`Request::sequential`].
#[derive(Clone, Debug)]
pub struct Streams {
    /// Where each stream would continue, and how many bytes it has run; the
    /// latest first.
    tails: [(u64, u64); STREAMS],
    run_bytes_min: u64,
}

/// Streams distinguished at once.
const STREAMS: usize = 16;

impl Streams {
    /// A run counts as sequential from its `run_bytes_min`-th byte on.
    pub fn new(run_bytes_min: u64) -> Streams {
        Streams {
            tails: [(u64::MAX, 0); STREAMS],
            run_bytes_min,
        }
    }

    /// Hears of one request; whether it continues a long enough run.
    pub fn sequential(&mut self, offset_bytes: u64, len_bytes: u32) -> bool {
        let end = offset_bytes.saturating_add(u64::from(len_bytes));
        let run = match self.tails.iter().position(|tail| tail.0 == offset_bytes) {
            Some(at) => {
                self.tails[..=at].rotate_right(1);
                self.tails[0].1 + u64::from(len_bytes)
            }
            None => {
                self.tails.rotate_right(1);
                u64::from(len_bytes)
            }
        };
        self.tails[0] = (end, run);
        run > u64::from(len_bytes) && run >= self.run_bytes_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parts;

    const READ: Request = Request {
        op: Op::Read,
        len_bytes: 4096,
        sequential: false,
        parts: Parts::WHOLE,
    };

    #[test]
    fn the_nth_touch_enters() {
        let mut admission = NthTouch::new(3);
        admission.resized(1000);
        let answers: Vec<bool> = (0..4)
            .map(|_| admission.admit(Key(7), &READ).is_ok())
            .collect();
        assert_eq!(answers, [false, false, true, true]);
    }

    #[test]
    fn a_write_budget_holds_in_the_long_run() {
        let mut budget = WriteBudget::new(10.0);
        let mut admitted = 0;
        for second in 0..1000u64 {
            budget.tick(Nanos(second * 1_000_000_000));
            for key in 0..100 {
                admitted += u32::from(budget.admit(Key(key), &READ).is_ok());
            }
        }
        assert!((10_000..=10_700).contains(&admitted), "{admitted}");
        let write = Request {
            op: Op::Write,
            ..READ
        };
        assert_eq!(budget.admit(Key(1), &write), Ok(()));
    }

    #[test]
    fn streams_are_distinguished_from_random_requests() {
        let mut streams = Streams::new(64 << 10);
        let mut found = 0;
        for i in 0..100u64 {
            found += u32::from(streams.sequential(i << 14, 1 << 14));
            found += u32::from(streams.sequential((1 << 40) + (i << 14), 1 << 14));
            assert!(!streams.sequential((i * 7919) << 25, 4096));
        }
        assert_eq!(found, 2 * 97);
    }

    #[test]
    fn rules_combine_and_name_the_first_reason() {
        let mut both = Both(
            NonSequential {
                len_bytes_max: 1 << 20,
            },
            NthTouch::new(2),
        );
        let scan = Request {
            sequential: true,
            ..READ
        };
        assert_eq!(both.admit(Key(1), &scan), Err(Reason::Sequential));
        assert_eq!(both.admit(Key(1), &READ), Err(Reason::TouchedTooFewTimes));
        assert_eq!(both.admit(Key(1), &READ), Ok(()));
    }
}
