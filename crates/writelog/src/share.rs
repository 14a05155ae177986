//! The cleaner's share of the origin's time while clients read from it: a fixed part, and up
//! to all of it as the log fills. With no reads it takes what it can get.
//!
//! What is a read from the origin is known by its time: the cache in front of it answers
//! sooner, and an origin that does not need to be spared does too.

use super::pace::HALF;
use block::Nanos;

/// A read that takes longer was at the origin.
pub(super) const HIT_MAX: Nanos = Nanos::from_millis(1);
/// How long after one another is expected.
pub(super) const EXPECTED: Nanos = Nanos::from_millis(100);
/// The share up to a half of the limits.
const LEAST: f64 = 0.15;
/// The longest rest.
const REST_MAX: Nanos = Nanos::from_secs(1);

/// How long the cleaner rests after it has had the origin for `took`.
pub(super) fn rest(took: Nanos, fullness: f64) -> Nanos {
    let pressed = ((fullness - HALF) / (1.0 - HALF)).clamp(0.0, 1.0);
    let share = LEAST + (1.0 - LEAST) * pressed;
    REST_MAX.min(Nanos((took.0 as f64 * (1.0 / share - 1.0)) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_from_the_half_to_the_whole() {
        let took = Nanos::from_millis(30);
        for (fullness, rest_ms) in [(0.0, 170), (0.5, 170), (0.75, 22), (1.0, 0), (1.5, 0)] {
            assert_eq!(rest(took, fullness).0 / 1_000_000, rest_ms, "{fullness}");
        }
        assert_eq!(rest(Nanos::from_secs(9), 0.0), REST_MAX);
    }
}
