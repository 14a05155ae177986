//! Connections: accepting them, TLS, and limits for each client.

use axum::Router;
use control::{SIGN_AGAIN, old_version, plain};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// Connections at one time. One more takes the place of the oldest without a request, or is closed
/// at once.
const CONNECTIONS_MAX: usize = 256;
/// Time limit of a handshake, and of the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit of a connection; a browser's live stream then connects again.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(900);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server's identity, and its files.
pub struct Tls {
    files: (PathBuf, PathBuf),
    acceptor: TlsAcceptor,
}

impl Tls {
    pub fn of(files: &(PathBuf, PathBuf)) -> Result<Tls, String> {
        let (files, acceptor) = (files.clone(), acceptor(files)?);
        Ok(Tls { files, acceptor })
    }

    /// Reads the files again; wrong ones leave the identity as it was.
    fn renew(&mut self) {
        match acceptor(&self.files) {
            Ok(renewed) => self.acceptor = renewed,
            Err(why) => warn(&format!("the certificate stays as it was: {why}")),
        }
    }
}

/// Prints a warning on standard error, which may be a pipe that is full, or closed.
pub fn warn(why: &str) {
    let line = format!("hotset web: {}\n", plain(why));
    tokio::task::spawn_blocking(move || {
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
}

fn acceptor((certificate, key): &(PathBuf, PathBuf)) -> Result<TlsAcceptor, String> {
    let wrong = |file: &PathBuf, cause: &dyn std::fmt::Display| {
        format!(
            "{} cannot be used ({cause}); give a file in PEM",
            file.display()
        )
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(certificate, &error))?;
    let pem = std::fs::read(certificate).map_err(|error| wrong(certificate, &error))?;
    if let Some(old) = old_version(&pem) {
        let file = certificate.display();
        return Err(format!(
            "the certificate of {file} has version {old}, and TLS needs version 3; {SIGN_AGAIN}"
        ));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| {
            format!(
                "{} and {} do not fit each other ({error}); give a certificate and its own key",
                certificate.display(),
                key.display()
            )
        })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Begins to listen.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "end what listens there, or choose another port with --listen",
            ErrorKind::PermissionDenied => "choose a port above 1023 with --listen",
            _ => "choose an address of this machine with --listen",
        };
        format!("{address} cannot be listened on ({error}); {remedy}")
    })
}

/// Serves until SIGINT or SIGTERM; SIGHUP renews the certificate.
pub async fn serve(
    listener: TcpListener,
    mut tls: Option<Tls>,
    router: Router,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let signals = |kind| signal(kind).map_err(|error| format!("signals cannot be had: {error}"));
    let mut interrupt = signals(SignalKind::interrupt())?;
    let mut terminate = signals(SignalKind::terminate())?;
    let mut hangup = signals(SignalKind::hangup())?;
    let listening = format!("hotset web: listening on {scheme}://{address}/\n");
    let _ = std::io::stdout().write_all(listening.as_bytes());
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut silent = SilentConnections::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => {
                tls.iter_mut().for_each(Tls::renew);
                continue;
            }
        };
        let Ok((stream, _)) = accepted else {
            // Too many open files, for example, may pass.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let place = match free.clone().try_acquire_owned() {
            Err(_) if silent.end_oldest() => {
                let ended = timeout(ACCEPT_PAUSE, free.clone().acquire_owned()).await;
                ended.ok().and_then(Result::ok)
            }
            place => place.ok(),
        };
        let Some(place) = place else { continue };
        let tls = tls.as_ref().map(|tls| tls.acceptor.clone());
        let (router, heard) = (router.clone(), Arc::<AtomicBool>::default());
        let hears = heard.clone();
        let task = tokio::spawn(async move {
            let _place = place;
            match tls {
                None => converse(stream, router, hears).await,
                Some(tls) => {
                    if let Ok(Ok(stream)) = timeout(HEAD_TIME_MAX, tls.accept(stream)).await {
                        converse(stream, router, hears).await;
                    }
                }
            }
        });
        silent.add(heard, task.abort_handle());
    }
}

/// Connections without a request, from the oldest on: strangers hold them without a token.
#[derive(Default)]
struct SilentConnections(VecDeque<(Arc<AtomicBool>, AbortHandle)>);

impl SilentConnections {
    fn add(&mut self, heard: Arc<AtomicBool>, task: AbortHandle) {
        self.forget_others();
        self.0.push_back((heard, task));
    }

    /// Ends the oldest. Returns false if there is none.
    fn end_oldest(&mut self) -> bool {
        self.forget_others();
        let oldest = self.0.pop_front();
        oldest.inspect(|(_, task)| task.abort()).is_some()
    }

    /// Forgets connections with a request, and those that have ended.
    fn forget_others(&mut self) {
        self.0
            .retain(|(heard, task)| !heard.load(Relaxed) && !task.is_finished());
    }
}

/// Answers the requests of one connection; `heard` becomes true with the first.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    heard: Arc<AtomicBool>,
) {
    let answers = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        heard.store(true, Relaxed);
        answers.call(request)
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(64 << 10);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    // An error of the connection concerns its client alone.
    let _ = timeout(CONNECTION_TIME_MAX, connection).await;
}
