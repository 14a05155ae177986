//! How large the pool should be, from a trace: the miss-ratio curve, the
//! working set over time, what halving or doubling changes, how long the pool
//! lasts and what it costs.
//!
//! The curve is LRU's, by sampling; `auto` is made to do no worse than LRU, so
//! sizes found here are on the safe side. Latency is a two-point model: a hit
//! costs the pool's latency, a miss is uniform between the origin's least and
//! greatest. Device queues are not modelled: at a load that saturates the
//! origin the estimates are too low.

mod mrc;
mod price;

pub use mrc::{MissRatioCurve, Point};
pub use price::{Cost, PriceBook};

use block::Nanos;
use serde::Serialize;
use std::collections::HashSet;
use trace::{Op, Record};

/// Points of the curve for each octave of size.
const POINTS_PER_OCTAVE: u32 = 4;
/// Intervals of the working set over time.
const INTERVALS: usize = 24;
/// How far above the plateau the recommended size may miss.
const PLATEAU_MARGIN: f64 = 0.05;
/// A trace in which more accesses than this are the first to their line says
/// little about reuse.
const COLD_SHARE_MAX: f64 = 0.5;

/// Latencies of the two kinds of storage, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latencies {
    /// A hit.
    pub pool_us: f64,
    /// The quickest miss.
    pub origin_us_min: f64,
    /// The slowest miss.
    pub origin_us_max: f64,
}

impl Default for Latencies {
    /// A data-centre SSD, and a 7200 rpm disk: half a millisecond of transfer
    /// and overhead at the least, a full stroke and turn at the most.
    fn default() -> Latencies {
        Latencies {
            pool_us: 100.0,
            origin_us_min: 500.0,
            origin_us_max: 20_000.0,
        }
    }
}

impl Latencies {
    fn mean_us(&self, miss_ratio: f64) -> f64 {
        let origin = (self.origin_us_min + self.origin_us_max) / 2.0;
        self.pool_us * (1.0 - miss_ratio) + origin * miss_ratio
    }

    fn p99_us(&self, miss_ratio: f64) -> f64 {
        const TAIL: f64 = 0.01;
        if miss_ratio <= TAIL {
            return self.pool_us;
        }
        let rank = 1.0 - TAIL / miss_ratio;
        self.origin_us_min + rank * (self.origin_us_max - self.origin_us_min)
    }
}

/// What one size of pool would do.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The size.
    pub pool_bytes: u64,
    /// Share of line accesses that miss, and the half-width of its error band.
    pub miss_ratio: f64,
    /// See [`Point::error`].
    pub error: f64,
    /// Mean latency of an access.
    pub latency_us_mean: f64,
    /// The 99th percentile.
    pub latency_us_p99: f64,
    /// Bytes a second that the origin has to serve; zero if the trace has no
    /// times.
    pub origin_bytes_per_second: f64,
    /// Bytes a second written to the pool: fills, and writes that hit.
    pub pool_written_bytes_per_second: f64,
    /// Cost of ownership.
    pub cost: Cost,
}

/// One interval of the working set over time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct WorkingSet {
    /// When the interval ends.
    pub end_seconds: f64,
    /// Distinct bytes read.
    pub read_bytes: u64,
    /// Distinct bytes written.
    pub written_bytes: u64,
}

/// The advice.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// Length of a line.
    pub line_bytes: u64,
    /// Line accesses in the trace.
    pub accesses: u64,
    /// Bytes of the distinct lines, estimated.
    pub footprint_bytes: u64,
    /// Share of accesses that an unbounded pool would hit.
    pub cacheable_share: f64,
    /// The curve.
    pub curve: Vec<Point>,
    /// The working set over time; empty if the trace has no times.
    pub working_set: Vec<WorkingSet>,
    /// The pool as it is, halved and doubled, in this order.
    pub current: Option<[Outcome; 3]>,
    /// The smallest pool within 5% of the plateau of the curve.
    pub recommended: Outcome,
    /// Why not to rely on this, if there is a reason.
    pub warnings: Vec<String>,
}

/// Gathers what the advice is computed from, in bounded memory but for the
/// working set of one interval.
pub struct Adviser {
    line_bytes: u64,
    curve: MissRatioCurve,
    writes: u64,
    first: Nanos,
    last: Nanos,
    span: Nanos,
    intervals: Vec<WorkingSet>,
    read: HashSet<u64>,
    written: HashSet<u64>,
}

impl Adviser {
    /// For a trace that spans `first ..= last` in time, in lines of
    /// `line_bytes`.
    pub fn new(line_bytes: u64, first: Nanos, last: Nanos) -> Adviser {
        Adviser {
            line_bytes,
            curve: MissRatioCurve::default(),
            writes: 0,
            first,
            last,
            span: Nanos(last.since(first).0.div_ceil(INTERVALS as u64).max(1)),
            intervals: Vec::new(),
            read: HashSet::new(),
            written: HashSet::new(),
        }
    }

    /// Takes one request into account.
    pub fn add(&mut self, record: &Record) {
        while record.time.since(self.first).0 >= self.span.0 * (self.intervals.len() as u64 + 1)
            && self.intervals.len() + 1 < INTERVALS
        {
            self.close_interval();
        }
        for line in record.blocks(self.line_bytes) {
            let key = u64::from(record.volume) << 40 ^ line;
            self.curve.access(key);
            match record.op {
                Op::Read => self.read.insert(key),
                Op::Write => {
                    self.writes += 1;
                    self.written.insert(key)
                }
            };
        }
    }

    fn close_interval(&mut self) {
        let n = self.intervals.len() as u64 + 1;
        self.intervals.push(WorkingSet {
            end_seconds: Nanos(self.span.0 * n).as_secs_f64(),
            read_bytes: self.read.len() as u64 * self.line_bytes,
            written_bytes: self.written.len() as u64 * self.line_bytes,
        });
        self.read.clear();
        self.written.clear();
    }

