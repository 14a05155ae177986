//! NBD: a volume is an export, on every shard.
//!
//! ```text
//!                    ┌─> server of the home shard ─────────────┐
//! listener ─> deal ──┤                                         ├─> Gate ─> volume
//!                    └─> server of a further shard ─(lane)─────┘
//! ```
//!
//! The home shard has the listeners and the volumes. Each further shard has a server of its own; its
//! exports ask the home shard. A connection is dealt to the shard that has least to do.
//!
//! Invariants:
//!     an export is offered on every shard; `withdraw` has ended ⟹ on none, and no request of it
//!     enters the gate any more
//!     memory of all requests in flight <= the memory of NBD on the home shard
//!
//! Not here: the lanes (`further`).

use super::further::{FurtherShards, LentGate, lent_gate};
use super::{Frontend, VolumeAbout, nbd_memory};
use crate::Later;
use crate::event::NodeEvent;
use crate::platform::Platform;
use crate::served_volume::{ServedVolume, VolumeFront, VolumeGate};
use block::{Driver, IoResult, Listener, Nanos, ShardId, TargetId};
use control::config::Config;
use control::status::{Nbd, Status};
use futures_util::future::join;
use nbd::serve::{
    CONNECTIONS_MAX, ConnectionSource, ExportOptions, Listening, Log, NbdCounters, NbdServer,
    NbdStats, ServerLimits, Tls, connections_for,
};
use nbd::tls::Worker;
use shard::{Local, LocatingGate, RemoteGate, ShardSocket};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The NBD servers of all shards; their owner has the listeners.
pub struct NbdFrontend<R: Driver> {
    local: Local<R>,
    server: Rc<NbdServer<VolumeFront<R>>>,
    shards: Rc<FurtherShards<R>>,
    /// The gates of exports, by name.
    lent: RefCell<HashMap<String, LentGate<R>>>,
    further: Rc<[FurtherShard]>,
    listeners: Cell<u64>,
}

/// A further shard, from the home shard.
struct FurtherShard {
    id: ShardId,
    counters: Arc<NbdCounters>,
    /// Streams dealt to the shard so far.
    dealt: Cell<u64>,
}

/// The state of a further shard, on that shard.
struct FrontShard<R: Driver> {
    local: Local<R>,
    server: Rc<NbdServer<RemoteGate<R>>>,
    /// The listeners of the home shard, by number.
    sources: RefCell<HashMap<u64, ConnectionSource>>,
}

/// The log, for further shards.
struct HomeLog(Log);

/// A listener that is served.
pub struct ServedListener {
    number: u64,
    listening: Rc<Listening>,
}

impl ServedListener {
    /// Offers `tls` to later clients.
    pub fn renew(&self, tls: Option<Tls>) {
        self.listening.renew(tls);
    }
}

/// The limits of the server of one of `shards` shards.
fn share(whole: ServerLimits, shards: u32) -> ServerLimits {
    let memory = whole.memory_bytes_max / shards as usize;
    let fit = match shards {
        1 => whole.connections_max,
        _ => connections_for(memory as u64),
    };
    let share = |of: u32| of.div_ceil(shards).min(fit).max(1);
    ServerLimits {
        connections_max: share(whole.connections_max),
        handshakes_max: share(whole.handshakes_max),
        memory_bytes_max: memory,
        ..whole
    }
}

impl<R: Driver> NbdFrontend<R> {
    /// Makes the servers within the limits of `config`.
    pub fn new<P: Platform<Driver = R>>(config: &Config, platform: &P) -> IoResult<NbdFrontend<R>> {
        let local = platform.local().clone();
        let env = local.env();
        let memory = nbd_memory(config, &env);
        let connections = config.daemon.connections.as_ref();
        let connections = connections.map(|number| number.value);
        let connections =
            connections.unwrap_or_else(|| CONNECTIONS_MAX.min(connections_for(memory as u64)));
        let limits = ServerLimits {
            connections_max: connections,
            handshakes_max: connections,
            requests_max: config.daemon.requests.value,
            memory_bytes_max: memory,
            ..ServerLimits::default()
        };
        limits.check(env.pool.total_bytes())?;
        let limits = share(limits, local.mesh().shards());
        let events = platform.clone();
        let log: Log = Rc::new(move |line: &str| {
            let what = line.to_owned();
            events.event(NodeEvent::Frontend { volume: None, what });
        });
        local.put(Rc::new(HomeLog(log.clone())));
        let shards = FurtherShards::of(&local);
        let further = shards.ids().iter();
        let further = further.map(|id| begin_further(&local, *id, limits));
        Ok(NbdFrontend {
            server: NbdServer::new(env, limits, None, log)?,
            further: further.collect(),
            shards,
            lent: RefCell::default(),
            listeners: Cell::new(0),
            local,
        })
    }

