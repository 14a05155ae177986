//! TLS over any stream, by rustls, which does no I/O of its own.
//!
//! Invariants:
//!   - memory held for a peer is one receive, one send and rustls's part of
//!     a record, whatever the peer claims;
//!   - steps of a server's handshake are done by its [`Worker`], if there is one;
//!   - no borrow of the session is held across a wait, so that receiving and
//!     sending run at the same time.
//!
//! Not here: reading files; the caller passes their content. The end of a
//! stream without TLS's own farewell reads as the end of the stream: NBD frames
//! its messages and notices a truncated one.

mod form;

pub use form::{SIGN_AGAIN, old_version, valid_between};

use block::{Buf, IoError, IoErrorKind, IoResult, Pool, SharedBuf, Stream};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use std::cell::{RefCell, RefMut};
use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes received or sent at one time.
const RECORDS_BYTES: usize = 64 << 10;
/// The same until a stream is widened: strangers are to take little memory.
const NARROW_BYTES: usize = 16 << 10;
/// Plain text that fits one send together with its records' overhead.
const PLAIN_BYTES: usize = 48 << 10;
/// Buffer memory of one TLS stream.
pub(crate) const TLS_BYTES: usize = 2 * RECORDS_BYTES;
/// The same before the stream is widened.
pub(crate) const TLS_NARROW_BYTES: usize = 2 * NARROW_BYTES;

/// TLS of a server: its certificate, and the authority of its clients.
#[derive(Clone)]
pub struct Acceptor(Arc<ServerConfig>);

/// TLS of a client: the trusted authority, and the client's own certificate.
#[derive(Clone)]
pub struct Dialer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

fn wrong(what: &'static str, why: impl std::fmt::Display) -> IoError {
    IoError::new(IoErrorKind::Invalid, format!("{what}: {why}"))
}

fn unfit(what: &'static str, why: rustls::Error) -> IoError {
    match why {
        rustls::Error::InconsistentKeys(_) => wrong(what, "the key is that of another certificate"),
        why => wrong(what, why),
    }
}

/// The chain of an identity.
fn chain(pem: &[u8]) -> IoResult<Vec<CertificateDer<'static>>> {
    let what = "the TLS certificate";
    match old_version(pem) {
        None => certificates(what, pem),
        Some(old) => Err(wrong(what, outdated(old))),
    }
}

fn outdated(version: u8) -> String {
    format!("its version is {version}, and TLS needs version 3; {SIGN_AGAIN}")
}

fn certificates(what: &'static str, pem: &[u8]) -> IoResult<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| wrong(what, e))?;
    if all.is_empty() {
        return Err(wrong(what, "no certificate in it"));
    }
    Ok(all)
}

fn roots(what: &'static str, pem: &[u8]) -> IoResult<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots.add(certificate).map_err(|e| wrong(what, e))?;
    }
    Ok(roots)
}

fn key(pem: &[u8]) -> IoResult<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|e| wrong("the TLS key", e))
}

/// A certificate chain and its key, both in PEM.
#[derive(Clone, Copy)]
pub struct TlsIdentity<'a> {
    /// The certificate, then its chain of authorities.
    pub certificates: &'a [u8],
    /// The key of the first.
    pub key: &'a [u8],
}

