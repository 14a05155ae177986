//! The server: any number of exports to any number of streams.
//!
//! Invariants:
//!   - a connection uses at most its share of the memory set aside for all of them, so
//!     one that stalls takes nothing from another (`credit`);
//!   - no listener's clients, and nobody without a whole handshake, take the places of
//!     another listener's (`doors`);
//!   - an answer to a request is sent after the device acknowledged it, and a
//!     flush is the device's own, so it covers what any connection was told;
//!   - a flush that fails, for whichever connection, is told to each (`flushes`);
//!   - every future here stays on its shard.
//!
//! Not here: opening sockets and reading certificates (who owns the files
//! does), and which addresses are safe to listen on.

mod connection;
mod credit;
mod doors;
mod flushes;
mod journal;
mod link;
mod work;

use crate::protocol::export::{BlockSizes, ExportInfo, Features};
use crate::protocol::server_handshake::TlsPolicy;
use crate::protocol::session::PAYLOAD_BYTES_MAX;
use crate::signal::{Signal, until_stopped};
use crate::tls::{Acceptor, TLS_NARROW_BYTES};
use block::{
    Device, Env, Gate, IoError, IoResult, Kind, Listener, Nanos, PAGE_BYTES, SECTOR_BYTES, Stream,
};
use credit::{Credits, GUARANTEED_BYTES};
use doors::{Door, Doors};
use flushes::Flushes;
use journal::{Journal, Topic};
use link::Link;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at one time; one more is closed when its handshake ends. Half of
    /// them are set aside, an equal part for each listener.
    pub connections_max: u32,
    /// Handshakes at one time; one more ends the oldest. As many as connections, for all
    /// may come back at once.
    pub handshakes_max: u32,
    /// Requests of one connection that are not answered; more wait unread.
    pub requests_max: u32,
    /// Memory for all connections, in bytes: [`Limits::reserved_bytes`], and what is lent
    /// to those that are busy. Half of the pool at the most.
    pub memory_bytes_max: usize,
    /// The longest payload of one request, in bytes.
    pub payload_bytes_max: u32,
    /// Time from accepting a connection to the end of its handshake.
    pub handshake_timeout: Nanos,
    /// A peer that makes no progress inside a request or in taking its replies
    /// is closed after this time and before twice of it.
    pub stall_timeout: Nanos,
}

/// Connections at one time, unless told otherwise: what QEMU's server allows. nbdkit and
/// nbd-server have no limit of their own.
pub const CONNECTIONS_MAX: u32 = 100;

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: CONNECTIONS_MAX,
            handshakes_max: CONNECTIONS_MAX,
            requests_max: 128,
            memory_bytes_max: 64 << 20,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            handshake_timeout: Nanos::from_secs(10),
            stall_timeout: Nanos::from_secs(30),
        }
    }
}

/// Pauses after a failed accept, the first and the longest.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);
const ACCEPT_PAUSE_MAX: Nanos = Nanos::from_secs(2);
/// How often it is looked whether peers have closed their ends unseen.
const PEERS_PERIOD: Nanos = Nanos::from_secs(1);
/// Bytes asked for in one receive of a handshake.
const HANDSHAKE_INBOX_BYTES: usize = PAGE_BYTES;
/// The memory of a handshake: what is received, what is sent, and TLS.
const HANDSHAKE_BYTES: usize = HANDSHAKE_INBOX_BYTES + PAGE_BYTES + TLS_NARROW_BYTES;

/// The most connections, with as many handshakes, that so much memory is enough for.
pub const fn connections_for(memory_bytes: u64) -> u32 {
    let most = memory_bytes / (GUARANTEED_BYTES + HANDSHAKE_BYTES) as u64;
    if most > u32::MAX as u64 {
        u32::MAX
    } else {
        most as u32
    }
}

impl Limits {
    fn check(&self, pool_bytes: usize) -> IoResult {
        let wrong = |what: String| Err(IoError::new(Kind::Invalid, what));
        if self.connections_max == 0 || self.handshakes_max == 0 || self.requests_max == 0 {
            return wrong("an NBD server needs a connection, a handshake and a request".into());
        }
        if self.memory_bytes_max > pool_bytes / 2 {
            return wrong(format!(
                "NBD connections may use {} bytes, which is over half of the buffer memory of {pool_bytes} bytes",
                self.memory_bytes_max
            ));
        }
        if self.reserved_bytes() > self.memory_bytes_max {
            return wrong(format!(
                "{} NBD connections need {} bytes of buffer memory, {} KiB each and {} KiB for each of {} \
                 handshakes, and may use {}",
                self.connections_max,
                self.reserved_bytes(),
                GUARANTEED_BYTES >> 10,
                HANDSHAKE_BYTES >> 10,
                self.handshakes_max,
                self.memory_bytes_max
            ));
        }
        if !(64 << 10..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes_max) {
            return wrong("the NBD payload limit must be from 64 KiB to 32 MiB".into());
        }
        Ok(())
    }

