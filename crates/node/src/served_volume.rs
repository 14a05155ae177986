//! A volume as clients use it: cached, with a log in front if it is write-back, and observed.
//!
//! ```text
//! Gate ─> ServedVolume ─┬─> cache::Volume
//!                       └─> log ─> cache::Volume
//! ```
//!
//! Invariants:
//!     there is a log ⟹ every request goes through it, and nothing else writes to the volume
//!     a `HeldChanges` lives ⟹ no change begins, and none is in flight once `hold` has returned
//!     the volume gets a log ⟹ no change is in flight: its logical block becomes that of the log
//!
//! Requests are observed as they come from clients, before a log or a hold.

use crate::leaf::Leaf;
use crate::log::{OpenLog, RestingLog};
use crate::sink::Sink;
use block::{
    Buf, Content, Device, Driver, Extent, Fua, Gate, Generations, Geometry, IoResult, KeptHits,
    LOCATED_BLOCK_SECTORS, Lba, LocatedEnd, LocatedRead, LocatedUnit, Nanos, Sectors, SharedBuf,
    Signal, Timer, UNIT_BLOCKS_MAX,
};
use control::config::{Name, VolumeMode};
use control::status::LATENCY_BOUNDS_US;
use filter::{
    AccessVerb, Ending, Latencies, Profiling, RawAccess, RequestObserver, RequestSpan, Tap,
};
use shard::LocatingGate;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use writelog::{WriteBackStatus, logged};

/// The gate of a volume.
pub type VolumeGate<D> = Gate<ServedVolume<D>>;
/// The gate of a volume, for the frontends of its shard.
pub type VolumeFront<D> = LocatingGate<D, VolumeGate<D>>;

/// A volume with all layers in front of its origin; clones are the same.
pub struct ServedVolume<D: Driver>(Rc<ServedShared<D>>);

struct ServedShared<D: Driver> {
    cached: cache::Volume<Leaf<D>>,
    log: RefCell<Option<OpenLog<D>>>,
    /// Geometry with a log.
    logged: Geometry,
    /// Number of holds on changes.
    held: Cell<u32>,
    changing: Cell<u32>,
    signal: Signal,
    /// Rest of a quiesced volume.
    quiesced: RefCell<Option<AtRest<D>>>,
    observers: Observers,
    timer: Timer,
}

/// The observers of the requests of a volume.
struct Observers {
    tap: Tap<Sink>,
    profiling: Profiling,
    latencies: Latencies,
}

impl RequestObserver for Observers {
    #[inline]
    fn begin(&self, now: Nanos, access: &RawAccess) {
        self.tap.begin(now, access);
        self.profiling.begin(now, access);
    }

    #[inline]
    fn end(&self, now: Nanos, access: &RawAccess, began: Nanos, ending: Ending) {
        self.latencies.end(now, access, began, ending);
    }
}

/// Holds back changes until dropped.
pub(crate) struct HeldChanges<D: Driver>(ServedVolume<D>);

impl<D: Driver> Drop for HeldChanges<D> {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.held.set(inner.held.get() - 1);
        inner.signal.notify();
    }
}

/// A volume at rest: nothing is dirty, and changes wait, until this is dropped.
pub(crate) struct AtRest<D: Driver> {
    // Dropped first, so that the log goes on before changes do.
    _resting: RestingLog<D>,
    _held: HeldChanges<D>,
}

impl<D: Driver> AtRest<D> {
    pub(crate) fn new(held: HeldChanges<D>, resting: RestingLog<D>) -> AtRest<D> {
        AtRest {
            _resting: resting,
            _held: held,
        }
    }
}

impl<D: Driver> Clone for ServedVolume<D> {
    fn clone(&self) -> ServedVolume<D> {
        ServedVolume(self.0.clone())
    }
}

/// A change in flight, until dropped.
struct Changing<'a, D: Driver>(&'a ServedShared<D>);

impl<D: Driver> Drop for Changing<'_, D> {
    fn drop(&mut self) {
        self.0.changing.set(self.0.changing.get() - 1);
        self.0.signal.notify();
    }
}

