//! The server: its exports, and the state shared by its connections.

use super::credit::Credits;
use super::flushes::Flushes;
use super::journal::{ConnectionJournal, ConnectionTopic, Log};
use super::limits::ServerLimits;
use super::link::{LinkSource, ServerLink};
use super::quota::StreamSources;
use super::stats::{NbdCounters, NbdStats};
use crate::protocol::export::{BlockSizes, ExportFeatures, ExportInfo};
use crate::protocol::server_handshake::TlsPolicy;
use crate::tls::{Acceptor, Worker};
use block::Signal;
use block::{Boundary, Env, IoError, IoErrorKind, IoResult, Nanos, SECTOR_BYTES};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Interval of the checks for peers that have closed their ends unseen.
const PEERS_PERIOD: Nanos = Nanos::from_secs(1);
/// As [`PEERS_PERIOD`], while no request holds up a reader and the shard has no other work.
const PEERS_IDLE_PERIOD: Nanos = Nanos::from_secs(10);

/// TLS of a server, for clients that ask for it or for all.
pub type Tls = (Acceptor, TlsPolicy);

pub(super) struct Export<G> {
    pub(super) gate: G,
    pub(super) flushes: Arc<Flushes>,
    pub(super) connections: Cell<u32>,
    pub(super) withdrawn: Rc<Cell<bool>>,
}

/// Exports, beside how clients see them; equal in length and order.
pub(super) struct Exports<G> {
    pub(super) infos: Vec<ExportInfo>,
    /// The names of `infos`: each report looks up every volume.
    names: HashSet<String>,
    pub(super) exports: Vec<Rc<Export<G>>>,
}

/// Options of an export, as shown to clients.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// A line for people.
    pub description: String,
    /// Refuse all operations that write.
    pub read_only: bool,
}

/// The clients of an export, for servers of the same device on several shards: a failed flush is
/// reported to each client, whichever shard serves it next.
#[derive(Clone)]
pub struct ExportClients(Arc<Flushes>);

/// An export that no client can choose any more, and that may have connections.
pub struct WithdrawnExport<G>(Rc<Export<G>>);

/// A server of exports of one kind of boundary.
pub struct NbdServer<G: Boundary> {
    pub(super) env: Env,
    pub(super) limits: ServerLimits,
    pub(super) tls: Option<Tls>,
    /// Does the steps of TLS handshakes.
    pub(super) worker: RefCell<Option<Worker>>,
    pub(super) exports: RefCell<Exports<G>>,
    pub(super) sources: Rc<StreamSources<ServerLink>>,
    /// The listener of streams that come by no other.
    pub(super) side_source: RefCell<Weak<LinkSource>>,
    pub(super) credits: Rc<Credits>,
    pub(super) links: RefCell<Vec<Rc<ServerLink>>>,
    pub(super) stopping: Cell<bool>,
    /// Notified when a condition that connections wait for, beside their peers, has changed.
    pub(super) stop: Signal,
    /// A connection has ended.
    pub(super) ended: Signal,
    pub(super) counters: Arc<NbdCounters>,
    pub(super) journal: ConnectionJournal,
}

impl<G: Boundary> NbdServer<G> {
    /// A server without exports, with TLS for clients that ask or for all.
    ///
    /// `Err(Invalid)`: the limits do not fit the memory, or each other.
    pub fn new(
        env: Env,
        limits: ServerLimits,
        tls: Option<Tls>,
        log: Log,
    ) -> IoResult<Rc<NbdServer<G>>> {
        NbdServer::counted(env, limits, tls, log, Arc::default())
    }

