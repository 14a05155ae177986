//! Notices as JSON, by POST to an address.

use super::{DELIVERY_MAX, Notice, NoticeChannel};
use axum::body::Body;
use axum::http::{Method, Request, Uri, header, uri::Authority};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Files of distributions with the certificates of authorities.
const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The refusal of a malformed URL, without the URL, which may contain a secret.
const WRONG: &str =
    "the webhook is no URL of http or https; give one such as https://example.com/hook";

/// An address.
pub struct Webhook {
    authority: Authority,
    path: String,
    /// The side of TLS, for https.
    tls: Option<TlsConnector>,
    runtime: Runtime,
}

impl Webhook {
    /// The address `url`, which is of `http` or `https`. The file `ca` has the certificates of the
    /// only authorities to trust, in PEM; without it, those that this machine trusts.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Webhook, String> {
        let uri: Uri = url.parse().map_err(|_| WRONG)?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(connector(ca)?),
            _ => return Err(WRONG.into()),
        };
        let authority = uri.authority().filter(|one| !one.host().is_empty());
        let authority = authority.ok_or(WRONG)?.clone();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path.to_owned();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no event loop can be had: {error}"))?;
        Ok(Webhook {
            authority,
            path,
            tls,
            runtime,
        })
    }

    async fn post(&self, body: String) -> Result<(), Box<dyn Error>> {
        let host = self.authority.host();
        let port = self.authority.port_u16();
        let port = port.unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await?;
        match &self.tls {
            None => self.exchange(stream, body).await,
            Some(tls) => {
                let name = ServerName::try_from(bare.to_owned())?;
                let stream = tls.connect(name, stream).await;
                let stream = stream.map_err(|error| without_tls(bare, &error))?;
                self.exchange(stream, body).await
            }
        }
    }

    /// Posts over `stream`. A redirect is not followed: notices go to the address of the operator
    /// alone.
    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        body: String,
    ) -> Result<(), Box<dyn Error>> {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        // A name and password before the host are not sent.
        let host = self.authority.as_str().rsplit('@').next();
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(header::HOST, host.unwrap_or_default())
            .header(header::USER_AGENT, "hotset")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body))?;
        let mut answer = pin!(sender.send_request(request));
        let answer = tokio::select! {
            answer = &mut answer => answer?,
            ended = connection => {
                ended?;
                // The answer may have come just before.
                answer.await?
            }
        };
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("it answered {status}").into()),
        }
    }
}

impl NoticeChannel for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn deliver(&self, notice: &Notice) -> Result<(), String> {
        let body = serde_json::to_string(notice).expect("plain data");
        let done = self
            .runtime
            .block_on(async { timeout(DELIVERY_MAX, self.post(body)).await });
        let late = |_| format!("it took longer than {DELIVERY_MAX:?}");
        done.map_err(late)?.map_err(|error| error.to_string())
    }
}

/// The reason why there is no TLS with `host`.
fn without_tls(host: &str, error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(why)) = cause else {
        return format!("no TLS with {host}: {error}");
    };
    let why = match why {
        // Another authority of the same name has signed a certificate of which the signature is bad.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority that is trusted here has signed it; name its authority by --webhook-ca"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired; renew it"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; compare the clocks of both machines"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name; give the URL with a name that it has"
        }
        other => return format!("the certificate of {host} is refused ({other}); renew it"),
    };
    format!("the certificate of {host} is refused: {why}")
}

/// TLS to servers with certificates of the authorities in `ca`, or of those that this machine
/// trusts.
fn connector(ca: Option<&Path>) -> Result<TlsConnector, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let authorities = match ca {
        Some(file) => authorities_of(file).ok_or_else(|| {
            let file = file.display();
            format!("{file} has no certificate that can be used; give a file in PEM")
        }),
        None => authorities(),
    };
    let config = config.with_root_certificates(authorities?);
    Ok(TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

/// The certificates of authorities that this machine trusts.
fn authorities() -> Result<RootCertStore, String> {
    let given = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let files = given.map_or_else(
        || AUTHORITIES.map(PathBuf::from).to_vec(),
        |file| vec![file],
    );
    let mut files = files.iter();
    files.find_map(|file| authorities_of(file)).ok_or_else(|| {
        "no certificates of authorities are found, which a webhook of https needs; install \
         ca-certificates, or name a file in PEM by --webhook-ca"
            .to_owned()
    })
}

/// The certificates in a file; `None` if it has none.
fn authorities_of(file: &Path) -> Option<RootCertStore> {
    let found = CertificateDer::pem_file_iter(file).ok()?;
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(found.filter_map(Result::ok));
    (taken > 0).then_some(roots)
}
