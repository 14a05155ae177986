//! Rates of writes and flushes: on average, in the busiest seconds, and between flushes.
//!
//! Seconds count from the first request. The busiest 30 s are found in steps of a second.

use block::Nanos;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::VecDeque;

const SECOND: Nanos = Nanos::from_secs(1);
/// Seconds of the longer span: the `max_lag` of a volume unless configured otherwise.
const SPAN_SECONDS: usize = 30;

/// Writes in some time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Rate {
    /// Writes.
    pub writes_per_second: f64,
    /// Bytes of these writes.
    pub bytes_per_second: f64,
}

#[derive(Clone, Copy, Default)]
struct RateSum {
    writes: u64,
    bytes: u64,
}

impl RateSum {
    fn raise(&mut self, other: RateSum) {
        self.writes = self.writes.max(other.writes);
        self.bytes = self.bytes.max(other.bytes);
    }

    fn over(self, seconds: f64) -> Rate {
        Rate {
            writes_per_second: self.writes as f64 / seconds,
            bytes_per_second: self.bytes as f64 / seconds,
        }
    }
}

/// Sums writes over time.
#[derive(Default)]
pub(super) struct WriteRates {
    total: RateSum,
    /// The second that is being summed, and its number.
    current: RateSum,
    second: u64,
    /// The seconds before the current one, and their sum.
    recent: VecDeque<RateSum>,
    span: RateSum,
    most_in_second: RateSum,
    most_in_span: RateSum,
}

impl WriteRates {
    /// A write, `since` the first request.
    pub(super) fn write(&mut self, since: Nanos, bytes: u64) {
        let second = since.0 / SECOND.0;
        if second > self.second {
            self.end_second();
            for _ in (self.second + 1..second).take(SPAN_SECONDS) {
                self.current = RateSum::default();
                self.end_second();
            }
            self.second = second;
            self.current = RateSum::default();
        }
        for sum in [&mut self.total, &mut self.current] {
            sum.writes += 1;
            sum.bytes += bytes;
        }
    }

    fn end_second(&mut self) {
        self.most_in_second.raise(self.current);
        if self.recent.len() == SPAN_SECONDS {
            let oldest = self.recent.pop_front().expect("it is full");
            self.span.writes -= oldest.writes;
            self.span.bytes -= oldest.bytes;
        }
        self.recent.push_back(self.current);
        self.span.writes += self.current.writes;
        self.span.bytes += self.current.bytes;
        self.most_in_span.raise(self.span);
    }

    /// The mean over `seconds`, then the busiest second and the busiest 30, or all if there are
    /// fewer.
    pub(super) fn finish(mut self, seconds: f64) -> [Rate; 3] {
        self.end_second();
        [
            self.total.over(seconds),
            self.most_in_second.over(1.0),
            self.most_in_span
                .over(seconds.clamp(1.0, SPAN_SECONDS as f64)),
        ]
    }
}

/// Blocks written between one flush or forced write and the next.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Intervals {
    /// Intervals with at least one write.
    pub count: u64,
    /// 4 KiB blocks of an interval, half a percent exact.
    pub blocks_median: u64,
    /// Mean blocks of an interval.
    pub blocks_mean: f64,
}

/// Counts the blocks of intervals.
pub(super) struct IntervalCounts {
    open: u64,
    blocks: Histogram<u64>,
}

impl Default for IntervalCounts {
    fn default() -> IntervalCounts {
        IntervalCounts {
            open: 0,
            blocks: Histogram::new(3).expect("three digits are few enough"),
        }
    }
}

impl IntervalCounts {
    pub(super) fn write(&mut self, blocks: u64) {
        self.open += blocks;
    }

    pub(super) fn close(&mut self) {
        if self.open > 0 {
            self.blocks += self.open;
            self.open = 0;
        }
    }

    /// The closed intervals; `None` without any.
    pub(super) fn finish(&self) -> Option<Intervals> {
        (!self.blocks.is_empty()).then(|| Intervals {
            count: self.blocks.len(),
            blocks_median: self.blocks.value_at_quantile(0.5),
            blocks_mean: self.blocks.mean(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(writes_per_second: f64, bytes_per_second: f64) -> Rate {
        Rate {
            writes_per_second,
            bytes_per_second,
        }
    }

    #[test]
    fn means_and_the_busiest_spans_by_hand() {
        let mut rates = WriteRates::default();
        for (ms, bytes) in [(0, 100), (900, 100), (999, 100), (1000, 1000), (29_999, 60)] {
            rates.write(Nanos::from_millis(ms), bytes);
        }
        // 30 s after the first second: that has left the span.
        rates.write(Nanos::from_millis(30_500), 500);
        let [mean, second, span] = rates.finish(62.0);
        assert_eq!(mean, rate(6.0 / 62.0, 30.0));
        assert_eq!(second, rate(3.0, 1000.0));
        assert_eq!(span, rate(5.0 / 30.0, 1560.0 / 30.0));
    }

    #[test]
    fn a_pause_longer_than_the_span_empties_it() {
        let mut rates = WriteRates::default();
        rates.write(Nanos::ZERO, 3000);
        rates.write(Nanos::from_secs(1_000_000_000), 600);
        let [_, second, span] = rates.finish(1e9);
        assert_eq!(
            (second.bytes_per_second, span.bytes_per_second),
            (3000.0, 100.0)
        );
    }

    #[test]
    fn intervals_by_hand() {
        let mut counts = IntervalCounts::default();
        counts.close();
        assert_eq!(counts.finish(), None);
        for blocks in [1, 1, 10] {
            counts.write(blocks);
            counts.close();
            counts.close();
        }
        counts.write(1000);
        let intervals = counts.finish().unwrap();
        assert_eq!((intervals.count, intervals.blocks_median), (3, 1));
        assert_eq!(intervals.blocks_mean, 4.0);
    }
}