    /// A server as [`NbdServer::new`] makes it, which counts in `counters`, that are all zero.
    pub fn counted(
        env: Env,
        limits: ServerLimits,
        tls: Option<Tls>,
        log: Log,
        counters: Arc<NbdCounters>,
    ) -> IoResult<Rc<NbdServer<G>>> {
        limits.check(env.pool.total_bytes())?;
        let server = Rc::new(NbdServer {
            limits,
            tls,
            worker: RefCell::default(),
            exports: RefCell::new(Exports {
                infos: Vec::new(),
                names: HashSet::new(),
                exports: Vec::new(),
            }),
            sources: StreamSources::new(limits.connections_max, limits.handshakes_max),
            side_source: RefCell::default(),
            credits: Credits::new(&limits),
            links: RefCell::default(),
            stopping: Cell::new(false),
            stop: Signal::default(),
            ended: Signal::default(),
            counters,
            journal: ConnectionJournal::new(log, env.timer.clone()),
            env,
        });
        let (env, weak) = (&server.env, Rc::downgrade(&server));
        env.spawn.spawn(watch_stalls(weak.clone(), env.clone()));
        env.spawn.spawn(watch_peers(weak, env.clone()));
        Ok(server)
    }

    /// Runs the steps of TLS handshakes on `worker` from now on.
    pub fn shake_hands_by(&self, worker: Worker) {
        self.worker.replace(Some(worker));
    }

    /// Offers the device behind `gate` under `name`; the empty name is the default export.
    ///
    /// `Err(Invalid)`: NBD cannot carry a string. `Err(Busy)`: the name is taken.
    pub fn add(&self, name: &str, gate: G, options: &ExportOptions) -> IoResult {
        let clients = ExportClients(Arc::new(Flushes::new(gate.flush_errors().clone())));
        self.add_beside(name, gate, options, clients)
    }

    /// Offers a device as [`NbdServer::add`] does, with `clients` of another shard's server.
    pub fn add_beside(
        &self,
        name: &str,
        gate: G,
        options: &ExportOptions,
        clients: ExportClients,
    ) -> IoResult {
        let geometry = gate.geometry();
        let features = ExportFeatures {
            read_only: options.read_only,
            rotational: geometry.rotational,
            trim: true,
            multi_conn: true,
        };
        let payload_max = self.limits.payload_bytes_max & !(SECTOR_BYTES as u32 - 1);
        let optimal = geometry.optimal.bytes().clamp(4096, 1 << 20) as u32;
        let block = BlockSizes {
            min: 1,
            min_offered: match geometry.native.bytes() {
                SECTOR_BYTES => 1,
                bytes => bytes as u32,
            },
            preferred: optimal.next_power_of_two().min(64 << 10),
            payload_max,
        };
        let size = geometry.sectors.bytes();
        let info = ExportInfo::new(name, &options.description, size, features, block)
            .map_err(|e| IoError::new(IoErrorKind::Invalid, e.to_string()))?;
        if self.offers(name) {
            let what = format!("an NBD export named {name:?} exists already");
            return Err(IoError::new(IoErrorKind::Busy, what));
        }
        let mut exports = self.exports.borrow_mut();
        exports.infos.push(info);
        exports.names.insert(name.to_owned());
        exports.exports.push(Rc::new(Export {
            gate,
            flushes: clients.0,
            connections: Cell::new(0),
            withdrawn: Rc::default(),
        }));
        Ok(())
    }

    /// The clients of the export `name`, if there is one.
    pub fn clients(&self, name: &str) -> Option<ExportClients> {
        let exports = self.exports.borrow();
        let at = exports.infos.iter().position(|e| e.name() == name)?;
        Some(ExportClients(exports.exports[at].flushes.clone()))
    }

    /// True if there is an export of this name.
    pub fn offers(&self, name: &str) -> bool {
        self.exports.borrow().names.contains(name)
    }

    /// Withdraws an export: its connections finish the requests in flight and close; those that do
    /// not within `grace` are cut off.
    ///
    /// `Err(Invalid)`: there is no such export.
    pub async fn remove(&self, name: &str, grace: Nanos) -> IoResult {
        let withdrawn = self.withdraw(name)?;
        self.wait_for(withdrawn, grace).await;
        Ok(())
    }

