//! The server: any number of exports to any number of streams.
//!
//! Invariants:
//!   - a connection uses at most its share of the memory set aside for all of them, so
//!     one that stalls takes nothing from another (`credit`);
//!   - neither the clients of a listener nor peers without a finished handshake take the
//!     places of another listener (`quota`);
//!   - an answer to a request is sent after the device acknowledged it, and a
//!     flush is the device's own: it covers the writes acknowledged on any connection;
//!   - a flush that fails, for whichever connection, is reported on each (`flushes`);
//!   - every future here stays on its shard.
//!
//! Not here: opening sockets and reading certificates (the owner of the files
//! does), and a judgement of which addresses are safe to listen on.

mod admission;
mod connection;
mod credit;
mod flushes;
mod journal;
mod life;
mod limits;
mod link;
mod quota;
mod replies;
mod server;
mod stats;
mod work;
mod workers;

pub use journal::Log;
pub use limits::{CONNECTIONS_MAX, ServerLimits, connections_for};
pub use server::{ExportClients, ExportOptions, NbdServer, Tls, WithdrawnExport};
pub use stats::{NbdCounters, NbdStats};

use crate::until_stopped::until_stopped;
use block::{Boundary, Listener, Nanos, Stream};
use journal::ConnectionTopic;
use link::{LinkSource, ServerLink};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Pauses after a failed accept, the first and the longest.
const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);
const ACCEPT_PAUSE_MAX: Nanos = Nanos::from_secs(2);

/// A listener, as its owner holds it.
pub struct Listening {
    tls: RefCell<Option<Tls>>,
    closed: Cell<bool>,
}

impl Listening {
    /// A listener that offers `tls` to its clients.
    pub fn new(tls: Option<Tls>) -> Rc<Listening> {
        Rc::new(Listening {
            tls: RefCell::new(tls),
            closed: Cell::new(false),
        })
    }

    /// The TLS that clients are offered now.
    pub fn tls(&self) -> Option<Tls> {
        self.tls.borrow().clone()
    }

    /// Offers `tls` to later clients.
    pub fn renew(&self, tls: Option<Tls>) {
        *self.tls.borrow_mut() = tls;
    }
}

/// A source of streams that another shard accepts.
pub struct ConnectionSource(Rc<LinkSource>);

impl<G: Boundary> NbdServer<G> {
    /// Serves the connections of `listener` until the server is shut down, whatever fails.
    pub async fn serve<L: Listener>(self: &Rc<Self>, listener: L) {
        let listening = Listening::new(self.tls.clone());
        self.serve_with(listener, listening).await;
    }

    /// Serves as [`NbdServer::serve`] does, with TLS of the listener's own, until that is closed.
    pub async fn serve_with<L: Listener>(self: &Rc<Self>, listener: L, listening: Rc<Listening>) {
        let source = self.sources.open();
        let stopping = || (self.stopping.get() || listening.closed.get()).then_some(());
        let mut pause = ACCEPT_PAUSE;
        while let Some(accepted) =
            until_stopped(self.stop.until_some(stopping), listener.accept()).await
        {
            match accepted {
                Ok(stream) => {
                    pause = ACCEPT_PAUSE;
                    let tls = listening.tls();
                    self.admit_with(stream, tls, &source);
                }
                Err(error) => {
                    // Such as too many open files, which may pass.
                    let line = format!("an NBD connection was not accepted: {error}");
                    self.journal.say(ConnectionTopic::NotAccepted, &line);
                    let sleep = self.env.timer.sleep(pause);
                    until_stopped(self.stop.until_some(stopping), sleep).await;
                    pause = Nanos((pause.0 * 2).min(ACCEPT_PAUSE_MAX.0));
                }
            }
        }
        listener.close();
    }

    /// Stops accepting at `listening`; its earlier connections stay.
    pub fn close(&self, listening: &Listening) {
        listening.closed.set(true);
        self.stop.notify();
    }

    /// Serves one stream, in a task of its own.
    pub fn admit<S: Stream>(self: &Rc<Self>, stream: S) {
        let known = self.side_source.borrow().upgrade();
        let source = known.unwrap_or_else(|| self.sources.open());
        *self.side_source.borrow_mut() = Rc::downgrade(&source);
        self.admit_with(stream, self.tls.clone(), &source);
    }

    /// Returns a source of streams that another shard accepts; its share of the places ends when
    /// it is dropped and its streams have ended.
    pub fn source(&self) -> ConnectionSource {
        ConnectionSource(self.sources.open())
    }

    /// Serves a stream that another shard has accepted, in a task of its own.
    pub fn admit_of<S: Stream>(
        self: &Rc<Self>,
        source: &ConnectionSource,
        stream: S,
        tls: Option<Tls>,
    ) {
        self.admit_with(stream, tls, &source.0);
    }

    fn admit_with<S: Stream>(
        self: &Rc<Self>,
        stream: S,
        tls: Option<Tls>,
        source: &Rc<LinkSource>,
    ) {
        self.count(|s| s.accepted.add(1));
        let link = Rc::new(ServerLink::new(&self.limits, &self.credits));
        let (handshake, surplus) = source.begin(&link);
        if let Some(oldest) = surplus {
            oldest.kill("its handshake was the oldest of too many");
        }
        let source = source.clone();
        let entry = connection::ConnectionEntry { source, handshake };
        self.links.borrow_mut().push(link.clone());
        self.publish();
        let server = self.clone();
        self.env.spawn.spawn(async move {
            let ending = connection::run(&server, &link, Rc::new(stream), tls, entry).await;
            if let Some(why) = ending {
                server.count(|s| s.failed.add(1));
                let line = format!("an NBD connection was closed: {why}");
                server.journal.say(ConnectionTopic::Closed, &line);
            }
            link.admission.end();
            server.links.borrow_mut().retain(|l| !Rc::ptr_eq(l, &link));
            server.publish();
            server.ended.notify();
        });
    }
}
