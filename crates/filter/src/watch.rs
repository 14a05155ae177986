//! A device that reports to an observer when each request begins and ends.
//!
//! Invariant: every `begin` is followed by exactly one `end`, also when the future is dropped,
//! which ends the wait and not the operation below.

use crate::access::{AccessVerb, RawAccess};
use block::{
    Buf, Content, Device, DiskPlace, Extent, Fua, Geometry, IoError, IoErrorKind, IoResult, Lba,
    LocatedEnd, Nanos, ReadTimes, SharedBuf, Timer,
};

/// End of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The request succeeded.
    Done,
    /// The request failed.
    Failed(IoErrorKind),
    /// The future of the request was dropped first.
    Abandoned,
}

/// An observer of every request; called on the shard's hot path.
pub trait RequestObserver: 'static {
    /// Takes the beginning of a request, at its first poll.
    fn begin(&self, now: Nanos, access: &RawAccess);
    /// Takes the end of a request; `began` is the `now` of its `begin`.
    #[inline]
    fn end(&self, _now: Nanos, _: &RawAccess, _began: Nanos, _: Ending) {}
    /// Takes the error of a request that is about to end with it.
    fn failed(&self, _: &IoError) {}
    /// Takes a read that another shard has carried out, and of which the bytes were accepted.
    fn located(&self, _: &LocatedEnd) {}

    /// Reads that other shards have carried out.
    fn read_elsewhere(&self, _: &ReadTimes) {}
}

/// The device `D`, watched by `W`.
#[derive(Clone)]
pub struct ObservedDevice<D, W> {
    inner: D,
    watch: W,
    timer: Timer,
}

impl<D, W: RequestObserver> ObservedDevice<D, W> {
    /// Watches `inner`, with the times of `timer`.
    pub fn new(inner: D, watch: W, timer: Timer) -> ObservedDevice<D, W> {
        ObservedDevice {
            inner,
            watch,
            timer,
        }
    }

    /// Returns the observer.
    pub fn watch(&self) -> &W {
        &self.watch
    }

    fn begin(&self, access: RawAccess) -> RequestSpan<'_, W> {
        RequestSpan::begin(&self.watch, &self.timer, access)
    }
}

/// A request in progress; dropping it reports its end.
pub struct RequestSpan<'a, W: RequestObserver> {
    watch: &'a W,
    timer: &'a Timer,
    access: RawAccess,
    began: Nanos,
    ending: Ending,
}

impl<'a, W: RequestObserver> RequestSpan<'a, W> {
    /// Reports the beginning of `access` to `watch`, with the times of `timer`.
    #[inline]
    pub fn begin(watch: &'a W, timer: &'a Timer, access: RawAccess) -> RequestSpan<'a, W> {
        let began = timer.now();
        watch.begin(began, &access);
        RequestSpan {
            watch,
            timer,
            access,
            began,
            ending: Ending::Abandoned,
        }
    }

    /// Reports the end of the request with `result`.
    #[inline]
    pub fn end(mut self, result: &IoResult) {
        self.ending = match result {
            Ok(()) => Ending::Done,
            Err(error) => {
                self.watch.failed(error);
                Ending::Failed(error.kind())
            }
        };
    }
}

impl<W: RequestObserver> Drop for RequestSpan<'_, W> {
    fn drop(&mut self) {
        let now = self.timer.now();
        self.watch.end(now, &self.access, self.began, self.ending);
    }
}

impl<D: Device, W: RequestObserver> Device for ObservedDevice<D, W> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let span = self.begin(RawAccess::transfer(
            AccessVerb::Read,
            at,
            buf.len(),
            Fua::No,
        ));
        let (buf, result) = self.inner.read(at, buf).await;
        span.end(&result);
        (buf, result)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let span = self.begin(RawAccess::transfer(AccessVerb::Write, at, data.len(), fua));
        let result = self.inner.write(at, data, fua).await;
        span.end(&result);
        result
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Zero, extent));
        let result = self.inner.zero(extent).await;
        span.end(&result);
        result
    }

    async fn flush(&self) -> IoResult {
        let span = self.begin(RawAccess::FLUSH);
        let result = self.inner.flush().await;
        span.end(&result);
        result
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Discard, extent));
        let result = self.inner.discard(extent).await;
        span.end(&result);
        result
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Extents, extent));
        let result = self.inner.extents(extent, out).await;
        span.end(&result);
        result
    }

    #[inline]
    fn disk_place(&self, at: Lba) -> Option<DiskPlace> {
        self.inner.disk_place(at)
    }

    fn located(&self, end: &LocatedEnd) {
        self.watch.located(end);
    }

    fn read_elsewhere(&self, reads: &ReadTimes) {
        self.watch.read_elsewhere(reads);
    }
}
