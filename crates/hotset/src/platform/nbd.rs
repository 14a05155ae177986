//! NBD on this machine: the sockets for clients, on the home shard.
//!
//! Invariant: a socket is listened on ⟺ the configuration that runs has it.

use super::{UringPlatform, read};
use block::{Address, Gate, IoError, IoResult, Nanos, TargetId};
use control::config::{At, Config, Listen};
use control::status::Status;
use control::users;
use nbd::protocol::server_handshake::TlsPolicy;
use nbd::serve::Tls;
use nbd::tls::{Acceptor, TlsIdentity, TlsStep};
use node::{
    Frontend, Later, NbdFrontend, Platform as _, ServedListener, ServedVolume, VolumeAbout,
};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use uring::{AsideWorker, Uring, UringDriver};

/// A socket that is listened on, before it is served.
#[derive(Clone)]
pub struct BoundSocket {
    /// The address in the words of the configuration.
    place: String,
    target: TargetId,
    tls: Option<Tls>,
    shown: Shown,
    bound: Address,
}

/// The contents of the files of a listener's certificate, key and authority.
type Shown = [Option<Vec<u8>>; 3];

impl BoundSocket {
    /// Listens on the address of `listen`; `None` if that is not for NBD.
    pub fn open(host: &Uring, listen: &Listen) -> IoResult<Option<BoundSocket>> {
        let address = match (&listen.unix, &listen.tcp) {
            (Some(path), _) => Address::Unix(path.value.display().to_string().into()),
            (None, Some(tcp)) => Address::Tcp(tcp.value.0.to_string().into()),
            (None, None) => return Ok(None),
        };
        let shown = shown(listen)?;
        let tls = tls(&shown).map_err(|error| error.on(listen.place()))?;
        let (target, bound) = host
            .listen(&address)
            .map_err(|error| named(error, listen))?;
        Ok(Some(BoundSocket {
            place: listen.place(),
            target,
            tls,
            shown,
            bound,
        }))
    }
}

/// Returns `error` with the process that listens on the address of `listen`, if there is one.
fn named(error: IoError, listen: &Listen) -> IoError {
    let found = match (&listen.unix, &listen.tcp) {
        (Some(path), _) => users::of_socket(path),
        (None, Some(tcp)) => users::of_port(tcp.value.0),
        (None, None) => Vec::new(),
    };
    let Some(by) = users::listed(&found) else {
        return error;
    };
    let what = format!("is in use by {by}; stop that, or choose another");
    IoError::new(error.kind(), what).on(listen.place())
}

/// Reads the files of a listener.
fn shown(listen: &Listen) -> IoResult<Shown> {
    let file = |file: &Option<At<PathBuf>>| file.as_ref().map(|f| read(&f.value)).transpose();
    Ok([
        file(&listen.tls_certificate)?,
        file(&listen.tls_key)?,
        file(&listen.tls_client_ca)?,
    ])
}

/// The side of TLS of a listener, from its files.
fn tls(shown: &Shown) -> IoResult<Option<Tls>> {
    let [Some(certificates), Some(key), authority] = shown else {
        return Ok(None);
    };
    let acceptor = Acceptor::new(TlsIdentity { certificates, key }, authority.as_deref())?;
    Ok(Some((acceptor, TlsPolicy::Required)))
}

/// A socket that is served.
struct OpenSocket {
    place: String,
    bound: Address,
    shown: Shown,
    listener: ServedListener,
}

impl OpenSocket {
    /// The URI of the export `name`, which is plain ASCII; of all exports if `name` is empty.
    fn uri(&self, name: &str) -> String {
        let tls = if self.shown[0].is_some() { "s" } else { "" };
        match &self.bound {
            Address::Unix(path) => format!("nbd{tls}+unix:///{name}?socket={path}"),
            Address::Tcp(host) => format!("nbd{tls}://{host}/{name}"),
        }
    }
}

