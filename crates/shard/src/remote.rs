//! Gates of another shard: frontends run on any shard, and each device stays on its own.
//!
//! ```text
//! a frontend ─> RemoteGate ─(lane)─> GateTable ─> Gate ─> device
//!                    └─> disk                 └── the shard of the device ───┘
//! ```
//!
//! A read that the device's shard locates is carried out here (`located`), and the place of its unit
//! is kept for later ones (`kept`). All else is carried out there.
//!
//! Invariants:
//!     ranges are locked, and failed flushes recorded, by the gate alone
//!     a gate was taken out of the table ⟹ no request enters the gate by a lane
//!
//! The bytes of a read are memory of the shard that read them, and a write's are memory of the
//! frontend's. Either goes back to its pool when it is dropped.

use crate::kept::{self, GateHits, KeptUnits};
use crate::lane::{LaneAsker, LaneEnd, LaneServer};
use crate::local::Local;
use crate::located::{LocatedAsk, LocatedGate, LocatedReader};
use block::{
    AskedRead, Boundary, Content, Driver, Env, Extent, FlushErrors, Fua, Generations, Geometry,
    IoError, IoErrorKind, IoResult, KeptHits, LocatedEnd, LocatedFate, LocatedRead, LocatedUnit,
    Nanos, ReadTaker, SharedBuf, Signal, Timer,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Time between reports, while there are hits to report.
const REPORT_PERIOD: Nanos = Nanos::from_millis(10);

/// The end of a located read, with the number of its gate.
pub struct CountedEnd {
    gate: u32,
    end: LocatedEnd,
}

/// A request for a gate.
pub enum GateRequest {
    /// For the gate of this number.
    To(u32, GateVerb),
    /// The ends of located reads, each with the number of its gate, and hits of kept places, with
    /// the number of theirs.
    Located(Vec<CountedEnd>, Vec<(u32, KeptHits)>),
}

/// A request for one gate.
pub enum GateVerb {
    /// A read that may be located.
    Locate(u64, usize),
    /// A read that is answered with its bytes.
    Read(u64, usize),
    /// [`Boundary::write`].
    Write(u64, SharedBuf, Fua),
    /// [`Boundary::zero`].
    Zero(u64, u64),
    /// [`Boundary::discard`].
    Discard(u64, u64),
    /// [`Boundary::flush`].
    Flush,
    /// [`Boundary::extents`].
    Extents(u64, u64),
    /// [`Boundary::announce`].
    Announce(u64, u64),
}

/// The success of a request.
pub enum GateSuccess {
    /// The bytes that were read.
    Bytes(SharedBuf),
    /// The place of the bytes, and that of all blocks around if these are of one unit.
    Located(LocatedRead, Option<Box<LocatedUnit>>),
    /// Contents of a range.
    Contents(Vec<(Extent, Content)>),
    /// The end of a change or of a flush.
    Done,
}

/// The answer of a gate.
pub type GateAnswer = IoResult<GateSuccess>;
/// The end of a lane that serves gates, on its way to their shard.
pub type GateLane = LaneServer<GateRequest, GateAnswer>;
/// The end of a lane that asks gates, on its way to the frontend's shard.
pub type GateEnd = LaneEnd<GateRequest, GateAnswer>;

/// The gates of a shard that others ask.
pub struct GateTable<G> {
    gates: RefCell<BTreeMap<u32, G>>,
    next: Cell<u32>,
}

impl<G> Default for GateTable<G> {
    fn default() -> GateTable<G> {
        GateTable {
            gates: RefCell::default(),
            next: Cell::new(0),
        }
    }
}

/// Names a gate for other shards.
#[derive(Clone)]
pub struct GatePass {
    gate: u32,
    geometry: Geometry,
    flush_errors: Arc<FlushErrors>,
    generations: Option<Arc<Generations>>,
}

impl GatePass {
    /// The number of the gate; no other gate of its table ever has it.
    pub fn number(&self) -> u32 {
        self.gate
    }
}

impl<G: Boundary + Clone> GateTable<G> {
    /// Lets other shards ask `gate`.
    pub fn add(&self, gate: G) -> GatePass {
        let pass = GatePass {
            gate: self.next.replace(self.next.get() + 1),
            geometry: gate.geometry().clone(),
            flush_errors: gate.flush_errors().clone(),
            generations: gate.generations(),
        };
        self.gates.borrow_mut().insert(pass.gate, gate);
        pass
    }

    /// Takes a gate out: later requests fail with `Gone`. Those in flight go on.
    pub fn remove(&self, pass: &GatePass) {
        let gate = self.gates.borrow_mut().remove(&pass.gate);
        drop(gate);
    }

    /// Serves a lane until its other end is gone.
    pub async fn serve(self: Rc<Self>, lane: GateLane, env: Env) {
        let table = self.clone();
        let at_once = move |request: &GateRequest| table.answer_at_once(request);
        let carry_out = move |request: GateRequest| {
            let (gate, verb) = match request {
                GateRequest::To(gate, verb) => (gate, verb),
                GateRequest::Located(..) => unreachable!("answered at once"),
            };
            let gate = self.gates.borrow().get(&gate).cloned();
            async move { carry_out(gate, verb).await }
        };
        lane.serve(env, at_once, carry_out).await;
    }

    fn answer_at_once(&self, request: &GateRequest) -> Option<GateAnswer> {
        let gates = self.gates.borrow();
        match request {
            GateRequest::To(gate, GateVerb::Locate(offset, len)) => {
                let gate = gates.get(gate)?;
                let read = gate.locate(*offset, *len)?;
                let generations = gate.generations()?;
                let unit = kept::is_of_one(*offset, *len, &generations)
                    .then(|| gate.locate_unit(*offset))
                    .flatten();
                Some(Ok(GateSuccess::Located(read, unit.map(Box::new))))
            }
            GateRequest::To(..) => None,
            // A gate that was removed meanwhile is counted no more.
            GateRequest::Located(ends, kept) => {
                for counted in ends {
                    if let Some(gate) = gates.get(&counted.gate) {
                        gate.located(&counted.end);
                    }
                }
                for (gate, hits) in kept {
                    if let Some(gate) = gates.get(gate) {
                        gate.kept(hits);
                    }
                }
                Some(Ok(GateSuccess::Done))
            }
        }
    }
}

async fn carry_out<G: Boundary>(gate: Option<G>, verb: GateVerb) -> GateAnswer {
    let gone = || IoError::new(IoErrorKind::Gone, "the volume is withdrawn");
    let gate = gate.ok_or_else(gone)?;
    match verb {
        GateVerb::Locate(offset, len) | GateVerb::Read(offset, len) => {
            return gate.read(offset, len).await.map(GateSuccess::Bytes);
        }
        GateVerb::Extents(offset, len) => {
            let mut runs = Vec::new();
            gate.extents(offset, len, &mut runs).await?;
            return Ok(GateSuccess::Contents(runs));
        }
        GateVerb::Write(offset, data, fua) => gate.write(offset, data, fua).await?,
        GateVerb::Zero(offset, len) => gate.zero(offset, len).await?,
        GateVerb::Discard(offset, len) => gate.discard(offset, len).await?,
        GateVerb::Flush => gate.flush().await?,
        GateVerb::Announce(offset, len) => gate.announce(offset, len).await,
    }
    Ok(GateSuccess::Done)
}

/// A frontend's way to the gates of another shard; clones are the same.
pub struct GateAsker<D: Driver>(Rc<AskingShard<D>>);

struct AskingShard<D: Driver> {
    lane: LaneAsker<GateRequest, GateAnswer>,
    reader: LocatedReader<D>,
    kept: RefCell<KeptUnits>,
    ends: RefCell<Vec<CountedEnd>>,
    /// The hits of each gate, by number, that are not reported.
    hits: RefCell<BTreeMap<u32, Rc<RefCell<GateHits>>>>,
    reports: Rc<ReportsDue>,
}

/// Wakes the task that reports.
#[derive(Default)]
struct ReportsDue {
    is_due: Cell<bool>,
    is_over: Cell<bool>,
    signal: Signal,
}

impl<D: Driver> Drop for AskingShard<D> {
    fn drop(&mut self) {
        self.report(true);
        self.reports.is_over.set(true);
        self.reports.signal.notify();
    }
}

impl<D: Driver> Clone for GateAsker<D> {
    fn clone(&self) -> GateAsker<D> {
        GateAsker(self.0.clone())
    }
}

impl<D: Driver> GateAsker<D> {
    /// Begins to ask by `end`, from the shard of `local`.
    pub fn begin(end: GateEnd, local: &Local<D>) -> GateAsker<D> {
        let env = local.env();
        let asking = Rc::new(AskingShard {
            lane: end.begin(&env),
            reader: LocatedReader::of(local),
            kept: RefCell::default(),
            ends: RefCell::default(),
            hits: RefCell::default(),
            reports: Rc::default(),
        });
        let reports = asking.reports.clone();
        let reporting = report(Rc::downgrade(&asking), reports, env.timer.clone());
        env.spawn.spawn(reporting);
        GateAsker(asking)
    }
}

impl<D: Driver> AskingShard<D> {
    /// Reports hits, and the places of some reads, or of `all`. The rest is due.
    fn report(&self, all: bool) {
        let ends = self.ends.take();
        let mut kept = self.kept.borrow_mut();
        let mut touched = kept.take_touched(all);
        self.reports.is_due.set(kept.has_touched());
        let mut hits = Vec::new();
        for (gate, counted) in &*self.hits.borrow() {
            let mut counted = counted.borrow_mut();
            let touched = touched.remove(gate).unwrap_or_default();
            if !counted.is_empty() || !touched.is_empty() {
                let counted = counted.take();
                hits.push((*gate, KeptHits { touched, ..counted }));
            }
        }
        if !ends.is_empty() || !hits.is_empty() {
            self.lane.send(GateRequest::Located(ends, hits));
        }
    }

    #[inline]
    fn is_due(&self) {
        if !self.reports.is_due.replace(true) {
            self.reports.signal.notify();
        }
    }

    #[inline]
    fn count(&self, end: CountedEnd) {
        self.ends.borrow_mut().push(end);
        self.is_due();
    }

    /// The hits of `gate` that are not reported.
    fn hits_of(&self, gate: u32) -> Rc<RefCell<GateHits>> {
        self.hits.borrow_mut().entry(gate).or_default().clone()
    }
}

/// Reports hits now and then while there are some, until nobody asks any more.
async fn report<D: Driver>(asking: Weak<AskingShard<D>>, reports: Rc<ReportsDue>, timer: Timer) {
    loop {
        let is_awake = || reports.is_over.get() || reports.is_due.get();
        reports.signal.until(is_awake).await;
        if reports.is_over.get() {
            return;
        }
        timer.sleep(REPORT_PERIOD).await;
        if let Some(asking) = asking.upgrade() {
            asking.report(false);
        }
    }
}

/// A gate of another shard; clones are the same.
pub struct RemoteGate<D: Driver>(Rc<RemoteShared<D>>);

struct RemoteShared<D: Driver> {
    asker: GateAsker<D>,
    pass: GatePass,
    hits: Rc<RefCell<GateHits>>,
}

impl<D: Driver> Clone for RemoteGate<D> {
    fn clone(&self) -> RemoteGate<D> {
        RemoteGate(self.0.clone())
    }
}

impl<D: Driver> Drop for RemoteShared<D> {
    fn drop(&mut self) {
        // The gate's own, and the asker's.
        if Rc::strong_count(&self.hits) == 2 {
            self.asker.0.report(true);
            self.asker.0.hits.borrow_mut().remove(&self.pass.gate);
        }
    }
}

impl<D: Driver> RemoteGate<D> {
    /// The gate that `pass` names, on the shard that `asker` asks.
    pub fn new(asker: GateAsker<D>, pass: GatePass) -> RemoteGate<D> {
        let hits = asker.0.hits_of(pass.gate);
        RemoteGate(Rc::new(RemoteShared { asker, pass, hits }))
    }
}

impl<D: Driver> RemoteShared<D> {
    async fn ask(&self, verb: GateVerb) -> GateAnswer {
        let request = GateRequest::To(self.pass.gate, verb);
        let answer = self.asker.0.lane.ask(request).await;
        let ended = || IoError::new(IoErrorKind::Gone, "the shard of the volume has ended");
        answer.unwrap_or_else(|| Err(ended()))
    }

    async fn read_there(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        match self.ask(GateVerb::Read(offset, len)).await? {
            GateSuccess::Bytes(bytes) => Ok(bytes),
            _ => unreachable!("a read has bytes"),
        }
    }

    /// The read, if its places are kept.
    #[inline]
    fn kept_read(&self, offset: u64, len: usize) -> Option<LocatedRead> {
        let (kept, generations) = (&self.asker.0.kept, self.pass.generations.as_ref()?);
        let kept = kept.borrow();
        kept.read(self.pass.gate, (offset, len), generations)
    }
}

impl<D: Driver> LocatedGate for RemoteShared<D> {
    #[inline]
    fn generations(&self) -> &Generations {
        self.pass.generations.as_ref().expect("reads are located")
    }

    #[inline]
    fn count(&self, asked: &AskedRead, end: &LocatedEnd, is_kept: bool) {
        let (asking, gate) = (&*self.asker.0, self.pass.gate);
        if !is_kept || end.fate != LocatedFate::Accepted {
            return asking.count(CountedEnd { gate, end: *end });
        }
        let (offset, len) = (asked.offset, asked.len as usize);
        let blocks = kept::blocks(offset, len);
        self.hits.borrow_mut().add(end, blocks);
        if end.request.is_some() {
            let mut kept = asking.kept.borrow_mut();
            kept.touch(gate, (offset, len), self.generations());
            asking.is_due();
        }
    }

    fn read_otherwise(self: Rc<Self>, asked: AskedRead, taker: Rc<dyn ReadTaker>) {
        let reader = self.asker.0.reader.clone();
        reader.spawn(async move {
            let read = self.read_there(asked.offset, asked.len as usize);
            taker.take_read(&asked, read.await);
        });
    }
}

impl<D: Driver> Boundary for RemoteGate<D> {
    fn geometry(&self) -> &Geometry {
        &self.0.pass.geometry
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        &self.0.pass.flush_errors
    }

    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        let gate = &*self.0;
        let Some(generations) = &gate.pass.generations else {
            return gate.read_there(offset, len).await;
        };
        let (asking, kept) = (&*gate.asker.0, gate.kept_read(offset, len));
        let (begun, is_kept) = (asking.reader.now(), kept.is_some());
        let read = match kept {
            Some(read) => read,
            None => match gate.ask(GateVerb::Locate(offset, len)).await? {
                GateSuccess::Bytes(bytes) => return Ok(bytes),
                GateSuccess::Located(read, unit) => {
                    if let Some(unit) = unit {
                        let mut kept = asking.kept.borrow_mut();
                        kept.keep(gate.pass.gate, *unit, generations);
                    }
                    read
                }
                _ => unreachable!("a read has bytes"),
            },
        };
        let ask = |taker| LocatedAsk {
            asked: AskedRead::of(offset, len),
            begun,
            is_kept,
            gate: self.0.clone(),
            taker,
        };
        asking.reader.read(read, ask).await
    }

    #[inline]
    fn begin_read(&self, asked: AskedRead, taker: Rc<dyn ReadTaker>) -> bool {
        let Some(read) = self.0.kept_read(asked.offset, asked.len as usize) else {
            return false;
        };
        let reader = &self.0.asker.0.reader;
        let ask = LocatedAsk {
            asked,
            begun: reader.now(),
            is_kept: true,
            gate: self.0.clone(),
            taker,
        };
        reader.begin(read, ask);
        true
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        self.0
            .ask(GateVerb::Write(offset, data, fua))
            .await
            .map(drop)
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.0.ask(GateVerb::Zero(offset, len)).await.map(drop)
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.0.ask(GateVerb::Discard(offset, len)).await.map(drop)
    }

    async fn flush(&self) -> IoResult {
        self.0.ask(GateVerb::Flush).await.map(drop)
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        match self.0.ask(GateVerb::Extents(offset, len)).await? {
            GateSuccess::Contents(mut runs) => {
                out.append(&mut runs);
                Ok(())
            }
            _ => unreachable!("contents were asked for"),
        }
    }

    async fn announce(&self, offset: u64, len: u64) {
        // Whether the gate is still there is found by the transfer.
        drop(self.0.ask(GateVerb::Announce(offset, len)).await);
    }
}