impl<D: Driver> ServedVolume<D> {
    /// Makes a volume of `cached`, behind `log`; profiled in lines of `line_bytes`.
    pub(crate) fn new(
        cached: cache::Volume<Leaf<D>>,
        log: Option<OpenLog<D>>,
        line_bytes: u32,
        timer: Timer,
    ) -> ServedVolume<D> {
        let logged = logged(cached.geometry());
        let profiling = Profiling::new(cached.geometry().sectors, line_bytes, timer.now());
        let engine = cached.clone();
        profiling.leave_out(move |extent| engine.is_streamed(extent));
        ServedVolume(Rc::new(ServedShared {
            cached,
            log: RefCell::new(log),
            logged,
            held: Cell::new(0),
            changing: Cell::new(0),
            signal: Signal::default(),
            quiesced: RefCell::new(None),
            observers: Observers {
                tap: Tap::default(),
                profiling,
                latencies: Latencies::new(&LATENCY_BOUNDS_US),
            },
            timer,
        }))
    }

    /// The volume behind the log.
    pub fn cached(&self) -> &cache::Volume<Leaf<D>> {
        &self.0.cached
    }

    /// The profile of the volume's requests.
    pub(crate) fn profiling(&self) -> &Profiling {
        &self.0.observers.profiling
    }

    /// The latencies of the volume's requests.
    pub(crate) fn latencies(&self) -> &Latencies {
        &self.0.observers.latencies
    }

    /// The tap that records requests. From now on no shard serves reads without this one.
    pub(crate) fn tap(&self) -> Tap<Sink> {
        self.0.cached.refuse_located(self.0.logged.extent());
        self.0.observers.tap.clone()
    }

    /// The log, if there is one.
    pub(crate) fn log(&self) -> Option<OpenLog<D>> {
        self.0.log.borrow().clone()
    }

    /// The state of the log, if there is one.
    pub fn log_status(&self) -> Option<WriteBackStatus> {
        self.log().map(|log| log.engine().status())
    }

    /// Devices lost since the log was opened, each with the reason.
    pub(crate) fn lost_copies(&self) -> Vec<(Name, String)> {
        self.log().map(|log| log.lost()).unwrap_or_default()
    }

    /// True if the journal was lost since the log was opened.
    pub(crate) fn has_lost_journal(&self) -> bool {
        self.log().is_some_and(|log| log.has_lost_journal())
    }

    /// The mode of the volume: write-back, or the mode of the cache.
    pub fn mode(&self) -> VolumeMode {
        match self.0.log.borrow().is_some() {
            true => VolumeMode::WriteBack,
            false => VolumeMode::Cached(self.0.cached.mode()),
        }
    }

    /// Installs `log` in place of the former one, if any; changes are held meanwhile.
    pub(crate) fn exchange_log(&self, log: OpenLog<D>) {
        self.0.log.replace(Some(log));
        self.0.cached.refuse_located(self.0.logged.extent());
    }

    /// Removes the log.
    pub(crate) fn forget_log(&self) {
        self.0.log.borrow_mut().take();
    }

    /// Holds back new changes; returns once those in flight have ended.
    pub(crate) async fn hold(&self) -> HeldChanges<D> {
        self.0.held.set(self.0.held.get() + 1);
        let held = HeldChanges(self.clone());
        self.0.signal.until(|| self.0.changing.get() == 0).await;
        held
    }

    /// Keeps the volume at rest until [`ServedVolume::go_on`].
    pub(crate) fn stay(&self, at_rest: Option<AtRest<D>>) {
        self.0.quiesced.replace(at_rest);
    }

    /// Ends the rest of the volume.
    pub(crate) fn go_on(&self) {
        self.0.quiesced.take();
    }