    /// Runs the steps of TLS handshakes on the worker that `make` makes on each shard.
    pub fn shake_hands_by(&self, make: impl Fn() -> Worker + Clone + Send + 'static) {
        self.server.shake_hands_by(make());
        for shard in self.further.iter() {
            let make = make.clone();
            self.post(shard, move |front| front.server.shake_hands_by(make()));
        }
    }

    /// Serves the connections of `listener`, with `tls`.
    pub fn serve<L>(&self, listener: L, tls: Option<Tls>) -> ServedListener
    where
        L: Listener<Stream = ShardSocket<R>>,
    {
        let number = self.listeners.replace(self.listeners.get() + 1);
        let listening = Listening::new(tls);
        let dealt = DealtListener {
            listener,
            number,
            listening: listening.clone(),
            local: self.local.clone(),
            home: self.server.counters(),
            further: self.further.clone(),
        };
        let (server, shown) = (self.server.clone(), listening.clone());
        let serving = async move { server.serve_with(dealt, shown).await };
        self.local.env().spawn.spawn(serving);
        ServedListener { number, listening }
    }

    /// Stops accepting at `listener`; its earlier connections stay.
    pub fn close_listener(&self, listener: &ServedListener) {
        self.server.close(&listener.listening);
        let number = listener.number;
        for shard in self.further.iter() {
            self.post(shard, move |front| {
                let source = front.sources.borrow_mut().remove(&number);
                drop(source);
            });
        }
    }

    /// True if the volume `name` is an export.
    pub fn offers(&self, name: &str) -> bool {
        self.server.offers(name)
    }

    /// Runs `work` on a further shard, after all that was posted before.
    fn post(&self, shard: &FurtherShard, work: impl FnOnce(&FrontShard<R>) + Send + 'static) {
        self.local.mesh().post(shard.id, move |local| {
            work(
                &local
                    .get::<FrontShard<R>>()
                    .expect("begun with the frontend"),
            );
        });
    }

    /// Runs `work` on each further shard, as [`FurtherShards::on_each`] does.
    async fn on_further<F>(
        &self,
        work: impl FnOnce(Rc<FrontShard<R>>) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let work = |local: Local<R>| {
            work(
                local
                    .get::<FrontShard<R>>()
                    .expect("begun with the frontend"),
            )
        };
        self.shards.on_each(work).await;
    }
}

/// Begins the server of a further shard.
fn begin_further<R: Driver>(local: &Local<R>, id: ShardId, limits: ServerLimits) -> FurtherShard {
    let counters = Arc::<NbdCounters>::default();
    let (counted, home) = (counters.clone(), local.id());
    local.mesh().post(id, move |front| {
        let env = front.env();
        let mesh = front.mesh().clone();
        let log: Log = Rc::new(move |line: &str| {
            let line = line.to_owned();
            mesh.post(home, move |home| {
                (home.get::<HomeLog>().expect("put before").0)(&line);
            });
        });
        let limits = ServerLimits {
            memory_bytes_max: limits.memory_bytes_max.min(env.pool.total_bytes() / 2),
            ..limits
        };
        let server = NbdServer::counted(env.clone(), limits, None, log, counted);
        front.put(Rc::new(FrontShard {
            local: front.clone(),
            server: server.expect("the limits hold on the home shard, in as much memory"),
            sources: RefCell::default(),
        }));
    });
    FurtherShard {
        id,
        counters,
        dealt: Cell::new(0),
    }
}

/// Connections and handshakes of a server, from any shard.
fn connections(stats: &NbdStats) -> u64 {
    u64::from(stats.connections) + u64::from(stats.handshakes)
}

impl FurtherShard {
    /// Connections of the shard, those on their way included.
    fn load(&self) -> u64 {
        let stats = self.counters.stats();
        connections(&stats) + self.dealt.get().saturating_sub(stats.accepted)
    }
}

