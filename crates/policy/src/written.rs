//! The figures of a stream of writes and flushes that determine the gain of write-back: bytes
//! written, flushes, and the dirty data for an origin of each speed.
//!
//! For each of [`Backlog`]'s rates the backlog of an origin with that rate is kept, by Lindley's
//! recursion (Proc. Camb. Phil. Soc. 48, 1952): with `w` bytes written in a span of `t` seconds,
//! `backlog = max(0, backlog + w - rate * t)`. So no property of the origin has to be known
//! meanwhile.
//!
//! Invariant: a write or a flush allocates nothing and reads no clock; `tick` passes the time.
//!
//! Not here: the time to the overwrite of blocks, their places, and opinions.

use block::Nanos;
use serde::{Deserialize, Serialize};

/// The unit of a log.
const BLOCK_BYTES: u64 = 4096;
/// Least rate of a backlog, in bytes a second, and the number of rates in an octave.
const RATE_MIN: f64 = 4096.0;
const PER_OCTAVE: u32 = 4;
const RATES: usize = 96;
/// Seconds of dirty data from which writes are paced: half of the default `max_lag`.
const PACED_S: f64 = 15.0;
/// Seconds of dirty data at which writes are stopped: the whole default `max_lag`.
const STOPPED_S: f64 = 30.0;
/// Shortest time over which writes are summed.
const TICK: Nanos = Nanos::from_millis(900);
/// Seconds of the longer of the busiest spans.
const SPAN_SECONDS: usize = 30;
/// Sizes of intervals: exact up to this number of blocks, then half as many an octave.
const FINE: u64 = 16;
const SIZES: usize = (FINE + FINE / 2 * 60) as usize;

/// Writes in some time.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WriteLoad {
    /// Writes a second.
    pub writes_per_second: f64,
    /// Their writes, in bytes a second.
    pub bytes_per_second: f64,
}

/// The dirty data of an origin of one speed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Backlog {
    /// Bytes a second that the origin takes.
    pub rate: f64,
    /// Share of the bytes written while the dirty data exceeds the origin's rate times half of
    /// `max_lag`.
    pub paced_share: f64,
    /// Share of the time with such an excess.
    pub behind_share: f64,
    /// Most dirty data, in bytes, without writes beyond the origin's capacity within `max_lag`.
    pub dirty_bytes_max: f64,
}

/// The figures at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WrittenFigures {
    /// Seconds from the first to the last tick; zero if there was none.
    pub seconds: f64,
    /// Seconds of these with writes.
    pub active_seconds: f64,
    /// Writes; zeroes and discards are not among them.
    pub writes: u64,
    /// The bytes written.
    pub bytes: u64,
    /// Writes that were forced (FUA), among them.
    pub forced_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The busiest second.
    pub busiest_second: WriteLoad,
    /// The busiest 30 seconds.
    pub busiest_30_seconds: WriteLoad,
    /// Intervals between flushes and forced writes, with writes.
    pub intervals: u64,
    /// 4 KiB blocks of all intervals together.
    pub interval_blocks: u64,
    /// Median of the intervals' blocks: exact up to 16, and to 12 % beyond.
    pub interval_blocks_median: u64,
    /// Backlogs by rising rate; equal neighbours are left out.
    pub backlogs: Vec<Backlog>,
}

