//! The server: any number of exports to any number of streams.
//!
//! Invariants:
//!   - a connection holds at most its equal share of the memory set aside for
//!     all of them, so one that stalls takes nothing from another;
//!   - an answer to a request is sent after the device acknowledged it, and a
//!     flush is the device's own, so it covers what any connection was told;
//!   - a flush that fails, for whichever connection, is told to each (`flushes`);
//!   - every future here stays on its shard.
//!
//! Not here: opening sockets and reading certificates (who owns the files
//! does), and which addresses are safe to listen on.

mod connection;
mod flushes;
mod link;
mod work;

use crate::protocol::export::{BlockSizes, ExportInfo, Features};
use crate::protocol::server_handshake::TlsPolicy;
use crate::protocol::session::PAYLOAD_BYTES_MAX;
use crate::signal::{Signal, unless};
use crate::tls::Acceptor;
use block::{Device, Env, Gate, IoError, IoResult, Kind, Listener, Nanos, SECTOR_BYTES, Stream};
use flushes::Flushes;
use link::Link;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at one time; one more is closed at once.
    pub connections_max: u32,
    /// Requests of one connection that are not answered; more wait unread.
    pub requests_max: u32,
    /// Memory for all connections, in bytes; each may use an equal share.
    /// Half of the pool at the most.
    pub memory_bytes_max: usize,
    /// The longest payload of one request, in bytes.
    pub payload_bytes_max: u32,
    /// Time from accepting a connection to the end of its handshake.
    pub handshake_timeout: Nanos,
    /// A peer that makes no progress inside a request or in taking its replies
    /// is closed after this time and before twice of it.
    pub stall_timeout: Nanos,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 32,
            requests_max: 128,
            memory_bytes_max: 64 << 20,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            handshake_timeout: Nanos::from_secs(10),
            stall_timeout: Nanos::from_secs(30),
        }
    }
}

/// Failures in a row after which a listener is given up.
const ACCEPT_FAILURES_MAX: u32 = 50;
/// The least memory a connection works with.
const SHARE_BYTES_MIN: usize = 1 << 20;

impl Limits {
    fn check(&self, pool_bytes: usize) -> IoResult {
        let wrong = |what: String| Err(IoError::new(Kind::Invalid, what));
        if self.connections_max == 0 || self.requests_max == 0 {
            return wrong("an NBD server needs a connection and a request".into());
        }
        if self.memory_bytes_max > pool_bytes / 2 {
            return wrong(format!(
                "NBD connections may use {} bytes, which is over half of the buffer memory of {pool_bytes} bytes",
                self.memory_bytes_max
            ));
        }
        if self.share_bytes() < SHARE_BYTES_MIN {
            return wrong(format!(
                "{} NBD connections need {} bytes of buffer memory, 1 MiB each, and may use {}",
                self.connections_max,
                self.connections_max as usize * SHARE_BYTES_MIN,
                self.memory_bytes_max
            ));
        }
        if !(64 << 10..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes_max) {
            return wrong("the NBD payload limit must be from 64 KiB to 32 MiB".into());
        }
        Ok(())
    }

    fn share_bytes(&self) -> usize {
        self.memory_bytes_max / self.connections_max as usize
    }
}

/// What a server has done; see [`Server::stats`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Connections that are open.
    pub connections: u32,
    /// Connections accepted, refused ones included.
    pub accepted: u64,
    /// Connections closed at once because there were too many.
    pub refused: u64,
    /// Connections ended for a violation, a stall or a failed handshake.
    pub failed: u64,
    /// READ requests that succeeded.
    pub reads: u64,
    /// WRITE requests that succeeded.
    pub writes: u64,
    /// FLUSH requests that succeeded.
    pub flushes: u64,
    /// Other requests that succeeded.
    pub others: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// What a server shows to those who ask for TLS, or to everybody.
pub type Tls = (Acceptor, TlsPolicy);

/// What the server does to have something logged, one line without its end.
pub type Log = Rc<dyn Fn(&str)>;

struct Export<D> {
    gate: Gate<D>,
    flushes: Flushes,
    connections: Cell<u32>,
    withdrawn: Rc<Cell<bool>>,
}

/// Exports, beside what clients are told of them; equal in length and order.
struct Exports<D> {
    infos: Vec<ExportInfo>,
    exports: Vec<Rc<Export<D>>>,
}

/// How an export looks to clients.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// A line for people.
    pub description: String,
    /// Refuse everything that writes.
    pub read_only: bool,
}

/// A server of exports of one device type.
pub struct Server<D: Device> {
    env: Env,
    limits: Limits,
    tls: Option<Tls>,
    exports: RefCell<Exports<D>>,
    links: RefCell<Vec<Rc<Link>>>,
    stopping: Cell<bool>,
    /// Something that a connection waits for beside its peer has changed.
    stop: Signal,
    /// A connection has ended.
    ended: Signal,
    stats: RefCell<Stats>,
    log: Log,
}

impl<D: Device> Server<D> {
    /// A server without exports, and TLS for those who ask or for everybody.
    ///
    /// `Err(Invalid)`: the limits do not fit the memory, or each other.
    pub fn new(env: Env, limits: Limits, tls: Option<Tls>, log: Log) -> IoResult<Rc<Server<D>>> {
        limits.check(env.pool.total_bytes())?;
        let server = Rc::new(Server {
            limits,
            tls,
            exports: RefCell::new(Exports {
                infos: Vec::new(),
                exports: Vec::new(),
            }),
            links: RefCell::default(),
            stopping: Cell::new(false),
            stop: Signal::default(),
            ended: Signal::default(),
            stats: RefCell::default(),
            log,
            env,
        });
        let weak = Rc::downgrade(&server);
        server
            .env
            .spawn
            .spawn(watch_stalls(weak, server.env.clone()));
        Ok(server)
    }

