//! Gates of another shard: frontends run on any shard, and each device stays on its own.
//!
//! ```text
//! a frontend ─> RemoteGate ─(lane)─> GateTable ─> Gate ─> device
//! └────── any shard ─────┘           └──── the shard of the device ───┘
//! ```
//!
//! Invariants:
//!     ranges are locked, and failed flushes recorded, by the gate alone
//!     a gate was taken out of the table ⟹ no request enters the gate by a lane
//!
//! A read's bytes are memory of the device's shard, and a write's are memory of the frontend's. Either
//! goes back to its pool when it is dropped.

use crate::lane::{LaneAsker, LaneEnd, LaneServer};
use block::{
    Boundary, Content, Env, Extent, FlushErrors, Fua, Geometry, IoError, IoErrorKind, IoResult,
    SharedBuf,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A request for a gate.
pub struct GateRequest {
    gate: u32,
    verb: GateVerb,
}

enum GateVerb {
    Read(u64, usize),
    Write(u64, SharedBuf, Fua),
    Zero(u64, u64),
    Discard(u64, u64),
    Flush,
    Extents(u64, u64),
    Announce(u64, u64),
}

/// The success of a request.
pub enum GateSuccess {
    /// The bytes that were read.
    Bytes(SharedBuf),
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
/// A frontend's way to the gates of another shard; clones are the same.
pub type GateAsker = LaneAsker<GateRequest, GateAnswer>;

/// The gates of a shard that others ask.
pub struct GateTable<G> {
    gates: RefCell<HashMap<u32, G>>,
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
}

impl<G: Boundary + Clone> GateTable<G> {
    /// Lets other shards ask `gate`.
    pub fn add(&self, gate: G) -> GatePass {
        let pass = GatePass {
            gate: self.next.replace(self.next.get() + 1),
            geometry: gate.geometry().clone(),
            flush_errors: gate.flush_errors().clone(),
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
        let carry_out = move |request: GateRequest| {
            let gate = self.gates.borrow().get(&request.gate).cloned();
            async move { carry_out(gate, request.verb).await }
        };
        lane.serve(env, carry_out).await;
    }
}

async fn carry_out<G: Boundary>(gate: Option<G>, verb: GateVerb) -> GateAnswer {
    let gone = || IoError::new(IoErrorKind::Gone, "the volume is withdrawn");
    let gate = gate.ok_or_else(gone)?;
    match verb {
        GateVerb::Read(offset, len) => {
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

/// A gate of another shard.
#[derive(Clone)]
pub struct RemoteGate {
    asker: GateAsker,
    pass: GatePass,
}

impl RemoteGate {
    /// The gate that `pass` names, on the shard that `asker` asks.
    pub fn new(asker: GateAsker, pass: GatePass) -> RemoteGate {
        RemoteGate { asker, pass }
    }

    async fn ask(&self, verb: GateVerb) -> GateAnswer {
        let gate = self.pass.gate;
        let answer = self.asker.ask(GateRequest { gate, verb }).await;
        let ended = || IoError::new(IoErrorKind::Gone, "the shard of the volume has ended");
        answer.unwrap_or_else(|| Err(ended()))
    }
}

impl Boundary for RemoteGate {
    fn geometry(&self) -> &Geometry {
        &self.pass.geometry
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        &self.pass.flush_errors
    }

    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        match self.ask(GateVerb::Read(offset, len)).await? {
            GateSuccess::Bytes(bytes) => Ok(bytes),
            _ => unreachable!("a read has bytes"),
        }
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        self.ask(GateVerb::Write(offset, data, fua)).await.map(drop)
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.ask(GateVerb::Zero(offset, len)).await.map(drop)
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.ask(GateVerb::Discard(offset, len)).await.map(drop)
    }

    async fn flush(&self) -> IoResult {
        self.ask(GateVerb::Flush).await.map(drop)
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        match self.ask(GateVerb::Extents(offset, len)).await? {
            GateSuccess::Contents(mut runs) => {
                out.append(&mut runs);
                Ok(())
            }
            _ => unreachable!("contents were asked for"),
        }
    }

    async fn announce(&self, offset: u64, len: u64) {
        // Whether the gate is still there is found by the transfer.
        drop(self.ask(GateVerb::Announce(offset, len)).await);
    }
}