    /// Begins [`NbdServer::remove`]: the name is free at once.
    pub fn withdraw(&self, name: &str) -> IoResult<WithdrawnExport<G>> {
        let export = {
            let mut exports = self.exports.borrow_mut();
            let Some(i) = exports.infos.iter().position(|e| e.name() == name) else {
                let what = format!("no NBD export is named {name:?}");
                return Err(IoError::new(IoErrorKind::Invalid, what));
            };
            exports.infos.remove(i);
            exports.names.remove(name);
            exports.exports.remove(i)
        };
        export.withdrawn.set(true);
        self.stop.notify();
        Ok(WithdrawnExport(export))
    }

    /// Waits for the connections of a withdrawn export, and cuts off those that do not end within
    /// `grace`.
    pub async fn wait_for(&self, withdrawn: WithdrawnExport<G>, grace: Nanos) {
        self.drain(
            grace,
            || withdrawn.0.connections.get() == 0,
            |link| link.life.is_withdrawn(),
        )
        .await;
    }

    /// Ends the server: listeners return, connections finish the requests in flight and close;
    /// those that do not within `grace` are cut off.
    pub async fn shut_down(&self, grace: Nanos) {
        self.stopping.set(true);
        self.stop.notify();
        self.drain(grace, || self.links.borrow().is_empty(), |_| true)
            .await;
    }

    async fn drain(
        &self,
        grace: Nanos,
        drained: impl Fn() -> bool,
        concerned: impl Fn(&ServerLink) -> bool,
    ) {
        let all_ended = self.ended.until_some(|| drained().then_some(()));
        if self.env.timer.timeout(grace, all_ended).await.is_none() {
            for link in self.links.borrow().iter().filter(|l| concerned(l)) {
                link.kill("the server did not wait any longer");
            }
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> NbdStats {
        NbdStats {
            connections: self.sources.taken(),
            handshakes: self.sources.handshakes() as u32,
            ..self.counters.stats()
        }
    }

    /// The counts, for other shards.
    pub fn counters(&self) -> Arc<NbdCounters> {
        self.counters.clone()
    }

    /// Brings the counts of connections and handshakes up to date for other shards.
    pub(super) fn publish(&self) {
        self.counters.connections.set(self.sources.taken().into());
        self.counters
            .handshakes
            .set(self.sources.handshakes() as u64);
    }

    /// Counts and logs a connection refused for lack of a place.
    pub(super) fn refuse(&self) {
        self.count(|s| s.refused.add(1));
        let line = "an NBD connection was refused: the limit on connections is reached";
        self.journal.say(ConnectionTopic::Refused, line);
    }

    pub(super) fn count(&self, change: impl FnOnce(&NbdCounters)) {
        change(&self.counters);
    }
}

/// Ends connections in which the peer leaves a request or a reply half done.
async fn watch_stalls<G: Boundary>(server: Weak<NbdServer<G>>, env: Env) {
    loop {
        let Some(span) = server.upgrade().map(|s| s.limits.stall_timeout) else {
            return;
        };
        env.timer.sleep(span).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        for link in server.links.borrow().iter() {
            if link.life.has_stalled() {
                link.kill("the peer has stalled inside a request or a reply");
            }
        }
    }
}

/// Gives back the places of peers that have gone: readers held up by requests do not see that. Also
/// logs the counts of lines left out.
async fn watch_peers<G: Boundary>(server: Weak<NbdServer<G>>, env: Env) {
    let mut longest = PEERS_PERIOD;
    loop {
        env.timer.idle_sleep(PEERS_PERIOD, longest).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        let has_counts = server.journal.sum_up();
        let links = server.links.borrow();
        links.iter().for_each(|link| link.leave_if_closed());
        let is_held_up = links.iter().any(|link| link.admission.is_waiting());
        longest = match has_counts || is_held_up {
            true => PEERS_PERIOD,
            false => PEERS_IDLE_PERIOD,
        };
    }
}
