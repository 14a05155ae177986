//! The figures of a stream of accesses that determine the size of a pool: the miss-ratio curve, and
//! the working set over time.
//!
//! A [`Profiler`] is fed from a trace or from a running volume and holds less than
//! [`STATE_BYTES_MAX`] for any stream; a [`Profile`] is its knowledge at one moment, as plain data.
//!
//! Not here: prices, latencies and opinions, which are the reader's.

mod access;
mod curve;
mod distinct;
mod order;
mod working;

pub use access::{Blocks, blocks, part_bytes};
pub use curve::{CurvePoint, MissRatioCurve};
pub use working::WorkingSet;

use crate::PolicyOp;
use access::Hashes;
use block::Nanos;
use serde::{Deserialize, Serialize};
use working::Working;

/// More than a profiler ever holds.
pub const STATE_BYTES_MAX: usize = 1 << 20;
/// Points of a profile's curve for each octave of size.
const POINTS_PER_OCTAVE: u32 = 8;

/// Gathers a profile.
#[derive(Debug)]
pub struct Profiler {
    line_bytes: u64,
    curve: MissRatioCurve,
    working: Working,
    reads: u64,
    writes: u64,
}

impl Profiler {
    /// For lines of `line_bytes`, of which each of four samples is to hold at
    /// most one in `one_in`: 1 for the least error, more for the least time.
    pub fn new(line_bytes: u64, one_in: u32) -> Profiler {
        Profiler {
            line_bytes,
            curve: MissRatioCurve::new(one_in),
            working: Working::default(),
            reads: 0,
            writes: 0,
        }
    }

    /// Length of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Counts one access to `blocks` of a line.
    #[inline]
    pub fn access(&mut self, line: u64, blocks: Blocks, op: PolicyOp) {
        let hashes = Hashes::of(line);
        self.curve.sample(line, blocks, op, hashes);
        self.working.access(hashes.0[0], op);
        match op {
            PolicyOp::Read => self.reads += 1,
            PolicyOp::Write => self.writes += 1,
        }
    }

    /// Counts `more` reads of the line of the last access, right after that.
    pub fn read_again(&mut self, blocks: Blocks, more: u64) {
        self.curve.read_again(blocks, more);
        self.reads += more;
    }

    /// Passes the time, before the accesses that follow. The first call begins
    /// the profile.
    pub fn tick(&mut self, now: Nanos) {
        self.working.tick(now);
    }

    /// Memory held, in bytes.
    pub fn state_bytes(&self) -> usize {
        size_of::<Profiler>() + self.curve.state_bytes() + self.working.state_bytes()
    }

    /// The profile by now.
    pub fn profile(&self) -> Profile {
        let unique = self.curve.unique_lines();
        Profile {
            line_bytes: self.line_bytes,
            reads: self.reads,
            writes: self.writes,
            seconds: self.working.seconds(),
            unique_lines: unique,
            plateau: self.curve.plateau().miss_ratio,
            first_reads: self.curve.first_reads(),
            late_share: self.working.late_share(),
            curve: sizes(unique).map(|lines| self.curve.at(lines)).collect(),
            working_set: self.working.sets(self.line_bytes),
        }
    }
}

/// The sizes of a curve up to `unique` lines.
fn sizes(unique: f64) -> impl Iterator<Item = u64> {
    let last = unique.ceil() as u64;
    let step = move |i: u32| 2f64.powf(f64::from(i) / f64::from(POINTS_PER_OCTAVE)) as u64;
    let mut before = 0;
    (0..64 * POINTS_PER_OCTAVE)
        .map(step)
        .take_while(move |lines| *lines < last)
        .chain((last > 0).then_some(last))
        .filter(move |lines| std::mem::replace(&mut before, *lines) < *lines)
}

/// The state of a profiler at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Length of a line.
    pub line_bytes: u64,
    /// Reads, counted once for each line touched.
    pub reads: u64,
    /// Writes, counted alike.
    pub writes: u64,
    /// Seconds from the first to the last tick; zero if there was none.
    pub seconds: f64,
    /// Distinct lines, estimated.
    pub unique_lines: f64,
    /// The miss ratio that no size goes below.
    pub plateau: f64,
    /// Estimated share of the parts of lines read that were touched for the first time.
    #[serde(default)]
    pub first_reads: f64,
    /// Estimated share of the distinct lines that were first seen in the last quarter of the time;
    /// zero if there was no tick.
    pub late_share: f64,
    /// The curve, by rising size, up to the distinct lines.
    pub curve: Vec<CurvePoint>,
    /// Distinct bytes in equal intervals of time.
    pub working_set: Vec<WorkingSet>,
}