impl Acceptor {
    /// A server that shows `identity` and, where `client_ca` is given, takes only clients that show
    /// a certificate of that authority.
    ///
    /// `Err(Invalid)`: a part of the PEM is wrong; the error names the part.
    pub fn new(identity: TlsIdentity<'_>, client_ca: Option<&[u8]>) -> IoResult<Acceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("TLS", e))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let what = "the authority for clients' certificates";
                let roots = Arc::new(roots(what, pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                    .build()
                    .map_err(|e| wrong(what, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = chain(identity.certificates)?;
        let config = builder
            .with_single_cert(chain, key(identity.key)?)
            .map_err(|e| unfit("the TLS certificate and key", e))?;
        Ok(Acceptor(Arc::new(config)))
    }

    /// The steps of the handshake are done by `worker`, if there is one.
    pub(crate) async fn accept<S: Stream>(
        &self,
        stream: Rc<S>,
        received: &[u8],
        pool: &Pool,
        worker: Option<Worker>,
    ) -> IoResult<TlsStream<S>> {
        let session = ServerConnection::new(self.0.clone()).map_err(|e| wrong("TLS", e))?;
        TlsStream::shake(stream, session.into(), received, pool, worker).await
    }
}

impl Dialer {
    /// A client that trusts servers of authority `ca` if they show a
    /// certificate for `name`, and that shows `identity` where one is given.
    ///
    /// `Err(Invalid)`: the name or a part of the PEM is wrong.
    pub fn new(name: &str, ca: &[u8], identity: Option<TlsIdentity<'_>>) -> IoResult<Dialer> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|e| wrong("the name of the TLS server", e))?;
        let roots = roots("the authority for the server's certificate", ca)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("TLS", e))?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = chain(identity.certificates)?;
                builder
                    .with_client_auth_cert(chain, key(identity.key)?)
                    .map_err(|e| wrong("the TLS certificate and key", e))?
            }
        };
        Ok(Dialer {
            config: Arc::new(config),
            name,
        })
    }

    pub(crate) async fn dial<S: Stream>(
        &self,
        stream: Rc<S>,
        pool: &Pool,
    ) -> IoResult<TlsStream<S>> {
        let session = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|e| wrong("TLS", e))?;
        TlsStream::shake(stream, session.into(), &[], pool, None).await
    }
}

/// A step of a handshake, which may take milliseconds: a signature, or the verification of some.
pub struct TlsStep {
    session: Connection,
    done: Result<(), rustls::Error>,
}

impl TlsStep {
    /// Carries out the step.
    pub fn run(mut self) -> TlsStep {
        self.done = self.session.process_new_packets().map(|_| ());
        self
    }
}

/// Runs steps of handshakes elsewhere, one at a time, so that strangers cost clients nothing.
pub type Worker = Rc<dyn Fn(TlsStep) -> Pin<Box<dyn Future<Output = TlsStep>>>>;

/// A stream under TLS.
pub(crate) struct TlsStream<S> {
    stream: Rc<S>,
    pool: Pool,
    /// Away only while a step of the handshake is done elsewhere.
    session: RefCell<Option<Connection>>,
    /// Does the steps of the handshake.
    worker: Option<Worker>,
    received: RefCell<Received>,
    records_bytes: usize,
}

/// Records received and not yet decrypted.
#[derive(Default)]
struct Received {
    buf: Option<Buf>,
    start: usize,
    end: usize,
}

fn broken(error: impl std::fmt::Display) -> IoError {
    IoError::new(IoErrorKind::Stream, format!("TLS: {error}"))
}

/// The end of a session, in words of ours where the peer can do something about it.
fn refused(error: rustls::Error) -> IoError {
    // The library has no kind of its own for this.
    match error.to_string().contains("UnsupportedCertVersion") {
        true => broken(format!("the peer's certificate: {}", outdated(1))),
        false => broken(error),
    }
}

impl<S: Stream> TlsStream<S> {
    async fn shake(
        stream: Rc<S>,
        session: Connection,
        mut received: &[u8],
        pool: &Pool,
        worker: Option<Worker>,
    ) -> IoResult<TlsStream<S>> {
        let mut this = TlsStream {
            stream,
            pool: pool.clone(),
            session: RefCell::new(Some(session)),
            worker,
            received: RefCell::default(),
            records_bytes: NARROW_BYTES,
        };
        while !received.is_empty() {
            this.decrypt(&mut received).await?;
        }
        while this.session().is_handshaking() {
            this.send_records().await?;
            if this.session().is_handshaking() && !this.receive_records().await? {
                return Err(broken("the peer left during the handshake"));
            }
        }
        this.send_records().await?;
        this.worker = None;
        Ok(this)
    }

