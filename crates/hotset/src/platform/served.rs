//! A volume's ports on the shards: each is served by one shard, through the volume's gate or a
//! remote gate.
//!
//! Invariants:
//!     the home shard has the first port: the ring of a ublk queue, which has every write of the
//!     daemon in flight, holds the device open until the last of them has ended
//!     the ports are closed ⟹ no further shard asks for the volume

use block::{IoError, IoErrorKind, IoResult, Nanos, Port};
use futures_channel::oneshot;
use futures_util::future::{join, join_all};
use node::{FurtherShards, LentGate, VolumeFront, VolumeGate, lent_gate};
use port::{Options, PortServer};
use shard::{GatePass, Local, LocatingGate, RemoteGate};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use uring::UringDriver;

type Home<P> = Rc<PortServer<P, VolumeFront<UringDriver>>>;
type Further<P> = Rc<PortServer<P, RemoteGate<UringDriver>>>;

/// The ports that serve one volume, on all shards.
pub struct ServedPorts<P> {
    local: Local<UringDriver>,
    shards: Rc<FurtherShards<UringDriver>>,
    home: Home<P>,
    pass: GatePass,
    lent: RefCell<Option<LentGate<UringDriver>>>,
}

/// The ports of a further shard, on that shard, by the number of their gate.
struct FurtherPorts<P>(RefCell<BTreeMap<u32, Further<P>>>);

impl<P: Port> FurtherPorts<P> {
    fn of(front: &Local<UringDriver>) -> Rc<FurtherPorts<P>> {
        front.get().unwrap_or_else(|| {
            let ports = Rc::new(FurtherPorts(RefCell::default()));
            front.put(ports.clone());
            ports
        })
    }
}

/// Begins to serve a port on the further shard `front`.
fn begin_further<P: Port>(
    front: &Local<UringDriver>,
    make: impl FnOnce(&Local<UringDriver>) -> IoResult<P>,
    pass: GatePass,
    options: Options,
) -> IoResult {
    let (port, env) = (make(front)?, front.env());
    let options = Options {
        memory_bytes_max: options.memory_bytes_max.min(env.pool.total_bytes() / 4),
        ..options
    };
    let number = pass.number();
    let server = PortServer::begin(port, lent_gate(front, pass), options, env);
    FurtherPorts::of(front)
        .0
        .borrow_mut()
        .insert(number, server);
    Ok(())
}

impl<P: Port> ServedPorts<P> {
    /// Begins to serve `gate` by ports, which `makes` make: the first on the home shard `local`, the
    /// others on the further shards, in order. The ports divide the memory of `options`. The future
    /// ends when all have begun.
    ///
    /// `Err`: the first was not made; or by the future, another, after which all are to be closed.
    pub fn begin<M>(
        local: &Local<UringDriver>,
        gate: VolumeGate<UringDriver>,
        options: Options,
        makes: Vec<M>,
    ) -> IoResult<(ServedPorts<P>, impl Future<Output = IoResult> + use<P, M>)>
    where
        M: FnOnce(&Local<UringDriver>) -> IoResult<P> + Send + 'static,
    {
        let shards = FurtherShards::of(local);
        let options = Options {
            memory_bytes_max: options.memory_bytes_max / makes.len(),
            ..options
        };
        let mut makes = makes.into_iter();
        let first = makes.next().expect("a port for the home shard")(local)?;
        let front = LocatingGate::new(gate.clone(), local);
        let lent = shards.lend(gate);
        let pass = lent.pass();
        let mut begun = Vec::new();
        for (id, make) in shards.ids().iter().zip(makes) {
            let (pass, (sender, receiver)) = (pass.clone(), oneshot::channel());
            local.mesh().post(*id, move |front| {
                // Without a receiver nothing can fail.
                let _ = sender.send(begin_further(front, make, pass, options));
            });
            begun.push(receiver);
        }
        let ports = ServedPorts {
            local: local.clone(),
            shards,
            home: PortServer::begin(first, front, options, local.env()),
            pass,
            lent: RefCell::new(Some(lent)),
        };
        let all = async move {
            let gone = |_| IoError::new(IoErrorKind::Gone, "a shard has ended");
            let mut begun = join_all(begun).await.into_iter();
            begun.try_for_each(|begun| begun.map_err(gone)?)
        };
        Ok((ports, all))
    }

    /// Runs `work` on each further shard that has a port.
    async fn on_further<F>(&self, work: impl FnOnce(Further<P>) -> F + Clone + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let number = self.pass.number();
        let on_each = move |front| {
            let server = FurtherPorts::of(&front).0.borrow().get(&number).cloned();
            async move {
                if let Some(server) = server {
                    work(server).await;
                }
            }
        };
        self.shards.on_each(on_each).await;
    }

    /// Waits until the ports have ended.
    pub async fn ended(&self) {
        let further = self.on_further(|server| async move { server.ended().await });
        join(self.home.ended(), further).await;
    }

    /// Stops the servers of all ports, as [`PortServer::stop`] does.
    pub async fn stop(&self, grace: Nanos) {
        let further = self.on_further(move |server| async move {
            server.stop(grace).await;
        });
        join(self.home.stop(grace), further).await;
    }

    /// Ends the ports.
    pub fn close(&self) {
        self.home.close();
        let number = self.pass.number();
        for id in self.shards.ids() {
            self.local.mesh().post(*id, move |front| {
                let server = FurtherPorts::<P>::of(front).0.borrow_mut().remove(&number);
                if let Some(server) = server {
                    server.close();
                }
            });
        }
        self.lent.take();
    }
}
