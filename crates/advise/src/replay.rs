//! Sends a trace to devices, in any world: a simulated one or this one.
//!
//! At recorded times the load is open: a request is sent at its due time even if earlier ones have
//! not ended. Its latency counts from the due time. A device that falls behind shows the delay,
//! instead of slowing the load down.

use block::{Boundary, Device, Env, Fua, Gate, IoResult, Nanos, SharedBuf};
use futures_util::future::join_all;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use trace::{RecordOp, TraceReader, TraceRecord};

/// Requests in flight at recorded times; later ones wait, and their wait counts.
const IN_FLIGHT_MAX: u64 = 1024;

/// Pace of the requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReplayPace {
    /// Recorded times of the trace, so many times as fast.
    Recorded(f64),
    /// Number of requests at a time; each is sent when another has ended.
    Depth(u32),
}

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Pace of the requests.
    pub pace: ReplayPace,
    /// Requests at the beginning that are sent but not counted.
    pub skip: u64,
    /// True to send writes.
    pub writes: bool,
    /// No request is begun after this time.
    pub span_max: Nanos,
}

/// Result of a replay. Latencies are in nanoseconds, of requests that succeeded.
#[derive(Clone, Debug)]
pub struct ReplayFigures {
    /// Latency of reads.
    pub read_ns: Histogram<u64>,
    /// Latency of writes.
    pub write_ns: Histogram<u64>,
    /// Bytes of requests that succeeded.
    pub bytes: u64,
    /// Writes that were not sent.
    pub writes_left_out: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Cause of the first failure.
    pub failure: Option<String>,
    /// Requests sent after their due time because too many were in flight.
    pub late: u64,
    /// Time from the first request to the end of the last.
    pub span: Nanos,
}

impl Default for ReplayFigures {
    fn default() -> ReplayFigures {
        // Three digits are more than latencies repeat to.
        let histogram = || Histogram::new(3).expect("three digits are supported");
        ReplayFigures {
            read_ns: histogram(),
            write_ns: histogram(),
            bytes: 0,
            writes_left_out: 0,
            failed: 0,
            failure: None,
            late: 0,
            span: Nanos::ZERO,
        }
    }
}

/// A replay of a trace to devices.
pub struct Replay<D, F, C> {
    env: Env,
    options: Options,
    reader: RefCell<TraceReader>,
    /// The device of a volume.
    target: F,
    /// Called when counting begins.
    counting: C,
    /// Data of writes: cut to length.
    data: SharedBuf,
    read: Cell<u64>,
    began: Nanos,
    in_flight: Cell<u64>,
    trace_failure: RefCell<Option<String>>,
    figures: RefCell<ReplayFigures>,
    _device: std::marker::PhantomData<D>,
}