    fn session(&self) -> RefMut<'_, Connection> {
        let session = self.session.borrow_mut();
        RefMut::map(session, |session| session.as_mut().expect("it is here"))
    }

    /// Takes memory for many records at a time from now on.
    pub(crate) fn widen(&mut self) {
        self.records_bytes = RECORDS_BYTES;
    }

    /// Decrypts some of `records`; on an error the alert is left to be sent.
    async fn decrypt(&self, records: &mut &[u8]) -> IoResult {
        self.session().read_tls(records).map_err(broken)?;
        let Some(worker) = &self.worker else {
            return self
                .session()
                .process_new_packets()
                .map(|_| ())
                .map_err(refused);
        };
        let session = self.session.take().expect("it is here");
        let step = TlsStep {
            session,
            done: Ok(()),
        };
        let step = worker(step).await;
        self.session.replace(Some(step.session));
        step.done.map_err(refused)
    }

    /// Receives records, if none are left, and decrypts some. False at the end
    /// of the stream.
    async fn receive_records(&self) -> IoResult<bool> {
        let mut received = std::mem::take(&mut *self.received.borrow_mut());
        if received.start == received.end {
            let buf = received
                .buf
                .take()
                .filter(|b| b.len() == self.records_bytes);
            let buf = match buf {
                Some(buf) => buf,
                None => self.pool.take(self.records_bytes),
            };
            let (buf, result) = self.stream.recv(buf).await;
            received = Received {
                buf: Some(buf),
                start: 0,
                end: result?,
            };
            if received.end == 0 {
                return Ok(false);
            }
        }
        let buf = received.buf.as_ref().expect("received above");
        let mut records = &buf[received.start..received.end];
        let result = self.decrypt(&mut records).await;
        received.start = received.end - records.len();
        *self.received.borrow_mut() = received;
        if result.is_err() && self.session.borrow().is_some() {
            // Sends the peer the reason; a failure of this send no longer matters.
            let _ = self.send_records().await;
        }
        result.map(|()| true)
    }

    /// Sends the records that rustls has ready.
    async fn send_records(&self) -> IoResult {
        while self.session().wants_write() {
            let mut buf = self.pool.take(self.records_bytes);
            let room = buf.len();
            let mut free = &mut buf[..];
            {
                let mut session = self.session();
                while session.wants_write() && !free.is_empty() {
                    session.write_tls(&mut free).map_err(broken)?;
                }
            }
            let used = room - free.len();
            let records = buf.share().slice(0..used);
            self.stream.send(vec![records]).await.1?;
        }
        Ok(())
    }

    async fn send_plain(&self, mut plain: &[u8]) -> IoResult {
        while !plain.is_empty() {
            let n = plain.len().min(PLAIN_BYTES);
            let taken = self.session().writer().write(&plain[..n]);
            plain = &plain[taken.map_err(broken)?..];
            self.send_records().await?;
        }
        Ok(())
    }
}

impl<S: Stream> Stream for TlsStream<S> {
    async fn recv(&self, mut buf: Buf) -> (Buf, IoResult<usize>) {
        loop {
            let read = self.session().reader().read(&mut buf);
            match read {
                Ok(n) => return (buf, Ok(n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return (buf, Err(broken(e))),
            }
            match self.receive_records().await {
                Ok(true) => {}
                Ok(false) => return (buf, Ok(0)),
                Err(e) => return (buf, Err(e)),
            }
        }
    }

    async fn send(&self, mut parts: Vec<SharedBuf>) -> (Vec<SharedBuf>, IoResult) {
        let mut result = Ok(());
        for part in parts.drain(..) {
            if result.is_ok() {
                result = self.send_plain(&part).await;
            }
        }
        (parts, result)
    }

    fn peer_closed(&self) -> bool {
        self.stream.peer_closed()
    }

    fn close(&self) {
        self.stream.close();
    }
}
