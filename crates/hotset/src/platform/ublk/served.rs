//! A device that is served: each of its queues by one shard.
//!
//! Invariants:
//!     the home shard has queue 0: its ring, which has every write of the daemon in flight, holds
//!     the device open until the last of them has ended
//!     a device is closed ⟹ no further shard asks for its volume

use block::{IoResult, Nanos, ShardId, TargetId};
use futures_util::future::{join, join_all};
use node::{FurtherShards, LentGate, VolumeFront, VolumeGate, lent_gate};
use port::{Options, PortServer};
use shard::{GatePass, Local, LocatingGate, RemoteGate, ShardPort};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use ublk::DeviceInfo;
use uring::{Uring, UringDriver};

type UblkServer<G> = Rc<PortServer<ShardPort<UringDriver>, G>>;

/// A device that is served.
pub struct ServedDevice {
    local: Local<UringDriver>,
    home: UblkServer<VolumeFront<UringDriver>>,
    /// The further shards that have queues, each with its port.
    further: Vec<(ShardId, TargetId)>,
    lent: RefCell<Option<LentGate<UringDriver>>>,
}

/// The ports of a further shard, on that shard.
#[derive(Default)]
struct FurtherPorts(RefCell<BTreeMap<TargetId, UblkServer<RemoteGate<UringDriver>>>>);

impl FurtherPorts {
    fn of(front: &Local<UringDriver>) -> Rc<FurtherPorts> {
        front.get().unwrap_or_else(|| {
            let ports = Rc::<FurtherPorts>::default();
            front.put(ports.clone());
            ports
        })
    }
}

/// Begins to serve the port `target` on the further shard `front`.
fn begin_further(
    front: &Local<UringDriver>,
    target: TargetId,
    pass: GatePass,
    options: Options,
) -> IoResult {
    let (port, env) = (front.port(target)?, front.env());
    let options = Options {
        memory_bytes_max: options.memory_bytes_max.min(env.pool.total_bytes() / 4),
        ..options
    };
    let server = PortServer::begin(port, lent_gate(front, pass), options, env);
    let ports = FurtherPorts::of(front);
    ports.0.borrow_mut().insert(target, server);
    Ok(())
}

impl ServedDevice {
    /// Begins to serve the device that `info` describes by `gate`, from the home shard `local`.
    pub async fn begin(
        local: &Local<UringDriver>,
        host: &Uring,
        info: &DeviceInfo,
        gate: VolumeGate<UringDriver>,
        options: Options,
    ) -> IoResult<ServedDevice> {
        let shards = FurtherShards::of(local);
        let ports = host.open_ports(info, 1 + shards.ids().len() as u16)?;
        let options = Options {
            memory_bytes_max: options.memory_bytes_max / ports.len(),
            ..options
        };
        let home = local.port(ports[0])?;
        let front = LocatingGate::new(gate.clone(), local);
        let lent = shards.lend(gate);
        let pass = lent.pass();
        let further = shards.ids().iter().copied().zip(ports[1..].iter().copied());
        let device = ServedDevice {
            local: local.clone(),
            home: PortServer::begin(home, front, options, local.env()),
            further: further.collect(),
            lent: RefCell::new(Some(lent)),
        };
        let calls = device.further.iter().map(|(id, target)| {
            let (target, pass) = (*target, pass.clone());
            let begin = move |front| async move { begin_further(&front, target, pass, options) };
            local.call(*id, begin)
        });
        let mut begun = join_all(calls).await.into_iter();
        let begun = begun.try_for_each(Result::flatten);
        begun.inspect_err(|_| device.close())?;
        Ok(device)
    }

    /// Runs `work` on each further shard that has queues of the device.
    async fn on_further<F>(
        &self,
        work: impl FnOnce(UblkServer<RemoteGate<UringDriver>>) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let calls = self.further.iter().map(|(id, target)| {
            let (target, work) = (*target, work.clone());
            self.local.call(*id, move |front| {
                let server = FurtherPorts::of(&front).0.borrow().get(&target).cloned();
                async move {
                    if let Some(server) = server {
                        work(server).await;
                    }
                }
            })
        });
        // A shard that has ended serves nothing.
        join_all(calls).await;
    }

    /// Waits until the device has ended.
    pub async fn ended(&self) {
        let further = self.on_further(|server| async move { server.ended().await });
        join(self.home.ended(), further).await;
    }

    /// Stops the servers of all queues, as [`PortServer::stop`] does.
    pub async fn stop(&self, grace: Nanos) {
        let further = self.on_further(move |server| async move {
            server.stop(grace).await;
        });
        join(self.home.stop(grace), further).await;
    }

    /// Ends the ports.
    pub fn close(&self) {
        self.home.close();
        for (id, target) in self.further.iter().copied() {
            self.local.mesh().post(id, move |front| {
                let server = FurtherPorts::of(front).0.borrow_mut().remove(&target);
                if let Some(server) = server {
                    server.close();
                }
            });
        }
        self.lent.take();
    }
}