impl<D, F, C> Replay<D, F, C>
where
    D: Device,
    F: Fn(u32) -> Gate<D> + 'static,
    C: Fn() + 'static,
{
    /// Prepares to send the records of `reader` to the device that `target` gives for each volume.
    /// `fill` makes the data of writes.
    pub async fn new(
        env: Env,
        reader: TraceReader,
        options: Options,
        target: F,
        fill: impl FnOnce(&mut [u8]),
        counting: C,
    ) -> Rc<Replay<D, F, C>> {
        let mut data = env.pool.get(Gate::<D>::BYTES_MAX).await;
        fill(&mut data);
        Rc::new(Replay {
            began: env.timer.now(),
            env,
            options,
            reader: RefCell::new(reader),
            target,
            counting,
            data: data.share(),
            read: Cell::new(0),
            in_flight: Cell::new(0),
            trace_failure: RefCell::default(),
            figures: RefCell::default(),
            _device: std::marker::PhantomData,
        })
    }

    /// Sends the whole trace. `Err` is the reason why the trace could not be read on.
    pub async fn run(self: Rc<Self>) -> Result<ReplayFigures, String> {
        match self.options.pace {
            ReplayPace::Depth(depth) => {
                join_all((0..depth).map(|_| self.work())).await;
            }
            ReplayPace::Recorded(speed) => self.send_at_times(speed).await,
        }
        if let Some(what) = self.trace_failure.take() {
            return Err(what);
        }
        let mut figures = self.figures.take();
        figures.span = self.env.timer.now() - self.began;
        Ok(figures)
    }

    /// Number of requests taken from the trace.
    pub fn progress(&self) -> u64 {
        self.read.get()
    }

    /// The next request to send, and true if the request counts.
    fn next(&self) -> Option<(TraceRecord, bool)> {
        loop {
            let over = self.env.timer.now().since(self.began) >= self.options.span_max;
            if over || self.trace_failure.borrow().is_some() {
                return None;
            }
            match self.reader.borrow_mut().next()? {
                Ok(record) => {
                    let number = self.read.replace(self.read.get() + 1);
                    if number == self.options.skip {
                        (self.counting)();
                    }
                    if record.op == RecordOp::Write && !self.options.writes {
                        self.figures.borrow_mut().writes_left_out += 1;
                        continue;
                    }
                    return Some((record, number >= self.options.skip));
                }
                Err(error) => {
                    *self.trace_failure.borrow_mut() = Some(error.to_string());
                    return None;
                }
            }
        }
    }

    /// One request after another.
    async fn work(&self) {
        while let Some((record, counts)) = self.next() {
            let due = self.env.timer.now();
            self.send(record, due, counts).await;
        }
    }

    /// Each request at its time, and the wait for the last.
    async fn send_at_times(self: &Rc<Self>, speed: f64) {
        let mut first = None;
        while let Some((record, counts)) = self.next() {
            let first = *first.get_or_insert(record.time);
            let after = record.time.since(first).0 as f64 / speed;
            let due = self.began + Nanos(after as u64);
            if due.since(self.began) >= self.options.span_max {
                break;
            }
            self.env.timer.until(due).await;
            if self.in_flight.get() >= IN_FLIGHT_MAX {
                self.figures.borrow_mut().late += u64::from(counts);
                self.settle(IN_FLIGHT_MAX).await;
            }
            self.in_flight.set(self.in_flight.get() + 1);
            let this = self.clone();
            self.env.spawn.spawn(async move {
                this.send(record, due, counts).await;
                this.in_flight.set(this.in_flight.get() - 1);
            });
        }
        self.settle(1).await;
    }

    /// Waits until fewer than `most` requests are in flight.
    async fn settle(&self, most: u64) {
        const LOOK: Nanos = Nanos::from_micros(100);
        while self.in_flight.get() >= most {
            self.env.timer.sleep(LOOK).await;
        }
    }

    async fn send(&self, record: TraceRecord, due: Nanos, counts: bool) {
        let target = (self.target)(record.volume);
        let longest = Gate::<D>::BYTES_MAX as u64;
        let len = u64::from(record.len_bytes);
        let pieces = (0..len).step_by(longest as usize).map(|from| {
            let len = (len - from).min(longest) as usize;
            self.send_piece(&target, record.op, record.offset_bytes + from, len)
        });
        let results = join_all(pieces).await;
        let took = self.env.timer.now() - due;
        let mut figures = self.figures.borrow_mut();
        if let Some(error) = results.into_iter().find_map(IoResult::err) {
            figures.failed += 1;
            figures.failure.get_or_insert(error.to_string());
        } else if counts {
            figures.bytes += len;
            let histogram = match record.op {
                RecordOp::Read => &mut figures.read_ns,
                RecordOp::Write => &mut figures.write_ns,
            };
            histogram.record(took.0).expect("it grows as it must");
        }
    }

    async fn send_piece(
        &self,
        target: &Gate<D>,
        op: RecordOp,
        offset: u64,
        len: usize,
    ) -> IoResult {
        match op {
            RecordOp::Read => target.read(offset, len).await.map(drop),
            RecordOp::Write => target.write(offset, self.data.slice(0..len), Fua::No).await,
        }
    }
}