    fn begin(&self, access: RawAccess) -> RequestSpan<'_, Observers> {
        RequestSpan::begin(&self.0.observers, &self.0.timer, access)
    }

    async fn changing(&self) -> (Changing<'_, D>, Option<OpenLog<D>>) {
        self.0.signal.until(|| self.0.held.get() == 0).await;
        self.0.changing.set(self.0.changing.get() + 1);
        (Changing(&self.0), self.log())
    }
}

impl<D: Driver> Device for ServedVolume<D> {
    fn geometry(&self) -> &Geometry {
        match *self.0.log.borrow() {
            Some(_) => &self.0.logged,
            None => self.0.cached.geometry(),
        }
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let span = self.begin(RawAccess::transfer(
            AccessVerb::Read,
            at,
            buf.len(),
            Fua::No,
        ));
        let (buf, result) = match self.log() {
            None => self.0.cached.read(at, buf).await,
            Some(log) => log.engine().read(at, buf).await,
        };
        span.end(&result);
        (buf, result)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let span = self.begin(RawAccess::transfer(AccessVerb::Write, at, data.len(), fua));
        let (_under_way, log) = self.changing().await;
        let result = match log {
            None => self.0.cached.write(at, data, fua).await,
            Some(log) => log.engine().write(at, data, fua).await,
        };
        span.end(&result);
        result
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Zero, extent));
        let (_under_way, log) = self.changing().await;
        let result = match log {
            None => self.0.cached.zero(extent).await,
            Some(log) => log.engine().zero(extent).await,
        };
        span.end(&result);
        result
    }

    async fn flush(&self) -> IoResult {
        let span = self.begin(RawAccess::FLUSH);
        let result = match self.log() {
            None => self.0.cached.flush().await,
            Some(log) => log.engine().flush().await,
        };
        span.end(&result);
        result
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Discard, extent));
        let (_under_way, log) = self.changing().await;
        let result = match log {
            None => self.0.cached.discard(extent).await,
            Some(log) => log.engine().discard(extent).await,
        };
        span.end(&result);
        result
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        let span = self.begin(RawAccess::of(AccessVerb::Extents, extent));
        let result = match self.log() {
            None => self.0.cached.extents(extent, out).await,
            Some(log) => log.engine().extents(extent, out).await,
        };
        span.end(&result);
        result
    }

    fn announce(&self, extent: Extent) {
        self.0.cached.announce(extent);
    }

    fn locate(&self, extent: Extent) -> Option<LocatedRead> {
        let log = self.0.log.borrow();
        let log = log.as_ref();
        if log.is_some_and(|log| log.engine().is_dirty(extent)) {
            return None;
        }
        let read = self.0.cached.locate(extent)?;
        let access = RawAccess::of(AccessVerb::Read, extent);
        self.0.observers.begin(self.0.timer.now(), &access);
        Some(read)
    }

    fn locate_unit(&self, at: Lba) -> Option<LocatedUnit> {
        // A recording has every request, at its time.
        if self.0.observers.tap.is_on() {
            return None;
        }
        let mut unit = self.0.cached.locate_unit(at)?;
        let log = self.0.log.borrow();
        let log = log.as_ref().map(|log| log.engine());
        if let Some(log) = log.filter(|log| log.is_dirty(unit.extent)) {
            for block in 0..UNIT_BLOCKS_MAX {
                let first = Lba(unit.extent.start.0 + u64::from(block) * LOCATED_BLOCK_SECTORS);
                if log.is_dirty(Extent::new(first, Sectors(LOCATED_BLOCK_SECTORS))) {
                    unit.valid &= !(1 << block);
                }
            }
        }
        Some(unit)
    }

    fn generations(&self) -> Option<Arc<Generations>> {
        self.0.cached.generations()
    }

    fn located(&self, end: &LocatedEnd) {
        self.0.observers.latencies.located(end);
        self.0.cached.located(end);
    }

    fn kept(&self, hits: &KeptHits) {
        let observers = &self.0.observers;
        for touch in &hits.touched {
            observers.profiling.reads(touch.extent, touch.reads);
        }
        observers.latencies.read_elsewhere(&hits.requests);
        self.0.cached.kept(hits);
    }
}
