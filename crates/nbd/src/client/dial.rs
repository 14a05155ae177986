//! Sessions with the server: how to get one, and the comparison with an earlier one.

use super::negotiate::negotiate;
use super::options::Options;
use crate::inbox::{INBOX_BYTES, ReceivedBytes};
use crate::protocol::client_handshake::ClientHandshake;
use crate::protocol::session::NbdSession;
use crate::protocol::wire::flag;
use crate::tls::TlsStream;
use block::{Address, Connector, Deadline, Env, IoError, IoErrorKind, IoResult, Stream};
use std::rc::Rc;

/// Features that requests rely on.
const USED: u16 = flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES;

/// A stream with or without TLS, after its handshake.
pub(super) enum Wire<S> {
    Plain(Rc<S>, ReceivedBytes, NbdSession),
    Secure(Rc<TlsStream<S>>, ReceivedBytes, NbdSession),
}

impl<S> Wire<S> {
    /// The agreed session.
    pub(super) fn session(&self) -> NbdSession {
        match self {
            Wire::Plain(_, _, session) | Wire::Secure(_, _, session) => *session,
        }
    }
}

/// Connects and negotiates, within the time for that.
pub(super) async fn connect<C: Connector>(
    env: &Env,
    connector: &C,
    options: &Options,
) -> IoResult<Wire<C::Stream>> {
    let span = options.connect_timeout;
    let work = async {
        let address = &options.address;
        let stream = connector.connect(address.clone()).await?;
        shake(env, Rc::new(stream), options).await
    };
    match Deadline::new(&env.timer, span).bound(work).await {
        Some(result) => result,
        None => Err(IoError::new(
            IoErrorKind::Timeout,
            format!(
                "no NBD session with {} within {} s; see to the server",
                display(&options.address),
                span.as_secs_f64()
            ),
        )),
    }
}

fn display(address: &Address) -> &str {
    match address {
        Address::Unix(path) => path,
        Address::Tcp(host) => host,
    }
}

async fn shake<S: Stream>(env: &Env, stream: Rc<S>, options: &Options) -> IoResult<Wire<S>> {
    let mut out = Vec::new();
    let mut inbox = ReceivedBytes::new(&env.pool, INBOX_BYTES).await;
    let mut handshake = ClientHandshake::new(&options.export, options.tls.is_some())?;
    let agreed = negotiate(&mut handshake, &*stream, env, &mut out, &mut inbox).await?;
    if let Some(session) = agreed {
        return Ok(Wire::Plain(stream, inbox, session));
    }
    let dialer = options.tls.as_ref().expect("TLS was asked for");
    if !inbox.bytes().is_empty() {
        let what = "the NBD server sent plain text after it agreed to TLS";
        return Err(IoError::new(IoErrorKind::Stream, what));
    }
    let mut secure = dialer.dial(stream, &env.pool).await?;
    secure.widen();
    let secure = Rc::new(secure);
    handshake.encrypted(&mut out);
    match negotiate(&mut handshake, &*secure, env, &mut out, &mut inbox).await? {
        Some(session) => Ok(Wire::Secure(secure, inbox, session)),
        None => Err(IoError::new(
            IoErrorKind::Stream,
            "the NBD server asked for TLS twice",
        )),
    }
}

/// Refuses an export of another shape: smaller, coarser, or with other features. Numbers of one
/// session and advice may differ. A larger export still has all earlier bytes.
pub(super) fn check_same(first: &NbdSession, now: &NbdSession) -> IoResult {
    if first.size_bytes > now.size_bytes {
        let what = format!(
            "the NBD export has {} bytes now and had {}; bring the former export back",
            now.size_bytes, first.size_bytes
        );
        return Err(IoError::new(IoErrorKind::Invalid, what));
    }
    let lacks = first.flags & !now.flags & USED;
    let gains = now.flags & !first.flags & (flag::SEND_FLUSH | flag::READ_ONLY);
    let is_coarser = now.block_bytes_min > first.block_bytes_min
        || now.payload_bytes_max < first.payload_bytes_max;
    let reports_less = first.allocation.is_some() && now.allocation.is_none();
    if lacks | gains != 0 || is_coarser || reports_less {
        let what = "the NBD export offers other features than before; bring the former export back";
        return Err(IoError::new(IoErrorKind::Invalid, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_another_by_what_requests_rely_on_alone() {
        let first = NbdSession {
            size_bytes: 1 << 20,
            flags: USED,
            structured: true,
            allocation: Some(1),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            payload_bytes_max: 1 << 20,
        };
        type Change = fn(&mut NbdSession);
        let cases: [(Change, Option<&str>); 12] = [
            (|s| s.allocation = Some(7), None),
            (|s| s.block_bytes_preferred = 65536, None),
            (|s| s.payload_bytes_max = 2 << 20, None),
            (|s| s.flags |= flag::ROTATIONAL, None),
            (|s| s.block_bytes_min = 1, None),
            (|s| s.size_bytes = 2 << 20, None),
            (
                |s| s.size_bytes = 1 << 19,
                Some("has 524288 bytes now and had 1048576"),
            ),
            (|s| s.allocation = None, Some("other features")),
            (|s| s.flags &= !flag::SEND_FUA, Some("other features")),
            (|s| s.flags |= flag::READ_ONLY, Some("other features")),
            (|s| s.block_bytes_min = 4096, Some("other features")),
            (|s| s.payload_bytes_max = 4096, Some("other features")),
        ];
        for (n, (change, expected)) in cases.into_iter().enumerate() {
            let mut now = first;
            change(&mut now);
            let error = check_same(&first, &now)
                .err()
                .map(|error| error.to_string());
            match (&error, expected) {
                (Some(error), Some(expected)) => assert!(error.contains(expected), "{error}"),
                (error, expected) => {
                    assert!(error.is_none() && expected.is_none(), "{n}: {error:?}")
                }
            }
        }
        // A cache that its disk may lose has to be flushed from the first write on.
        let safe = NbdSession {
            flags: USED & !flag::SEND_FLUSH,
            ..first
        };
        assert!(check_same(&safe, &first).is_err());
    }
}
