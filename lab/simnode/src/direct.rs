//! A frontend for clients that are tasks of the node's own shard.
//!
//! ```text
//!             ┌─────── LocatingGate ──────────────────────┬─> Gate
//! client ─> turns                                         │
//!             └─> RemoteGate ─(lane)─> GateTable ─────────┘
//! ```
//!
//! Invariants:
//!     a client's requests go through the gate of the volume, as in any frontend
//!     of two reads, or writes, in turn one goes the way of a further shard
//!
//! The further shard is the node's own, so that all runs on one simulated shard.

use block::{
    Boundary, Content, Env, Extent, FlushErrors, Fua, Geometry, IoError, IoErrorKind, IoResult,
    Nanos, SharedBuf,
};
use control::status::Status;
use node::{Frontend, Later, ServedVolume, VolumeAbout, VolumeFront, VolumeGate};
use shard::{GateAsker, GatePass, GateTable, Local, LocatingGate, RemoteGate, lane};
use sim::SimDriver;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Interval of looking for the end of a client.
const LOOK: Nanos = Nanos::from_millis(1);

/// The gate of a client.
pub struct DirectGate {
    here: VolumeFront<SimDriver>,
    further: RemoteGate<SimDriver>,
    is_further: Cell<bool>,
}

impl DirectGate {
    /// True if this request goes the way of a further shard.
    fn takes_turn(&self) -> bool {
        self.is_further.replace(!self.is_further.get())
    }
}

impl Boundary for DirectGate {
    fn geometry(&self) -> &Geometry {
        self.here.geometry()
    }

    fn flush_errors(&self) -> &Arc<FlushErrors> {
        self.here.flush_errors()
    }

    async fn read(&self, offset: u64, len: usize) -> IoResult<SharedBuf> {
        match self.takes_turn() {
            true => self.further.read(offset, len).await,
            false => self.here.read(offset, len).await,
        }
    }

    async fn write(&self, offset: u64, data: SharedBuf, fua: Fua) -> IoResult {
        match self.takes_turn() {
            true => self.further.write(offset, data, fua).await,
            false => self.here.write(offset, data, fua).await,
        }
    }

    async fn zero(&self, offset: u64, len: u64) -> IoResult {
        self.further.zero(offset, len).await
    }

    async fn discard(&self, offset: u64, len: u64) -> IoResult {
        self.here.discard(offset, len).await
    }

    async fn flush(&self) -> IoResult {
        self.further.flush().await
    }

    async fn extents(&self, offset: u64, len: u64, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.here.extents(offset, len, out).await
    }

    async fn announce(&self, offset: u64, len: u64) {
        self.here.announce(offset, len).await;
    }
}

/// A volume that is offered.
struct Offered {
    gate: DirectGate,
    pass: GatePass,
    clients: Cell<u32>,
    withdrawn: Cell<bool>,
}

/// Offers volumes by their names.
pub struct Direct {
    local: Local<SimDriver>,
    env: Env,
    table: Rc<GateTable<VolumeGate<SimDriver>>>,
    asker: GateAsker<SimDriver>,
    offered: RefCell<BTreeMap<String, Rc<Offered>>>,
}

/// A client of a volume, until dropped.
pub struct DirectClient(Rc<Offered>);

impl DirectClient {
    /// The gate of the client's reads and writes.
    pub fn gate(&self) -> &DirectGate {
        &self.0.gate
    }

    /// The volume, beside all gates.
    pub fn volume(&self) -> &ServedVolume<SimDriver> {
        self.0.gate.here.gate().device()
    }

    /// True if the client is to go.
    pub fn is_withdrawn(&self) -> bool {
        self.0.withdrawn.get()
    }
}

impl Drop for DirectClient {
    fn drop(&mut self) {
        self.0.clients.set(self.0.clients.get() - 1);
    }
}

impl Direct {
    /// A frontend that offers nothing yet.
    pub fn new(local: &Local<SimDriver>) -> Rc<Direct> {
        let (env, table) = (local.env(), Rc::new(GateTable::default()));
        let (end, server) = lane();
        env.spawn.spawn(table.clone().serve(server, env.clone()));
        Rc::new(Direct {
            local: local.clone(),
            env,
            table,
            asker: GateAsker::begin(end, local),
            offered: RefCell::default(),
        })
    }

    /// A client of the volume `name`, if offered.
    pub fn client(&self, name: &str) -> Option<DirectClient> {
        let offered = self.offered.borrow().get(name)?.clone();
        offered.clients.set(offered.clients.get() + 1);
        Some(DirectClient(offered))
    }

    async fn clients_gone(&self, offered: &Offered, grace: Nanos) {
        let end = self.env.timer.now() + grace;
        offered.withdrawn.set(true);
        while offered.clients.get() > 0 && self.env.timer.now() < end {
            self.env.timer.sleep(LOOK).await;
        }
        self.table.remove(&offered.pass);
    }
}

impl Frontend<ServedVolume<SimDriver>> for Direct {
    fn add(&self, name: &str, gate: VolumeGate<SimDriver>, _: &VolumeAbout) -> IoResult {
        let pass = self.table.add(gate.clone());
        let offered = Rc::new(Offered {
            gate: DirectGate {
                here: LocatingGate::new(gate, &self.local),
                further: RemoteGate::new(self.asker.clone(), pass.clone()),
                is_further: Cell::new(false),
            },
            pass,
            clients: Cell::new(0),
            withdrawn: Cell::new(false),
        });
        match self.offered.borrow_mut().insert(name.into(), offered) {
            None => Ok(()),
            Some(_) => {
                Err(IoError::new(IoErrorKind::Busy, "is offered already").on(name.to_owned()))
            }
        }
    }

    fn change<'a>(
        &'a self,
        _: &'a str,
        _: &'a VolumeGate<SimDriver>,
        _: &'a VolumeAbout,
        _: Nanos,
    ) -> Later<'a, IoResult> {
        // A change of the other frontends leaves the clients of this one unchanged.
        Box::pin(async { Ok(()) })
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            let offered = self.offered.borrow_mut().remove(name);
            let none = || IoError::new(IoErrorKind::Invalid, "is not offered").on(name.to_owned());
            self.clients_gone(&*offered.ok_or_else(none)?, grace).await;
            Ok(())
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            let all = self.offered.take();
            all.values().for_each(|offered| offered.withdrawn.set(true));
            for offered in all.values() {
                self.clients_gone(offered, grace).await;
            }
        })
    }

    fn stats(&self, _: &mut Status) {}
}
