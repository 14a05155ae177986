//! Requests of a workload to a volume, counted by interval once the warm-up is over.
//!
//! Invariant: a request that ends outside of the measured time does not count.

use crate::queries::QueryReads;
use crate::rig::Volume;
use crate::visitors::{VisitCurve, VisitTally};
use block::{Boundary, Env, Fua, IoError, IoResult, Nanos, SharedBuf};
use std::cell::RefCell;
use std::ops::AddAssign;

/// Times of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Time before the measurement.
    pub warm_up: Nanos,
    /// Measured time, in whole intervals.
    pub span: Nanos,
    /// Time covered by a point.
    pub interval: Nanos,
}

/// Result, one point an interval after the warm-up.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadMeasured<P> {
    /// Seconds that a point covers.
    pub interval_s: f64,
    /// The points.
    pub points: Vec<P>,
}

/// Requests over time, with points that cover `interval`.
pub fn curve(interval: Nanos, points: impl IntoIterator<Item = QueryReads>) -> VisitCurve {
    let tally = |reads: QueryReads| VisitTally {
        hits: reads.reads,
        bytes: reads.bytes,
        hit_s: reads.taken.0 as f64 / 1e9,
        ..VisitTally::default()
    };
    VisitCurve {
        interval_s: interval.0 as f64 / 1e9,
        points: points.into_iter().map(tally).collect(),
    }
}

impl<P: Default + Clone + AddAssign> LoadMeasured<P> {
    /// All points, and their seconds.
    pub fn whole(&self) -> (P, f64) {
        let mut sum = P::default();
        self.points.iter().for_each(|point| sum += point.clone());
        (sum, self.interval_s * self.points.len() as f64)
    }
}

/// Requests to a volume, and their measurement.
pub struct LoadMeter<P> {
    /// Environment of the volume's shard.
    pub env: Env,
    volume: Volume,
    content: SharedBuf,
    from: Nanos,
    times: Times,
    path: Nanos,
    points: RefCell<Vec<P>>,
    failed: RefCell<Option<IoError>>,
}

impl<P: Default + Clone> LoadMeter<P> {
    /// Creates a meter that begins now, with writes of at most so many bytes, and requests that
    /// take `path` to the volume and back.
    pub fn new(
        env: &Env,
        volume: Volume,
        times: Times,
        write_bytes_max: u64,
        path: Nanos,
    ) -> LoadMeter<P> {
        let mut content = env.pool.take(write_bytes_max as usize);
        content.fill(0);
        let count = (times.span.0 / times.interval.0) as usize;
        LoadMeter {
            env: env.clone(),
            volume,
            content: content.share(),
            from: env.timer.now() + times.warm_up,
            times,
            path,
            points: RefCell::new(vec![P::default(); count]),
            failed: RefCell::default(),
        }
    }

    fn end(&self) -> Nanos {
        self.from + self.times.span
    }

    /// Returns true while more requests are to be sent.
    pub fn goes_on(&self) -> bool {
        self.env.timer.now() < self.end() && self.failed.borrow().is_none()
    }

    /// Waits for the end; returns the measurement, or the first failure.
    pub async fn ended(&self) -> IoResult<LoadMeasured<P>> {
        self.env.timer.until(self.end()).await;
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(LoadMeasured {
                interval_s: self.times.interval.0 as f64 / 1e9,
                points: self.points.take(),
            }),
        }
    }

    /// Reads so many bytes, and counts the read under `kind`.
    pub async fn read(&self, kind: impl FnOnce(&mut P) -> &mut QueryReads, at: u64, bytes: u64) {
        let asked = self.env.timer.now();
        self.env.timer.sleep(self.path).await;
        let result = self.volume.read(at, bytes as usize).await;
        self.count(kind, asked, bytes, result.map(drop));
    }

    /// Writes so many bytes, and counts the write under `kind`.
    pub async fn write(&self, kind: impl FnOnce(&mut P) -> &mut QueryReads, at: u64, bytes: u64) {
        let asked = self.env.timer.now();
        self.env.timer.sleep(self.path).await;
        let content = self.content.slice(0..bytes as usize);
        let result = self.volume.write(at, content, Fua::No).await;
        self.count(kind, asked, bytes, result);
    }

    fn count(
        &self,
        kind: impl FnOnce(&mut P) -> &mut QueryReads,
        asked: Nanos,
        bytes: u64,
        result: IoResult,
    ) {
        if let Err(error) = result {
            self.failed.borrow_mut().get_or_insert(error);
            return;
        }
        let taken = self.env.timer.now() - asked;
        self.tally(|point| {
            let kind = kind(point);
            kind.reads += 1;
            kind.bytes += bytes;
            kind.taken += taken;
        });
    }

    /// Counts a request that has just ended.
    pub fn tally(&self, add: impl FnOnce(&mut P)) {
        let now = self.env.timer.now();
        if now < self.from {
            return;
        }
        let point = ((now - self.from).0 / self.times.interval.0) as usize;
        if let Some(point) = self.points.borrow_mut().get_mut(point) {
            add(point);
        }
    }
}