    /// Offers `device` under `name`; the empty name is the default export.
    ///
    /// `Err(Invalid)`: NBD cannot carry a string. `Err(Busy)`: the name is taken.
    pub fn add(&self, name: &str, device: D, options: &ExportOptions) -> IoResult {
        let geometry = device.geometry();
        let features = Features {
            read_only: options.read_only,
            rotational: geometry.rotational,
            trim: true,
            multi_conn: true,
        };
        let payload_max = self.limits.payload_bytes_max & !(SECTOR_BYTES as u32 - 1);
        let optimal = geometry.optimal.bytes().clamp(4096, 1 << 20) as u32;
        let block = BlockSizes {
            min: 1,
            preferred: optimal.next_power_of_two().min(64 << 10),
            payload_max,
        };
        let size = geometry.sectors.bytes();
        let info = ExportInfo::new(name, &options.description, size, features, block)
            .map_err(|e| IoError::new(Kind::Invalid, e.to_string()))?;
        let mut exports = self.exports.borrow_mut();
        if exports.infos.iter().any(|e| e.name() == name) {
            let what = format!("an NBD export named {name:?} exists already");
            return Err(IoError::new(Kind::Busy, what));
        }
        exports.infos.push(info);
        exports.exports.push(Rc::new(Export {
            gate: Gate::new(device, self.env.clone()),
            flushes: Flushes::default(),
            connections: Cell::new(0),
            withdrawn: Rc::default(),
        }));
        Ok(())
    }

    /// Withdraws an export: its connections finish what is in flight and
    /// close; those that do not within `grace` are cut off.
    ///
    /// `Err(Invalid)`: there is no such export.
    pub async fn remove(&self, name: &str, grace: Nanos) -> IoResult {
        let export = {
            let mut exports = self.exports.borrow_mut();
            let Some(i) = exports.infos.iter().position(|e| e.name() == name) else {
                let what = format!("no NBD export is named {name:?}");
                return Err(IoError::new(Kind::Invalid, what));
            };
            exports.infos.remove(i);
            exports.exports.remove(i)
        };
        export.withdrawn.set(true);
        self.stop.notify();
        self.drain(grace, || export.connections.get() == 0, Link::is_withdrawn)
            .await;
        Ok(())
    }

    /// Ends the server: listeners return, connections finish what is in flight
    /// and close; those that do not within `grace` are cut off.
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
        concerned: impl Fn(&Link) -> bool,
    ) {
        let all_ended = self.ended.until(|| drained().then_some(()));
        if self.env.timer.timeout(grace, all_ended).await.is_none() {
            for link in self.links.borrow().iter().filter(|l| concerned(l)) {
                link.kill("the server did not wait any longer");
            }
        }
    }

    /// What has been done so far.
    pub fn stats(&self) -> Stats {
        *self.stats.borrow()
    }

    /// Serves what `listener` accepts until the server is shut down.
    ///
    /// `Err`: the listener has failed again and again, or was closed.
    pub async fn serve<L: Listener>(self: &Rc<Self>, listener: L) -> IoResult {
        self.serve_with(listener, self.tls.clone()).await
    }

    /// As [`Server::serve`], with TLS of the listener's own.
    pub async fn serve_with<L: Listener>(
        self: &Rc<Self>,
        listener: L,
        tls: Option<Tls>,
    ) -> IoResult {
        let stopping = || self.stopping.get().then_some(());
        let mut failures = 0;
        while let Some(accepted) = unless(self.stop.until(stopping), listener.accept()).await {
            match accepted {
                Ok(stream) => {
                    failures = 0;
                    self.admit_with(stream, tls.clone());
                }
                Err(error) if failures == ACCEPT_FAILURES_MAX => return Err(error),
                Err(error) => {
                    // Such as too many open files, which may pass.
                    failures += 1;
                    (self.log)(&format!("an NBD connection was not accepted: {error}"));
                    self.env.timer.sleep(Nanos::from_millis(100)).await;
                }
            }
        }
        listener.close();
        Ok(())
    }

    /// Serves one stream, in a task of its own.
    pub fn admit<S: Stream>(self: &Rc<Self>, stream: S) {
        self.admit_with(stream, self.tls.clone());
    }

    fn admit_with<S: Stream>(self: &Rc<Self>, stream: S, tls: Option<Tls>) {
        self.count(|s| s.accepted += 1);
        if self.links.borrow().len() >= self.limits.connections_max as usize {
            self.count(|s| s.refused += 1);
            (self.log)("an NBD connection was refused: the limit on connections is reached");
            stream.close();
            return;
        }
        let link = Rc::new(Link::new(&self.limits));
        self.links.borrow_mut().push(link.clone());
        self.count(|s| s.connections += 1);
        let server = self.clone();
        self.env.spawn.spawn(async move {
            let ending = connection::run(&server, &link, Rc::new(stream), tls).await;
            if let Some(why) = ending {
                server.count(|s| s.failed += 1);
                (server.log)(&format!("an NBD connection was closed: {why}"));
            }
            server.links.borrow_mut().retain(|l| !Rc::ptr_eq(l, &link));
            server.count(|s| s.connections -= 1);
            server.ended.notify();
        });
    }

    fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.stats.borrow_mut());
    }
}

/// Ends connections whose peer leaves something half done.
async fn watch_stalls<D: Device>(server: Weak<Server<D>>, env: Env) {
    loop {
        let Some(span) = server.upgrade().map(|s| s.limits.stall_timeout) else {
            return;
        };
        env.timer.sleep(span).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        for link in server.links.borrow().iter() {
            if link.has_stalled() {
                link.kill("the peer has stalled inside a request or a reply");
            }
        }
    }
}