#[derive(Clone, Copy, Debug, Default)]
struct WriteSum {
    writes: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct WriteQueue {
    dirty: f64,
    paced: f64,
    behind_s: f64,
    dirty_max: f64,
}

/// Gathers the figures.
#[derive(Debug)]
pub struct WriteGatherer {
    /// First tick, last tick as long as [`TICK`], and last tick.
    span: Option<(Nanos, Nanos, Nanos)>,
    active: Nanos,
    total: WriteSum,
    /// Sum since the last tick.
    current: WriteSum,
    forced: u64,
    flushes: u64,
    /// Sums of earlier ticks, and the length of each.
    recent: [(WriteSum, Nanos); SPAN_SECONDS],
    ticks: usize,
    busiest_second: WriteLoad,
    busiest_span: WriteLoad,
    /// Blocks of the interval that is open.
    open: u64,
    sizes: [u64; SIZES],
    intervals: u64,
    interval_blocks: u64,
    queues: [WriteQueue; RATES],
}

impl Default for WriteGatherer {
    fn default() -> WriteGatherer {
        WriteGatherer {
            span: None,
            active: Nanos::ZERO,
            total: WriteSum::default(),
            current: WriteSum::default(),
            forced: 0,
            flushes: 0,
            recent: [(WriteSum::default(), Nanos::ZERO); SPAN_SECONDS],
            ticks: 0,
            busiest_second: WriteLoad::default(),
            busiest_span: WriteLoad::default(),
            open: 0,
            sizes: [0; SIZES],
            intervals: 0,
            interval_blocks: 0,
            queues: [WriteQueue::default(); RATES],
        }
    }
}

/// The rate of a number, in bytes a second.
fn rate(number: usize) -> f64 {
    RATE_MIN * (number as f64 / f64::from(PER_OCTAVE)).exp2()
}

/// Returns the place of intervals of `blocks` blocks in the counts.
fn place(blocks: u64) -> usize {
    if blocks < FINE {
        return blocks as usize;
    }
    let shift = blocks.ilog2() - FINE.ilog2() + 1;
    (u64::from(shift) * FINE / 2 + (blocks >> shift)) as usize
}

/// Returns the least number of blocks counted at a place.
fn least(place: usize) -> u64 {
    let (place, half) = (place as u64, FINE / 2);
    if place < FINE {
        return place;
    }
    let shift = (place - half) / half;
    (place - shift * half) << shift
}

fn load(sum: WriteSum, span: Nanos) -> WriteLoad {
    let seconds = span.as_secs_f64().max(1.0);
    WriteLoad {
        writes_per_second: sum.writes as f64 / seconds,
        bytes_per_second: sum.bytes as f64 / seconds,
    }
}

impl WriteLoad {
    fn raise(&mut self, other: WriteLoad) {
        self.writes_per_second = self.writes_per_second.max(other.writes_per_second);
        self.bytes_per_second = self.bytes_per_second.max(other.bytes_per_second);
    }
}

impl WriteGatherer {
    /// Counts a write of `bytes` bytes.
    #[inline]
    pub fn write(&mut self, bytes: u64, forced: bool) {
        self.current.writes += 1;
        self.current.bytes += bytes;
        self.open += bytes.div_ceil(BLOCK_BYTES);
        if forced {
            self.forced += 1;
            self.close();
        }
    }

    /// Counts a flush.
    #[inline]
    pub fn flush(&mut self) {
        self.flushes += 1;
        self.close();
    }

    fn close(&mut self) {
        if self.open > 0 {
            self.sizes[place(self.open).min(SIZES - 1)] += 1;
            self.intervals += 1;
            self.interval_blocks += self.open;
            self.open = 0;
        }
    }

    /// Passes the time, such as once a second; calls in between sum nothing. The first call begins.
    pub fn tick(&mut self, now: Nanos) {
        let (first, last, _) = self.span.unwrap_or((now, now, now));
        let took = now.since(last);
        let is_whole = took >= TICK;
        self.span = Some((first, if is_whole { now } else { last }, now));
        if !is_whole {
            return;
        }
        let sum = std::mem::take(&mut self.current);
        self.total.writes += sum.writes;
        self.total.bytes += sum.bytes;
        if sum.writes > 0 {
            self.active += took;
        }
        self.busiest_second.raise(load(sum, took));
        self.recent[self.ticks % SPAN_SECONDS] = (sum, took);
        self.ticks += 1;
        self.busiest_span.raise(self.span());
        let (bytes, seconds) = (sum.bytes as f64, took.as_secs_f64());
        for (number, queue) in self.queues.iter_mut().enumerate() {
            queue.pass(rate(number), bytes, seconds);
        }
    }

    /// Returns the load of the last ticks, up to 30 s.
    fn span(&self) -> WriteLoad {
        let (mut sum, mut span) = (WriteSum::default(), Nanos::ZERO);
        for back in 1..=self.ticks.min(SPAN_SECONDS) {
            let (tick, took) = self.recent[(self.ticks - back) % SPAN_SECONDS];
            if back > 1 && (span + took).as_secs_f64() > STOPPED_S + 0.5 {
                break;
            }
            sum.writes += tick.writes;
            sum.bytes += tick.bytes;
            span += took;
        }
        load(sum, span)
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        size_of::<WriteGatherer>()
    }

    /// The figures by now; the busiest spans and the backlogs up to the last whole second.
    pub fn written(&self) -> WrittenFigures {
        let seconds = self
            .span
            .map_or(0.0, |(first, _, now)| (now - first).as_secs_f64());
        let median = self.intervals.div_ceil(2);
        let mut below = 0;
        let median = self.sizes.iter().position(|count| {
            below += count;
            below >= median
        });
        WrittenFigures {
            seconds,
            active_seconds: self.active.as_secs_f64(),
            writes: self.total.writes + self.current.writes,
            bytes: self.total.bytes + self.current.bytes,
            forced_writes: self.forced,
            flushes: self.flushes,
            busiest_second: self.busiest_second,
            busiest_30_seconds: self.busiest_span,
            intervals: self.intervals,
            interval_blocks: self.interval_blocks,
            interval_blocks_median: median.map_or(0, least),
            backlogs: self.backlogs(seconds),
        }
    }

