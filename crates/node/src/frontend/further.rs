//! The further shards: frontends of the home shard's volumes run there as well.
//!
//! ```text
//! a frontend of a further shard ─> RemoteGate ─(lane)─> GateTable ─> Gate ─> volume
//! ```
//!
//! The home shard has the volumes, and a lane from each further shard, which all frontends there
//! share.
//!
//! Invariants:
//!     a `LentGate` was dropped ⟹ no request enters its gate by a lane
//!     a further shard has its end of the lane before it has a pass
//!
//! Not here: the parts of a frontend that run there.

use crate::served_volume::VolumeGate;
use block::{Driver, ShardId, Signal};
use futures_util::future::join_all;
use shard::{GateAsker, GatePass, GateTable, Local, RemoteGate, lane};
use std::cell::Cell;
use std::rc::Rc;

/// A shard that serves clients, and no volume.
struct FrontEnd {
    is_over: Cell<bool>,
    signal: Signal,
}

/// The main task of a further shard; ends after [`end_fronts`].
pub fn run_front<R: Driver>(local: Local<R>) -> impl Future<Output = ()> + 'static {
    let end = Rc::new(FrontEnd {
        is_over: Cell::new(false),
        signal: Signal::default(),
    });
    // Before the first message of the home shard.
    local.put(end.clone());
    async move { end.signal.until(|| end.is_over.get()).await }
}

/// Ends the further shards, from the home shard, once nothing is served any more.
pub fn end_fronts<R: Driver>(local: &Local<R>) {
    for id in further_shards(local) {
        local.mesh().post(id, |front| {
            let end = front.get::<FrontEnd>().expect("put at its boot");
            end.is_over.set(true);
            end.signal.notify();
        });
    }
}

fn further_shards<R: Driver>(local: &Local<R>) -> impl Iterator<Item = ShardId> + use<R> {
    let home = local.id();
    let all = (0..local.mesh().shards()).map(ShardId);
    all.filter(move |id| *id != home)
}

/// The further shards, from the home shard.
pub struct FurtherShards<R: Driver> {
    local: Local<R>,
    ids: Vec<ShardId>,
    gates: Rc<GateTable<VolumeGate<R>>>,
}

impl<R: Driver> FurtherShards<R> {
    /// Those of the home shard `local`. The first call begins the lanes.
    pub fn of(local: &Local<R>) -> Rc<FurtherShards<R>> {
        if let Some(begun) = local.get::<FurtherShards<R>>() {
            return begun;
        }
        let gates = Rc::new(GateTable::default());
        let ids: Vec<_> = further_shards(local).collect();
        for id in &ids {
            let (end, server) = lane();
            let serving = Rc::clone(&gates).serve(server, local.env());
            local.env().spawn.spawn(serving);
            local.mesh().post(*id, move |front| {
                front.put(Rc::new(GateAsker::begin(end, front)));
            });
        }
        let begun = Rc::new(FurtherShards {
            local: local.clone(),
            ids,
            gates,
        });
        local.put(begun.clone());
        begun
    }

    /// Their numbers, in order.
    pub fn ids(&self) -> &[ShardId] {
        &self.ids
    }

    /// Lets frontends of the further shards ask `gate`.
    pub fn lend(&self, gate: VolumeGate<R>) -> LentGate<R> {
        LentGate {
            pass: self.gates.add(gate),
            gates: self.gates.clone(),
        }
    }

    /// Runs `work` on each further shard, after all that was posted before; returns when the
    /// futures have ended.
    pub async fn on_each<F>(&self, work: impl FnOnce(Local<R>) -> F + Clone + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let calls = self.ids.iter().map(|id| self.local.call(*id, work.clone()));
        // A shard that has ended serves nothing.
        join_all(calls).await;
    }
}

/// A gate that further shards may ask, until dropped.
pub struct LentGate<R: Driver> {
    gates: Rc<GateTable<VolumeGate<R>>>,
    pass: GatePass,
}

impl<R: Driver> LentGate<R> {
    /// Names the gate for [`lent_gate`].
    pub fn pass(&self) -> GatePass {
        self.pass.clone()
    }
}

impl<R: Driver> Drop for LentGate<R> {
    fn drop(&mut self) {
        self.gates.remove(&self.pass);
    }
}

const _: () = assert!(shard::KEPT_BYTES_MAX as u64 <= control::memory::KEPT_BYTES_MAX);

/// The gate that `pass` names, on the further shard `front`.
pub fn lent_gate<R: Driver>(front: &Local<R>, pass: GatePass) -> RemoteGate<R> {
    let asker = front.get::<GateAsker<R>>();
    let asker = asker.expect("put before the gate was lent");
    RemoteGate::new(GateAsker::clone(&asker), pass)
}
