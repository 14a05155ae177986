//! A boundary that begins reads without knowing their places.

use crate::{
    AskedRead, Boundary, Content, Env, Extent, FlushErrors, Fua, Geometry, IoResult, ReadTaker,
    SharedBuf, TakenRead,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A boundary that begins every other read that it is to begin, for frontends under test.
pub struct BeginningGate<G> {
    gate: Rc<G>,
    env: Env,
    begins: Cell<bool>,
}

impl<G: Boundary> BeginningGate<G> {
    /// Reads by `gate`, in tasks of `env`.
    pub fn new(gate: G, env: Env) -> BeginningGate<G> {
        BeginningGate {
            gate: Rc::new(gate),
            env,
            begins: Cell::new(false),
        }
    }
}

/// Reads as a frontend does: begins the read, if `gate` can.
pub(super) async fn read_begun<G: Boundary>(
    gate: &G,
    offset: u64,
    len: usize,
) -> IoResult<SharedBuf> {
    let taken = Rc::new(TakenRead::default());
    match gate.begin_read(AskedRead::of(offset, len), taken.clone()) {
        true => taken.result().await,
        false => gate.read(offset, len).await,
    }
}

impl<G: Boundary> Boundary for BeginningGate<G> {
    fn geometry(&self) -> &Geometry {
        self.gate.geometry()
    }
    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.gate.flush_errors()
    }
    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        self.gate.read(offset, len).await
    }
    fn begin_read(&self, read: AskedRead, taker: Rc<dyn ReadTaker>) -> bool {
        let begins = !self.begins.replace(!self.begins.get());
        if begins {
            let gate = self.gate.clone();
            self.env.spawn.spawn(async move {
                let result = gate.read(read.offset, read.len as usize).await;
                taker.take_read(&read, result);
            });
        }
        begins
    }
    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        self.gate.write(offset, data, fua).await
    }
    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.gate.zero(offset, len).await
    }
    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.gate.discard(offset, len).await
    }
    async fn flush(&self) -> IoResult {
        self.gate.flush().await
    }
    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.gate.extents(offset, len, out).await
    }
    async fn announce(&self, offset: u64, len: u64) {
        self.gate.announce(offset, len).await;
    }
}
