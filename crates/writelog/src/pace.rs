//! Pacing: writes slow down before the limits stop them.
//!
//! With x the fullest of
//!
//! ```text
//! dirty / dirty_max    room taken of the log    age / max_lag    dirty / (origin's rate * max_lag)
//! ```
//!
//! each block of a write waits (x - 1/2) / (1 - x) / rate once x is over a half, one block after
//! the other. The rate is that of clients' writes; the origin may get fewer. By this law OpenZFS
//! delays transactions (`dmu_tx_delay` in `dmu_tx.c`). Writes that are faster than the origin
//! settle at x = 3/4, at the rate of the origin.
//!
//! Waiting writes go on with the first of them, if their turns come soon after. An ordered log then
//! has more writes in one interval, as no client flushes between them.
//!
//! While a log is to become empty, writes have a quarter of the rate, however full the log is.
//!
//! Invariant: a write waits `WAIT_MAX` at most, if no limit stops it.

use block::Nanos;

/// Fullness from which writes wait, and the cleaner hurries.
pub(super) const HALF: f64 = 0.5;
/// Longest wait of one block, in seconds (OpenZFS: `zfs_delay_max_ns`).
const DELAY_MAX: f64 = 0.1;
/// Longest wait of a write for its turn.
const WAIT_MAX: Nanos = Nanos::from_secs(1);
/// Time after a turn in which further turns come with it. A disk has its full speed with the writes
/// of that time, and few clients notice the change.
const TOGETHER: Nanos = Nanos::from_millis(100);
/// Part of the rate that writes have while the log is to become empty.
const RETIRING: f64 = 0.25;
/// Blocks a second before any measurement: random writes of one slow disk.
const UNMEASURED: f64 = 100.0;
/// Weight of past measurements, in seconds.
const MEMORY: f64 = 5.0;

/// The measured rate of the cleaner, and the turns of writes.
#[derive(Default)]
pub(super) struct CleanerPace {
    /// Blocks of clients' writes written back lately, while more was dirty.
    blocks: f64,
    /// Blocks that the origin got for them.
    at_origin: f64,
    /// Seconds that this took.
    seconds: f64,
    /// Turn of the last waiting write.
    turn: Nanos,
    /// Number of times that writes went on together, and the last turn included the last time.
    went: u64,
    went_to: Nanos,
}

/// The turn of a waiting write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteTurn {
    pub(super) at: Nanos,
    /// Value of `went` when the write arrived.
    after: u64,
}

impl CleanerPace {
    /// Notes that `blocks` blocks of clients' writes were written back in that time, as `at_origin`
    /// blocks at the origin, and that more is dirty.
    pub(super) fn carried(&mut self, blocks: u64, at_origin: u64, took: Nanos) {
        let took = seconds(took);
        let keep = MEMORY / (MEMORY + took);
        self.blocks = self.blocks * keep + blocks as f64;
        self.at_origin = self.at_origin * keep + at_origin as f64;
        self.seconds = self.seconds * keep + took;
    }

