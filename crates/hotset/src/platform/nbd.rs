//! NBD on this machine: the sockets by which clients come.
//!
//! Invariant: a socket is listened on ⟺ the configuration that runs has it.

use super::{UringPlatform, read};
use block::{Address, Gate, IoError, IoResult, Kind, Nanos, TargetId};
use control::config::{Config, Listen};
use control::status::Status;
use nbd::protocol::server_handshake::TlsPolicy;
use nbd::serve::{Listening, Tls};
use nbd::tls::{Acceptor, Identity};
use node::{About, Door, Frontend, Later, NbdFrontend, Platform as _};
use std::cell::RefCell;
use std::rc::Rc;
use uring::{Uring, UringDriver};

/// A socket that is listened on, before it is served.
#[derive(Clone)]
pub struct Socket {
    /// As the configuration names it.
    place: String,
    target: TargetId,
    tls: Option<Tls>,
    uri: String,
}

impl Socket {
    /// Listens where `listen` says; nothing if that is not for NBD.
    pub fn open(host: &Uring, listen: &Listen) -> IoResult<Option<Socket>> {
        let address = match (&listen.unix, &listen.tcp) {
            (Some(path), _) => Address::Unix(path.value.display().to_string().into()),
            (None, Some(tcp)) => Address::Tcp(tcp.value.0.to_string().into()),
            (None, None) => return Ok(None),
        };
        let tls = tls(listen)?;
        let (target, bound) = host.listen(&address)?;
        Ok(Some(Socket {
            place: listen.place(),
            target,
            tls,
            uri: match bound {
                Address::Unix(path) => format!("nbd+unix:///?socket={path}"),
                Address::Tcp(host) => format!("nbd://{host}/"),
            },
        }))
    }
}

/// What a listener's clients are shown.
fn tls(listen: &Listen) -> IoResult<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&listen.tls_certificate, &listen.tls_key) else {
        return Ok(None);
    };
    let (certificates, key) = (read(&certificate.value)?, read(&key.value)?);
    let identity = Identity {
        certificates: &certificates,
        key: &key,
    };
    let authority = listen.tls_client_ca.as_ref();
    let authority = authority.map(|file| read(&file.value)).transpose()?;
    let acceptor = Acceptor::new(identity, authority.as_deref())?;
    Ok(Some((acceptor, TlsPolicy::Required)))
}

/// A socket that is served.
struct Open {
    place: String,
    uri: String,
    listening: Rc<Listening>,
}

/// The server and its sockets.
pub struct NbdSockets {
    platform: UringPlatform,
    host: Uring,
    server: NbdFrontend<Door<UringDriver>>,
    open: RefCell<Vec<Open>>,
}

impl NbdSockets {
    /// A server within the limits of `config`, with no socket yet.
    pub fn new(config: &Config, platform: &UringPlatform, host: Uring) -> IoResult<NbdSockets> {
        Ok(NbdSockets {
            server: NbdFrontend::new(config, platform)?,
            platform: platform.clone(),
            host,
            open: RefCell::default(),
        })
    }

    /// Serves those who come by `socket`.
    pub fn serve(&self, socket: Socket) {
        let listening = Listening::new(socket.tls);
        let listener = self.platform.local().listener(socket.target);
        let (server, shown) = (self.server.server.clone(), listening.clone());
        let spawn = self.platform.local().env().spawn;
        spawn.spawn(async move {
            server.serve_with(listener, shown).await;
        });
        self.open.borrow_mut().push(Open {
            place: socket.place,
            uri: socket.uri,
            listening,
        });
    }

    /// Where it listens, as URIs.
    pub fn uris(&self) -> Vec<String> {
        self.open
            .borrow()
            .iter()
            .map(|open| open.uri.clone())
            .collect()
    }
}

impl Frontend<Door<UringDriver>> for NbdSockets {
    fn add(&self, name: &str, gate: Gate<Door<UringDriver>>, about: &About) -> IoResult {
        self.server.add(name, gate, about)
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a Gate<Door<UringDriver>>,
        about: &'a About,
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
        if let Some(socket) = Socket::open(&self.host, listen)? {
            self.serve(socket);
        }
        Ok(())
    }

    fn close(&self, place: &str) {
        let mut all = self.open.borrow_mut();
        if let Some(at) = all.iter().position(|open| open.place == place) {
            self.server.server.close(&all.remove(at).listening);
        }
    }

    fn renew(&self, listen: &Listen) -> IoResult {
        let tls = tls(listen)?;
        let all = self.open.borrow();
        let open = all.iter().find(|open| open.place == listen.place());
        let open = open.ok_or_else(|| {
            let what = "is not listened on; see `hotset status`";
            IoError::new(Kind::Invalid, what).on(listen.place())
        })?;
        open.listening.renew(tls);
        Ok(())
    }

    fn stats(&self, status: &mut Status) {
        self.server.stats(status);
        status.nbd.listeners = self.uris();
    }
}
