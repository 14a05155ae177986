//! Addresses as people write them: NBD URIs and TCP listeners.

use block::Address;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// The port of NBD.
pub const NBD_PORT: u16 = 10809;

/// An export of an NBD server, by its URI:
/// `nbd+unix:///EXPORT?socket=PATH` or `nbd://HOST[:PORT]/EXPORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdUri {
    /// The server.
    pub address: Address,
    /// The export; empty for the server's default.
    pub export: String,
}

impl NbdUri {
    /// True if `text` is a URI rather than a path.
    pub fn is_uri(text: &str) -> bool {
        text.starts_with("nbd") && text.contains("://")
    }

    /// Identity of the export: one text however the links of its socket and its host are written.
    pub fn place(&self) -> String {
        match &self.address {
            Address::Unix(path) => {
                let path = Path::new(&**path);
                let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                format!("nbd+unix:///{}?socket={}", self.export, real.display())
            }
            Address::Tcp(host) => format!("nbd://{}/{}", host.to_ascii_lowercase(), self.export),
        }
    }

    /// The name for which a server's certificate must be valid.
    pub fn host(&self) -> &str {
        match &self.address {
            Address::Unix(_) => "localhost",
            Address::Tcp(host) => {
                let host = host.rsplit_once(':').map_or(&**host, |(host, _)| host);
                host.trim_start_matches('[').trim_end_matches(']')
            }
        }
    }

    /// Reads a URI. The error names the faulty part.
    pub fn parse(text: &str) -> Result<NbdUri, String> {
        if let Some(rest) = text.strip_prefix("nbd+unix://") {
            let (export, query) = rest
                .split_once('?')
                .ok_or("the URI names no socket: end it with ?socket=PATH")?;
            let socket = query
                .strip_prefix("socket=")
                .ok_or("after the question mark only socket=PATH is known")?;
            let export = export
                .strip_prefix('/')
                .ok_or("a unix socket has no host: write nbd+unix:///EXPORT?socket=PATH")?;
            if socket.is_empty() {
                return Err("the path of the socket is empty".into());
            }
            return Ok(NbdUri {
                address: Address::Unix(decode(socket)?.into()),
                export: decode(export)?,
            });
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
            if host.is_empty() {
                return Err("the URI names no host: write nbd://HOST:PORT/EXPORT".into());
            }
            return Ok(NbdUri {
                address: Address::Tcp(with_port(host).into()),
                export: decode(export)?,
            });
        }
        Err("write nbd+unix:///EXPORT?socket=PATH or nbd://HOST:PORT/EXPORT".into())
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => write!(f, "nbd+unix:///{}?socket={path}", self.export),
            Address::Tcp(host) => write!(f, "nbd://{host}/{}", self.export),
        }
    }
}

impl NbdUri {
    /// The URI as [`NbdUri::parse`] reads it, whatever is in its parts.
    pub(crate) fn encoded(&self) -> String {
        let encode = |text: &str| text.replace('%', "%25").replace('?', "%3F");
        let address = match &self.address {
            Address::Unix(path) => Address::Unix(encode(path).into()),
            tcp @ Address::Tcp(_) => tcp.clone(),
        };
        let export = encode(&self.export);
        NbdUri { address, export }.to_string()
    }
}

/// `host`, with NBD's port if it has none.
fn with_port(host: &str) -> String {
    let after_brackets = host.rsplit(']').next().unwrap_or(host);
    if after_brackets.contains(':') {
        host.to_owned()
    } else {
        format!("{host}:{NBD_PORT}")
    }
}

/// Undoes the percent-encoding of a URI's part.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let wrong = || format!("a percent sign without two hexadecimal digits in {text:?}");
        let digits = tail.get(..2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} does not decode to UTF-8"))
}

/// The TCP address of a listener: an IP address and a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpAddress(pub SocketAddr);

impl TcpAddress {
    /// Reads `IP` or `IP:PORT`.
    pub fn parse(text: &str) -> Result<TcpAddress, String> {
        let with_port = text.parse::<SocketAddr>().ok();
        let alone = || {
            let ip = text.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(ip, NBD_PORT))
        };
        with_port
            .or_else(alone)
            .map(TcpAddress)
            .ok_or_else(|| "write an IP address and a port, such as \"127.0.0.1:10809\"".into())
    }

    /// True if the address can be reached from this machine alone.
    pub fn is_loopback(self) -> bool {
        self.0.ip().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_both_kinds_are_read() {
        let unix = NbdUri::parse("nbd+unix:///vol%20a?socket=/run/a%2fb").unwrap();
        assert_eq!(unix.address, Address::Unix("/run/a/b".into()));
        assert_eq!(unix.export, "vol a");
        let tcp = NbdUri::parse("nbd://[::1]/v").unwrap();
        assert_eq!(tcp.address, Address::Tcp("[::1]:10809".into()));
        assert_eq!(tcp.host(), "::1");
        let tcp = NbdUri::parse("nbd://san:7").unwrap();
        assert_eq!(tcp.address, Address::Tcp("san:7".into()));
        assert_eq!(tcp.export, "");
    }

    #[test]
    fn what_is_no_uri_is_refused_with_the_right_form() {
        for bad in [
            "nbd+unix:///v",
            "nbd+unix:///v?socket=",
            "nbd+unix://host/v?socket=/s",
            "nbd+unix:///v?sock=/s",
            "nbds://h/v",
            "nbd:///v",
            "nbd://h/%zz",
            "nbd://h/%f",
            "nbd://h/%ff",
        ] {
            NbdUri::parse(bad).unwrap_err();
        }
    }

    #[test]
    fn loopback_is_distinguished_from_the_world() {
        assert!(TcpAddress::parse("127.0.0.1:1").unwrap().is_loopback());
        assert!(TcpAddress::parse("::1").unwrap().is_loopback());
        assert!(!TcpAddress::parse("0.0.0.0:1").unwrap().is_loopback());
        assert!(TcpAddress::parse("localhost:1").is_err());
    }
}