/// The server and its sockets.
pub struct NbdSockets {
    platform: UringPlatform,
    host: Uring,
    server: NbdFrontend<UringDriver>,
    open: RefCell<Vec<OpenSocket>>,
    shakes_aside: Cell<bool>,
}

impl NbdSockets {
    /// A server within the limits of `config`, with no socket yet.
    pub fn new(config: &Config, platform: &UringPlatform, host: Uring) -> IoResult<NbdSockets> {
        let sockets = NbdSockets {
            server: NbdFrontend::new(config, platform)?,
            platform: platform.clone(),
            host,
            open: RefCell::default(),
            shakes_aside: Cell::new(false),
        };
        if config
            .listeners
            .iter()
            .any(|listen| listen.tls_certificate.is_some())
        {
            sockets.shake_hands_aside()?;
        }
        Ok(sockets)
    }

    /// Moves TLS handshakes to a thread of their own: strangers can cause as many signatures as
    /// they like, and the shard is not to wait for these.
    fn shake_hands_aside(&self) -> IoResult {
        if self.shakes_aside.get() {
            return Ok(());
        }
        let thread = AsideWorker::new("tls")?;
        self.server.shake_hands_by(move || {
            let thread = thread.clone();
            Rc::new(move |step: TlsStep| {
                let thread = thread.clone();
                Box::pin(async move { thread.run(move || step.run()).await })
            })
        });
        self.shakes_aside.set(true);
        Ok(())
    }

    /// Serves the clients of `socket`.
    pub fn serve(&self, socket: BoundSocket) {
        let listener = self.platform.local().listener(socket.target);
        let listener = self.server.serve(listener, socket.tls);
        self.open.borrow_mut().push(OpenSocket {
            place: socket.place,
            bound: socket.bound,
            shown: socket.shown,
            listener,
        });
    }

    /// The URIs of the sockets.
    pub fn uris(&self) -> Vec<String> {
        self.open.borrow().iter().map(|open| open.uri("")).collect()
    }
}

impl Frontend<ServedVolume<UringDriver>> for NbdSockets {
    fn add(
        &self,
        name: &str,
        gate: Gate<ServedVolume<UringDriver>>,
        about: &VolumeAbout,
    ) -> IoResult {
        self.server.add(name, gate, about)
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<ServedVolume<UringDriver>>,
        about: &'a VolumeAbout,
        grace: Nanos,
    ) -> Later<'a, IoResult> {
        self.server.change(name, gate, about, grace)
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        self.server.withdraw(name, grace)
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        self.server.shut_down(grace)
    }

    fn open(&self, listen: &Listen) -> IoResult {
        if let Some(socket) = BoundSocket::open(&self.host, listen)? {
            if socket.tls.is_some() {
                self.shake_hands_aside()?;
            }
            self.serve(socket);
        }
        Ok(())
    }

    fn close(&self, place: &str) {
        let mut all = self.open.borrow_mut();
        if let Some(at) = all.iter().position(|open| open.place == place) {
            self.server.close_listener(&all.remove(at).listener);
        }
    }

    fn renew(&self, listen: &Listen) -> IoResult<bool> {
        let mut all = self.open.borrow_mut();
        let Some(open) = all.iter_mut().find(|open| open.place == listen.place()) else {
            return Ok(false);
        };
        let shown = shown(listen)?;
        if shown == open.shown {
            return Ok(false);
        }
        let tls = tls(&shown).map_err(|error| error.on(listen.place()))?;
        if tls.is_some() {
            self.shake_hands_aside()?;
        }
        open.listener.renew(tls);
        open.shown = shown;
        Ok(true)
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        if !self.server.offers(name) {
            return Vec::new();
        }
        let open = self.open.borrow();
        open.iter().map(|open| open.uri(name)).collect()
    }

    fn stats(&self, status: &mut Status) {
        self.server.stats(status);
        status.nbd.listeners = self.uris();
    }
}