impl Profile {
    /// Accesses.
    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes of the distinct lines.
    pub fn footprint_bytes(&self) -> f64 {
        self.unique_lines * self.line_bytes as f64
    }

    /// The curve at `lines`, between its points by the logarithm of the size.
    pub fn at(&self, lines: u64) -> CurvePoint {
        let above = self.curve.partition_point(|point| point.lines < lines);
        let empty = CurvePoint {
            lines,
            miss_ratio: 1.0,
            error: 0.0,
        };
        match (
            above.checked_sub(1).map(|i| self.curve[i]),
            self.curve.get(above),
        ) {
            (_, Some(point)) if point.lines == lines => *point,
            (Some(below), Some(point)) => {
                let log = |n: u64| (n as f64).ln();
                let part = (log(lines) - log(below.lines)) / (log(point.lines) - log(below.lines));
                let between = |a: f64, b: f64| a + (b - a) * part;
                CurvePoint {
                    lines,
                    miss_ratio: between(below.miss_ratio, point.miss_ratio),
                    error: between(below.error, point.error),
                }
            }
            (Some(last), None) => CurvePoint { lines, ..last },
            (None, _) => empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::mix;

    #[test]
    fn a_loop_is_profiled_whole() {
        let mut profiler = Profiler::new(4096, 1);
        for i in 0..48_000u64 {
            profiler.tick(Nanos::from_secs(i));
            let op = if i % 4 == 0 {
                PolicyOp::Write
            } else {
                PolicyOp::Read
            };
            profiler.access(i % 1024, 1, op);
        }
        let profile = profiler.profile();
        assert_eq!((profile.reads, profile.writes), (36_000, 12_000));
        assert_eq!((profile.unique_lines, profile.seconds), (1024.0, 47_999.0));
        assert_eq!(profile.at(1024).miss_ratio, profile.plateau);
        assert!(profile.at(1 << 40).miss_ratio < 0.03);
        assert_eq!(
            (profile.at(512).miss_ratio, profile.at(0).miss_ratio),
            (1.0, 1.0)
        );
        let whole = profile.working_set[3];
        let near =
            |bytes: u64, lines: u64| (bytes as f64 / 4096.0 / lines as f64 - 1.0).abs() < 0.1;
        assert!(
            near(whole.read_bytes, 768) && near(whole.written_bytes, 256),
            "{whole:?}"
        );
    }

    #[test]
    fn reads_again_are_reads_of_the_same_line() {
        let (mut each, mut together) = (Profiler::new(4096, 1), Profiler::new(4096, 1));
        for i in 0..20_000u64 {
            let line = mix(i) % 700;
            (0..=i % 5).for_each(|_| each.access(line, 3, PolicyOp::Read));
            together.access(line, 3, PolicyOp::Read);
            together.read_again(3, i % 5);
        }
        assert_eq!(each.profile(), together.profile());
    }

    #[test]
    fn state_stays_below_its_bound_over_any_stream() {
        let mut profiler = Profiler::new(4096, 1);
        for i in 0..400_000u64 {
            profiler.tick(Nanos::from_millis(i * i));
            profiler.access(mix(i), 1, PolicyOp::Read);
        }
        assert!(
            profiler.state_bytes() < STATE_BYTES_MAX,
            "{}",
            profiler.state_bytes()
        );
        let profile = profiler.profile();
        assert!((profile.unique_lines / 400_000.0 - 1.0).abs() < 0.1);
        assert!(profile.working_set.len() >= 16);
    }

    #[test]
    fn nothing_seen_is_a_profile_too() {
        let profile = Profiler::new(4096, 1).profile();
        assert_eq!((profile.accesses(), profile.seconds), (0, 0.0));
        assert_eq!(profile.at(100).miss_ratio, 1.0);
    }
}