    /// Memory that connections and handshakes have whatever others use, in bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.connections_max as usize * GUARANTEED_BYTES
            + self.handshakes_max as usize * HANDSHAKE_BYTES
    }

    /// The rest, which is lent out.
    fn lent_bytes(&self) -> usize {
        self.memory_bytes_max - self.reserved_bytes()
    }
}

/// What a server has done; see [`Server::stats`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Connections that have a place.
    pub connections: u32,
    /// Connections whose handshake is under way.
    pub handshakes: u32,
    /// Connections accepted, refused ones included.
    pub accepted: u64,
    /// Connections closed after their handshake because there were too many.
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
    doors: Rc<Doors>,
    /// What does not come by a listener comes by this.
    side_door: RefCell<Weak<Door>>,
    credits: Rc<Credits>,
    links: RefCell<Vec<Rc<Link>>>,
    stopping: Cell<bool>,
    /// Something that a connection waits for beside its peer has changed.
    stop: Signal,
    /// A connection has ended.
    ended: Signal,
    stats: RefCell<Stats>,
    journal: Journal,
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
            doors: Doors::new(limits.connections_max, limits.handshakes_max),
            side_door: RefCell::default(),
            credits: Credits::new(&limits),
            links: RefCell::default(),
            stopping: Cell::new(false),
            stop: Signal::default(),
            ended: Signal::default(),
            stats: RefCell::default(),
            journal: Journal::new(log, env.timer.clone()),
            env,
        });
        let (env, weak) = (&server.env, Rc::downgrade(&server));
        env.spawn.spawn(watch_stalls(weak.clone(), env.clone()));
        env.spawn.spawn(watch_peers(weak, env.clone()));
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
        Stats {
            connections: self.doors.taken(),
            handshakes: self.doors.handshakes() as u32,
            ..*self.stats.borrow()
        }
    }

    /// Serves what `listener` accepts until the server is shut down, whatever fails.
    pub async fn serve<L: Listener>(self: &Rc<Self>, listener: L) {
        self.serve_with(listener, self.tls.clone()).await;
    }

    /// As [`Server::serve`], with TLS of the listener's own.
    pub async fn serve_with<L: Listener>(self: &Rc<Self>, listener: L, tls: Option<Tls>) {
        let door = self.doors.open();
        let stopping = || self.stopping.get().then_some(());
        let mut pause = ACCEPT_PAUSE;
        while let Some(accepted) = until_stopped(self.stop.until(stopping), listener.accept()).await
        {
            match accepted {
                Ok(stream) => {
                    pause = ACCEPT_PAUSE;
                    self.admit_with(stream, tls.clone(), &door);
                }
                Err(error) => {
                    // Such as too many open files, which may pass.
                    let line = format!("an NBD connection was not accepted: {error}");
                    self.journal.say(Topic::NotAccepted, &line);
                    let sleep = self.env.timer.sleep(pause);
                    until_stopped(self.stop.until(stopping), sleep).await;
                    pause = Nanos((pause.0 * 2).min(ACCEPT_PAUSE_MAX.0));
                }
            }
        }
        listener.close();
    }

    /// Serves one stream, in a task of its own.
    pub fn admit<S: Stream>(self: &Rc<Self>, stream: S) {
        let known = self.side_door.borrow().upgrade();
        let door = known.unwrap_or_else(|| self.doors.open());
        *self.side_door.borrow_mut() = Rc::downgrade(&door);
        self.admit_with(stream, self.tls.clone(), &door);
    }

    fn admit_with<S: Stream>(self: &Rc<Self>, stream: S, tls: Option<Tls>, door: &Rc<Door>) {
        self.count(|s| s.accepted += 1);
        let link = Rc::new(Link::new(&self.limits, &self.credits));
        let (handshake, surplus) = door.begin(&link);
        if let Some(oldest) = surplus {
            oldest.kill("its handshake was the oldest of too many");
        }
        let door = door.clone();
        let entry = connection::Entry { door, handshake };
        self.links.borrow_mut().push(link.clone());
        let server = self.clone();
        self.env.spawn.spawn(async move {
            let ending = connection::run(&server, &link, Rc::new(stream), tls, entry).await;
            if let Some(why) = ending {
                server.count(|s| s.failed += 1);
                let line = format!("an NBD connection was closed: {why}");
                server.journal.say(Topic::Closed, &line);
            }
            link.end();
            server.links.borrow_mut().retain(|l| !Rc::ptr_eq(l, &link));
            server.ended.notify();
        });
    }

    /// There is no place for a connection.
    fn refuse(&self) {
        self.count(|s| s.refused += 1);
        let line = "an NBD connection was refused: the limit on connections is reached";
        self.journal.say(Topic::Refused, line);
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

/// Gives places back whose peers are gone, which is not seen while their requests are
/// held up, and says what was left out of the log.
async fn watch_peers<D: Device>(server: Weak<Server<D>>, env: Env) {
    loop {
        env.timer.sleep(PEERS_PERIOD).await;
        let Some(server) = server.upgrade() else {
            return;
        };
        server.journal.sum_up();
        for link in server.links.borrow().iter() {
            link.leave_if_closed();
        }
    }
}