    fn backlogs(&self, seconds: f64) -> Vec<Backlog> {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let each = self
            .queues
            .iter()
            .enumerate()
            .map(|(number, queue)| Backlog {
                rate: rate(number),
                paced_share: share(queue.paced, self.total.bytes as f64),
                behind_share: share(queue.behind_s, seconds),
                dirty_bytes_max: queue.dirty_max,
            });
        let mut all: Vec<Backlog> = each.collect();
        all.dedup_by(|next, kept| {
            Backlog {
                rate: kept.rate,
                ..*next
            } == *kept
        });
        all
    }
}

impl WriteQueue {
    /// Passes a span of `seconds` seconds, in which `bytes` bytes were written, all of them before
    /// its end.
    fn pass(&mut self, rate: f64, bytes: f64, seconds: f64) {
        let came = self.dirty + bytes;
        if came >= rate * PACED_S {
            let over = (came - rate * PACED_S).min(bytes);
            self.paced += over;
        }
        self.dirty_max = self.dirty_max.max(came.min(rate * STOPPED_S));
        self.dirty = (came - rate * seconds).max(0.0);
        if self.dirty >= rate * PACED_S {
            self.behind_s += seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    #[test]
    fn intervals_are_counted_where_they_belong() {
        for blocks in (0..5000).chain([1 << 20, (1 << 40) + 7]) {
            let least = least(place(blocks));
            assert!(
                least <= blocks && blocks - least <= blocks / 8,
                "{blocks}: {least}"
            );
            assert!(blocks >= FINE || least == blocks);
        }
        assert!(place(u64::MAX) < SIZES);
    }

    #[test]
    fn writes_flushes_and_intervals_by_hand() {
        let mut writes = WriteGatherer::default();
        writes.tick(at(10));
        for blocks in [1, 1, 5] {
            writes.write(4096 * blocks, false);
            writes.flush();
            writes.flush();
        }
        writes.write(100, true);
        writes.write(4096, false);
        writes.tick(at(11));
        writes.tick(at(50));
        let written = writes.written();
        assert_eq!((written.writes, written.bytes), (5, 8 * 4096 + 100));
        assert_eq!((written.flushes, written.forced_writes), (6, 1));
        assert_eq!((written.intervals, written.interval_blocks), (4, 8));
        assert_eq!(written.interval_blocks_median, 1);
        assert_eq!((written.seconds, written.active_seconds), (40.0, 1.0));
        assert_eq!(written.busiest_second.writes_per_second, 5.0);
    }

    #[test]
    fn the_busiest_30_seconds_are_as_long_as_that() {
        let mut writes = WriteGatherer::default();
        for second in 0..100 {
            writes.tick(at(second));
            let bytes = if (40..50).contains(&second) {
                3 << 20
            } else {
                0
            };
            if bytes > 0 {
                writes.write(bytes, false);
            }
        }
        let written = writes.written();
        assert_eq!(written.busiest_second.bytes_per_second, f64::from(3 << 20));
        assert_eq!(
            written.busiest_30_seconds.bytes_per_second,
            f64::from(1 << 20)
        );
    }

    #[test]
    fn an_origin_that_takes_it_is_not_behind_and_one_that_does_not_is() {
        let mut writes = WriteGatherer::default();
        writes.tick(at(0));
        for second in 1..=1000 {
            writes.write(1 << 20, false);
            writes.tick(at(second));
        }
        let written = writes.written();
        let of = |bytes: f64| written.backlogs.iter().rfind(|b| b.rate <= bytes).unwrap();
        let enough = of(f64::from(1 << 20));
        assert_eq!((enough.paced_share, enough.behind_share), (0.0, 0.0));
        assert_eq!(enough.dirty_bytes_max, f64::from(1 << 20));
        // The origin takes a half: behind once 15 s of dirty data exist, after 15 s.
        let half = of(f64::from(1 << 19));
        assert!((half.behind_share - 0.985).abs() < 0.002, "{half:?}");
        assert!((half.paced_share - 0.985).abs() < 0.002, "{half:?}");
        assert_eq!(half.dirty_bytes_max, 30.0 * f64::from(1 << 19));
    }

    #[test]
    fn memory_is_little_whatever_is_written() {
        assert!(WriteGatherer::default().state_bytes() < 16 << 10);
        assert!(WriteGatherer::default().written().backlogs.len() <= 1 + RATES);
    }
}
