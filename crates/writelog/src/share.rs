//! The cleaner's share of the origin's time while clients read from the origin: a fixed part, and
//! up to the whole as the log fills. Without such reads the cleaner is not limited.
//!
//! A read counts as one from the origin by its time. The cache in front of the origin answers
//! sooner, and so does an origin that needs no protection.

use super::pace::HALF;
use block::Nanos;

/// Longest read that counts as a hit in the cache: a longer one was at the origin.
pub(super) const HIT_MAX: Nanos = Nanos::from_millis(1);
/// Time after a read within which another is expected.
pub(super) const EXPECTED: Nanos = Nanos::from_millis(100);
/// Share up to a half of the limits.
const LEAST: f64 = 0.15;
/// Longest rest.
const REST_MAX: Nanos = Nanos::from_secs(1);

/// Time of rest after the cleaner has used the origin for `took`.
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