    /// Returns blocks of clients' writes a second; `None` before any measurement.
    fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.blocks / self.seconds)
    }

    /// Returns blocks a second that the origin takes.
    pub(super) fn origin_rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.at_origin / self.seconds)
    }

    /// Estimates the time until `blocks` dirty blocks are written back, beside writes that have a
    /// part of the rate.
    pub(super) fn empty_in(&self, blocks: u64) -> Option<Nanos> {
        let left = self.origin_rate()? * (1.0 - RETIRING);
        Some(Nanos((blocks as f64 / left * 1e9) as u64))
    }

    /// Gives a write of `blocks` blocks its turn; `None` if the write may go on now. `retiring`:
    /// the log is to become empty.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        fullness: f64,
        retiring: bool,
        blocks: u64,
    ) -> Option<WriteTurn> {
        let rate = self.rate();
        let full = match fullness {
            ..=HALF => 0.0,
            1.0.. => DELAY_MAX,
            _ => (fullness - HALF) / (1.0 - fullness) / rate.unwrap_or(UNMEASURED),
        };
        let part = match rate.filter(|_| retiring) {
            Some(rate) => 1.0 / (RETIRING * rate),
            None if retiring => DELAY_MAX,
            None => 0.0,
        };
        let wait = full.min(DELAY_MAX).max(part) * blocks as f64;
        if wait == 0.0 {
            return None;
        }
        let turn = self.turn.max(now) + Nanos((wait * 1e9) as u64);
        self.turn = turn.min(now + WAIT_MAX);
        Some(WriteTurn {
            at: self.turn,
            after: self.went,
        })
    }

    /// Notes that the turn of a write has come, and that others go on with it.
    pub(super) fn goes_on(&mut self, turn: WriteTurn) {
        self.went += 1;
        self.went_to = turn.at + TOGETHER;
    }

    /// True if a waiting write goes on with another whose turn has come.
    pub(super) fn joins(&self, turn: WriteTurn) -> bool {
        self.went > turn.after && turn.at <= self.went_to
    }
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(
        pace: &mut CleanerPace,
        now: Nanos,
        fullness: f64,
        retiring: bool,
        blocks: u64,
    ) -> Nanos {
        let turn = pace.turn(now, fullness, retiring, blocks);
        turn.expect("it waits").at
    }

    #[test]
    fn nothing_waits_below_a_half() {
        let mut pace = CleanerPace::default();
        assert_eq!(pace.turn(Nanos(7), 0.5, false, 1), None);
        pace.carried(100, 100, Nanos::from_secs(1));
        assert_eq!(pace.turn(Nanos(7), 0.5, false, 1), None);
    }

    #[test]
    fn at_three_quarters_writes_go_at_the_rate_one_after_the_other() {
        let mut pace = CleanerPace::default();
        assert_eq!(
            turn(&mut pace, Nanos::ZERO, 0.75, false, 1),
            Nanos::from_millis(10)
        );
        let mut pace = CleanerPace::default();
        pace.carried(100, 100, Nanos::from_secs(1));
        let at = |millis| Nanos::from_millis(millis);
        assert_eq!(turn(&mut pace, at(0), 0.75, false, 1), at(10));
        assert_eq!(turn(&mut pace, at(0), 0.75, false, 2), at(30));
        assert_eq!(turn(&mut pace, at(50), 0.75, false, 1), at(60));
        assert_eq!(
            turn(&mut pace, at(60), 1.0, false, 1),
            at(160),
            "the longest of a block"
        );
        assert_eq!(
            turn(&mut pace, at(200), 1.0, false, 128),
            at(1200),
            "the longest of a write"
        );
    }

    #[test]
    fn writes_wait_for_what_replaces_them_no_longer_than_for_what_is_carried_out() {
        let mut pace = CleanerPace::default();
        pace.carried(1000, 10, Nanos::from_secs(1));
        assert_eq!(pace.origin_rate(), Some(10.0));
        assert_eq!(
            turn(&mut pace, Nanos::ZERO, 0.75, false, 1),
            Nanos::from_millis(1)
        );
    }

    #[test]
    fn writes_have_a_quarter_of_the_rate_while_the_log_is_to_get_empty() {
        let mut pace = CleanerPace::default();
        pace.carried(100, 100, Nanos::from_secs(1));
        let at = |millis| Nanos::from_millis(millis);
        assert_eq!(turn(&mut pace, at(0), 0.1, true, 1), at(40));
        assert_eq!(
            turn(&mut pace, at(100), 0.9, true, 1),
            at(140),
            "as by the law"
        );
    }

    #[test]
    fn the_rate_follows_an_origin_that_slows_down() {
        let mut pace = CleanerPace::default();
        for _ in 0..20 {
            pace.carried(100, 100, Nanos::from_secs(1));
        }
        assert!((pace.rate().unwrap() - 100.0).abs() < 1.0);
        for _ in 0..20 {
            pace.carried(25, 25, Nanos::from_secs(1));
        }
        assert!((pace.rate().unwrap() - 25.0).abs() < 3.0);
    }

    #[test]
    fn writes_that_wait_go_on_with_the_first_of_them_if_theirs_is_soon() {
        let mut pace = CleanerPace::default();
        let came =
            |pace: &mut CleanerPace| pace.turn(Nanos::ZERO, 0.75, false, 1).expect("it waits");
        let waiting: Vec<WriteTurn> = (0..20).map(|_| came(&mut pace)).collect();
        assert!(!waiting.iter().any(|turn| pace.joins(*turn)));
        pace.goes_on(waiting[0]);
        let joined = waiting.iter().filter(|turn| pace.joins(**turn));
        assert_eq!(joined.count(), 11);
        let later = came(&mut pace);
        assert_eq!(later.at, Nanos::from_millis(210), "the rate stays");
        assert!(!pace.joins(later));
        pace.goes_on(waiting[11]);
        assert!(pace.joins(later), "it came before that");
    }
}
