//! Limits the log lines of a kind, where peers determine their number: the first of each period are
//! logged, and the others are counted.
//!
//! Not here: the words of a line, and its logger.

use crate::Nanos;

/// Lines of one kind in a period; more are counted.
const LINES_MAX: u32 = 5;

#[derive(Clone, Copy, Default)]
struct LineTally {
    /// Beginning of its period; none runs if `lines` is 0.
    since: Nanos,
    lines: u32,
    more: u64,
}

/// Limits lines of `N` kinds.
pub struct LogLimiter<const N: usize>([LineTally; N]);

impl<const N: usize> Default for LogLimiter<N> {
    fn default() -> LogLimiter<N> {
        LogLimiter([LineTally::default(); N])
    }
}

impl<const N: usize> LogLimiter<N> {
    /// The time of which lines are counted together.
    pub const PERIOD: Nanos = Nanos::from_secs(10);

    /// True if a line of `kind` is logged at `now`. If not, the line is counted.
    pub fn admits(&mut self, now: Nanos, kind: usize) -> bool {
        let tally = &mut self.0[kind];
        if tally.lines == 0 {
            tally.since = now;
        }
        let admits = tally.lines < LINES_MAX;
        match admits {
            true => tally.lines += 1,
            false => tally.more += 1,
        }
        admits
    }

    /// Ends the periods that are over at `now`, and hands the lines that were counted to `missing`,
    /// by kind. Returns whether lines are counted that will be handed over later.
    pub fn sum_up(&mut self, now: Nanos, mut missing: impl FnMut(usize, u64)) -> bool {
        for (kind, tally) in self.0.iter_mut().enumerate() {
            if tally.lines > 0 && now.since(tally.since) >= Self::PERIOD {
                let more = std::mem::take(tally).more;
                if more > 0 {
                    missing(kind, more);
                }
            }
        }
        self.0.iter().any(|tally| tally.more > 0)
    }
}