impl<R: Driver> FrontShard<R> {
    fn admit(&self, local: &Local<R>, target: TargetId, listener: u64, tls: Option<Tls>) {
        let mut sources = self.sources.borrow_mut();
        let source = sources.entry(listener);
        let source = source.or_insert_with(|| self.server.source());
        self.server.admit_of(source, local.stream(target), tls);
    }
}

/// A listener of the home shard that deals connections to further shards.
struct DealtListener<R: Driver, L> {
    listener: L,
    number: u64,
    listening: Rc<Listening>,
    local: Local<R>,
    home: Arc<NbdCounters>,
    further: Rc<[FurtherShard]>,
}

impl<R: Driver, L> DealtListener<R, L> {
    /// The further shard that the next connection is dealt to, if not to the home shard.
    ///
    /// A hit of a further shard costs the home shard about a quarter of its own
    /// (docs/performance.md, "NBD on another shard").
    fn next(&self) -> Option<&FurtherShard> {
        let least = self.further.iter().min_by_key(|shard| shard.load())?;
        let others: u64 = self.further.iter().map(FurtherShard::load).sum();
        let home = 4 * connections(&self.home.stats()) + others;
        (4 * least.load() < home).then_some(least)
    }
}

impl<R: Driver, L: Listener<Stream = ShardSocket<R>>> Listener for DealtListener<R, L> {
    type Stream = ShardSocket<R>;

    async fn accept(&self) -> IoResult<ShardSocket<R>> {
        loop {
            let stream = self.listener.accept().await?;
            let Some(shard) = self.next() else {
                return Ok(stream);
            };
            let (number, tls) = (self.number, self.listening.tls());
            let target = stream.release();
            shard.dealt.set(shard.dealt.get() + 1);
            self.local.mesh().post(shard.id, move |local| {
                let front = local
                    .get::<FrontShard<R>>()
                    .expect("begun with the frontend");
                front.admit(local, target, number, tls);
            });
        }
    }

    fn close(&self) {
        self.listener.close();
    }
}

impl<R: Driver> Frontend<ServedVolume<R>> for NbdFrontend<R> {
    fn add(&self, name: &str, gate: VolumeGate<R>, about: &VolumeAbout) -> IoResult {
        if !about.frontends.nbd {
            return Ok(());
        }
        let options = ExportOptions {
            description: about.description.clone(),
            read_only: about.read_only,
        };
        let front = LocatingGate::new(gate.clone(), &self.local);
        self.server.add(name, front, &options)?;
        if self.further.is_empty() {
            return Ok(());
        }
        let clients = self.server.clients(name).expect("added just now");
        let lent = self.shards.lend(gate);
        for shard in self.further.iter() {
            let (name, options) = (name.to_owned(), options.clone());
            let (pass, clients) = (lent.pass(), clients.clone());
            self.post(shard, move |front| {
                let gate = lent_gate(&front.local, pass);
                let added = front.server.add_beside(&name, gate, &options, clients);
                added.expect("the home shard has the same exports");
            });
        }
        self.lent.borrow_mut().insert(name.to_owned(), lent);
        Ok(())
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a VolumeGate<R>,
        about: &'a VolumeAbout,
        grace: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            match about.frontends.nbd {
                true if self.server.offers(name) => Ok(()),
                true => self.add(name, gate.clone(), about),
                false => self.withdraw(name, grace).await,
            }
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            if !self.server.offers(name) {
                return Ok(());
            }
            let lent = self.lent.borrow_mut().remove(name);
            let its = name.to_owned();
            let further = self.on_further(move |front| {
                // At once: the name may be given to another volume by the next message.
                let withdrawn = front.server.withdraw(&its);
                let withdrawn = withdrawn.expect("the home shard has the same exports");
                async move { front.server.wait_for(withdrawn, grace).await }
            });
            let (removed, ()) = join(self.server.remove(name, grace), further).await;
            drop(lent);
            removed
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            let further = self.on_further(move |front| async move {
                front.server.shut_down(grace).await;
            });
            join(self.server.shut_down(grace), further).await;
            self.lent.take();
        })
    }

    fn stats(&self, status: &mut Status) {
        let mut stats = self.server.stats();
        for shard in self.further.iter() {
            shard.counters.add_to(&mut stats);
        }
        status.nbd = Nbd {
            listeners: Vec::new(),
            connections: stats.connections,
            handshakes: stats.handshakes,
            connections_failed: stats.failed,
            connections_refused: stats.refused,
            requests: stats.reads + stats.writes + stats.flushes + stats.others,
            errors: stats.errors,
        };
    }
}
