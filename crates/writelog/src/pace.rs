//! Pacing: writes slow down before the limits stop them.
//!
//! With x the fullest of
//!
//! ```text
//! owed / dirty_max      room taken of the log      age / max_lag      owed / (origin's rate * max_lag)
//! ```
//!
//! each block of a write waits (x - 1/2) / (1 - x) / rate once x is over a half, one block
//! after the other, where the rate is that of writes, of which the origin may get fewer: the law by which OpenZFS delays transactions (`dmu_tx_delay` in
//! `dmu_tx.c`). Writes that come faster than the origin takes them settle at x = 3/4, where
//! they go at its rate.
//!
//! Writes that wait go on with the first of them, if their turns come soon after: a log that
//! carries one interval after the other has more of them in one, as nobody flushes between them.
//!
//! While a log is to get empty, writes have a quarter of the rate, however full it is.
//!
//! Invariant: a write waits `WAIT_MAX` at most, if no limit stops it.

use block::Nanos;

/// From here on writes wait, and the cleaner hurries.
pub(super) const HALF: f64 = 0.5;
/// The longest that one block waits (OpenZFS: `zfs_delay_max_ns`).
const DELAY_MAX: f64 = 0.1;
/// The longest that a write waits for its turn.
const WAIT_MAX: Nanos = Nanos::from_secs(1);
/// How soon after another a write has its turn that goes on with it. A disk is as fast as it gets
/// with what comes in that time, and few notice it.
const TOGETHER: Nanos = Nanos::from_millis(100);
/// The part of the rate that writes have while the log is to get empty.
const RETIRING: f64 = 0.25;
/// Blocks a second before anything was measured: random writes of one slow disk.
const UNMEASURED: f64 = 100.0;
/// How long what was measured counts, in seconds.
const MEMORY: f64 = 5.0;

/// What the cleaner achieves, and whose turn it is to write.
#[derive(Default)]
pub(super) struct Pace {
    /// Of clients' writes, carried out lately, while more was owed.
    blocks: f64,
    /// What the origin got for them.
    at_origin: f64,
    /// In so many seconds.
    seconds: f64,
    /// When the last write that waits is to go on.
    turn: Nanos,
    /// How often writes went on together, and up to whose turn the last time.
    went: u64,
    went_to: Nanos,
}

/// A write that waits for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    pub(super) at: Nanos,
    /// How often writes had gone on before it came.
    after: u64,
}

impl Pace {
    /// So many blocks of clients' writes were carried out in that time, of which the origin got
    /// `at_origin`, and there are more.
    pub(super) fn carried(&mut self, blocks: u64, at_origin: u64, took: Nanos) {
        let took = seconds(took);
        let keep = MEMORY / (MEMORY + took);
        self.blocks = self.blocks * keep + blocks as f64;
        self.at_origin = self.at_origin * keep + at_origin as f64;
        self.seconds = self.seconds * keep + took;
    }

    /// Blocks of clients' writes a second; none before anything was measured.
    fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.blocks / self.seconds)
    }

    /// Blocks a second that the origin takes.
    pub(super) fn origin_rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.at_origin / self.seconds)
    }

    /// How long it takes until none of so many blocks is owed, beside writes that have a part of
    /// the rate.
    pub(super) fn empty_in(&self, blocks: u64) -> Option<Nanos> {
        let left = self.origin_rate()? * (1.0 - RETIRING);
        Some(Nanos((blocks as f64 / left * 1e9) as u64))
    }

    /// When a write of so many blocks may go on, to a log that may be on its way to be empty;
    /// none if now.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        fullness: f64,
        retiring: bool,
        blocks: u64,
    ) -> Option<Turn> {
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
        Some(Turn {
            at: self.turn,
            after: self.went,
        })
    }

    /// A write goes on whose turn has come, and others with it.
    pub(super) fn goes_on(&mut self, turn: Turn) {
        self.went += 1;
        self.went_to = turn.at + TOGETHER;
    }

    /// Whether a write that waits goes on with one whose turn has come.
    pub(super) fn joins(&self, turn: Turn) -> bool {
        self.went > turn.after && turn.at <= self.went_to
    }
}

pub(super) fn seconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(pace: &mut Pace, now: Nanos, fullness: f64, retiring: bool, blocks: u64) -> Nanos {
        let turn = pace.turn(now, fullness, retiring, blocks);
        turn.expect("it waits").at
    }

    #[test]
    fn nothing_waits_below_a_half() {
        let mut pace = Pace::default();
        assert_eq!(pace.turn(Nanos(7), 0.5, false, 1), None);
        pace.carried(100, 100, Nanos::from_secs(1));
        assert_eq!(pace.turn(Nanos(7), 0.5, false, 1), None);
    }

    #[test]
    fn at_three_quarters_writes_go_at_the_rate_one_after_the_other() {
        let mut pace = Pace::default();
        assert_eq!(
            turn(&mut pace, Nanos::ZERO, 0.75, false, 1),
            Nanos::from_millis(10)
        );
        let mut pace = Pace::default();
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
        let mut pace = Pace::default();
        pace.carried(1000, 10, Nanos::from_secs(1));
        assert_eq!(pace.origin_rate(), Some(10.0));
        assert_eq!(
            turn(&mut pace, Nanos::ZERO, 0.75, false, 1),
            Nanos::from_millis(1)
        );
    }

    #[test]
    fn writes_have_a_quarter_of_the_rate_while_the_log_is_to_get_empty() {
        let mut pace = Pace::default();
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
        let mut pace = Pace::default();
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
        let mut pace = Pace::default();
        let came = |pace: &mut Pace| pace.turn(Nanos::ZERO, 0.75, false, 1).expect("it waits");
        let waiting: Vec<Turn> = (0..20).map(|_| came(&mut pace)).collect();
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