    /// The advice, for a pool that has `pool_bytes` now, if there is one.
    pub fn finish(
        mut self,
        pool_bytes: Option<u64>,
        latencies: &Latencies,
        book: &PriceBook,
    ) -> Advice {
        let timed = self.last > self.first;
        if timed {
            self.close_interval();
        }
        let footprint = self.curve.unique_lines();
        let curve = self.points(footprint);
        let plateau = self.curve.plateau();
        let enough = |point: &&Point| point.miss_ratio <= plateau + PLATEAU_MARGIN;
        let lines = curve
            .iter()
            .find(enough)
            .map_or(footprint as u64, |p| p.lines);
        let outcome = |bytes: u64| self.outcome(bytes, latencies, book);
        Advice {
            line_bytes: self.line_bytes,
            accesses: self.curve.accesses(),
            footprint_bytes: (footprint * self.line_bytes as f64) as u64,
            cacheable_share: 1.0 - plateau,
            working_set: if timed {
                self.intervals.clone()
            } else {
                Vec::new()
            },
            current: pool_bytes.map(|b| [outcome(b), outcome(b / 2), outcome(b * 2)]),
            recommended: outcome(lines * self.line_bytes),
            warnings: self.warnings(plateau, timed),
            curve,
        }
    }

    fn points(&self, footprint: f64) -> Vec<Point> {
        let mut sizes = Vec::new();
        let mut size = 1.0f64;
        while size < footprint {
            sizes.push(size as u64);
            size *= 2f64.powf(1.0 / f64::from(POINTS_PER_OCTAVE));
        }
        sizes.push(footprint.ceil() as u64);
        sizes.dedup();
        sizes
            .into_iter()
            .map(|lines| self.curve.at(lines))
            .collect()
    }

    fn outcome(&self, pool_bytes: u64, latencies: &Latencies, book: &PriceBook) -> Outcome {
        let point = self.curve.at(pool_bytes / self.line_bytes);
        let seconds = self.last.since(self.first).as_secs_f64();
        let rate = |accesses: f64| match seconds {
            0.0 => 0.0,
            _ => accesses * self.line_bytes as f64 / seconds,
        };
        let misses = point.miss_ratio * self.curve.accesses() as f64;
        // Write hits are taken to be as frequent among writes as hits among all.
        let write_hits = self.writes as f64 * (1.0 - point.miss_ratio);
        let written = rate(misses + write_hits);
        Outcome {
            pool_bytes,
            miss_ratio: point.miss_ratio,
            error: point.error,
            latency_us_mean: latencies.mean_us(point.miss_ratio),
            latency_us_p99: latencies.p99_us(point.miss_ratio),
            origin_bytes_per_second: rate(misses),
            pool_written_bytes_per_second: written,
            cost: book.cost(pool_bytes as f64, written),
        }
    }

    fn warnings(&self, plateau: f64, timed: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if plateau > COLD_SHARE_MAX {
            warnings.push(format!(
                "{:.0}% of accesses are the first to their line: the trace is too short to \
                 know how much is reused; record for longer",
                100.0 * plateau
            ));
        }
        if !timed {
            warnings.push(
                "the trace has no times: rates, endurance and cost of wear are unknown".into(),
            );
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(requests: u64, lines: u64) -> Adviser {
        let second = |i: u64| Nanos(i * 1_000_000_000);
        let mut adviser = Adviser::new(4096, second(0), second(requests - 1));
        for i in 0..requests {
            adviser.add(&Record {
                time: second(i),
                op: if i % 4 == 0 { Op::Write } else { Op::Read },
                offset_bytes: i % lines * 4096,
                len_bytes: 4096,
                volume: 0,
            });
        }
        adviser
    }

    #[test]
    fn a_loop_needs_exactly_its_length() {
        let advice =
            trace(48_000, 1024).finish(Some(2 << 20), &Latencies::default(), &PriceBook::default());
        assert_eq!(advice.recommended.pool_bytes, 1024 * 4096);
        assert!(advice.recommended.miss_ratio < 0.03 && advice.warnings.is_empty());
        let [now, half, double] = advice.current.expect("a size was given");
        assert_eq!((now.miss_ratio, half.miss_ratio), (1.0, 1.0));
        assert!(double.miss_ratio < 0.03 && double.latency_us_mean < now.latency_us_mean / 10.0);
        assert_eq!(advice.working_set.len(), INTERVALS);
        let whole = advice.working_set[3];
        assert_eq!(
            (whole.read_bytes, whole.written_bytes),
            (768 * 4096, 256 * 4096)
        );
        assert!((now.origin_bytes_per_second - 4096.0).abs() < 1.0);
    }

    #[test]
    fn a_trace_without_reuse_or_time_is_called_too_short() {
        let mut adviser = Adviser::new(4096, Nanos::ZERO, Nanos::ZERO);
        for i in 0..100u64 {
            adviser.add(&Record {
                offset_bytes: i << 12,
                len_bytes: 4096,
                ..Record::default()
            });
        }
        let advice = adviser.finish(None, &Latencies::default(), &PriceBook::default());
        assert_eq!(advice.warnings.len(), 2);
        assert!(advice.warnings[0].contains("100%"));
        assert!(advice.working_set.is_empty() && advice.cacheable_share == 0.0);
    }

    #[test]
    fn the_tail_is_a_miss_once_a_hundredth_misses() {
        let latencies = Latencies::default();
        assert_eq!(latencies.p99_us(0.01), 100.0);
        assert!(latencies.p99_us(0.02) > 10_000.0);
        assert_eq!(latencies.mean_us(0.0), 100.0);
    }
}
