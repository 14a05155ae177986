//! Feeds arbitrary bytes to both sides of the protocol, for the deterministic test and the fuzz
//! targets. A violated assertion is a bug.

use nbd::protocol::client_handshake::{self, ClientHandshake};
use nbd::protocol::export::{BlockSizes, ExportFeatures, ExportInfo};
use nbd::protocol::gather::Gather;
use nbd::protocol::replies::{PendingCookie, ReplyEvent, ReplyParser, Wants};
use nbd::protocol::request::WireRequest;
use nbd::protocol::server_handshake::{self, ServerHandshake, TlsPolicy};
use nbd::protocol::session::{NbdSession, SessionCommand, payload_bytes};
use nbd::protocol::wire::REQUEST_BYTES;

/// More than any answer to one option.
const ANSWER_BYTES_MAX: usize = 32 << 10;

/// The exports that the server under test offers.
pub fn exports() -> Vec<ExportInfo> {
    let features = ExportFeatures {
        read_only: false,
        rotational: true,
        trim: true,
        multi_conn: true,
    };
    let block = BlockSizes {
        min: 512,
        min_offered: 512,
        preferred: 4096,
        payload_max: 32 << 20,
    };
    ["", "vol", "other"]
        .map(|name| ExportInfo::new(name, "for a test", 1 << 20, features, block).unwrap())
        .to_vec()
}

/// Splits the first byte off: how the rest is cut up and which mode is used.
fn mode(bytes: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (mode, rest) = bytes.split_first()?;
    let cut = [1, 2, 3, 7, 16, 28, 100, usize::MAX][usize::from(mode >> 5)];
    Some((mode & 31, cut, rest))
}

/// Runs a client of unknown intent against the server; returns the number of its admitted requests.
pub fn server(bytes: &[u8]) -> usize {
    let mut admitted = 0;
    let Some((mode, cut, bytes)) = mode(bytes) else {
        return admitted;
    };
    let tls = [TlsPolicy::Off, TlsPolicy::Optional, TlsPolicy::Required][usize::from(mode % 3)];
    let exports = exports();
    let mut out = Vec::new();
    let mut handshake = ServerHandshake::new(tls, &mut out);
    let mut session: Option<NbdSession> = None;
    let mut gather = Gather::<REQUEST_BYTES>::default();
    let mut payload = 0;
    for mut input in bytes.chunks(cut.min(bytes.len().max(1))) {
        while session.is_none() {
            out.clear();
            match handshake.feed(&mut input, &exports, &mut out) {
                server_handshake::ServerStep::More => break,
                server_handshake::ServerStep::Answered | server_handshake::ServerStep::StartTls => {
                }
                server_handshake::ServerStep::Transmit(index, agreed) => {
                    assert_eq!(agreed.size_bytes, exports[index].size_bytes);
                    session = Some(agreed);
                }
                server_handshake::ServerStep::Close(_) => return admitted,
            }
            assert!(out.len() < ANSWER_BYTES_MAX);
        }
        let Some(session) = &session else { continue };
        while !input.is_empty() {
            if payload > 0 {
                let n = input.len().min(payload);
                input = &input[n..];
                payload -= n;
                continue;
            }
            let Some(wire) = gather.take(&mut input) else {
                continue;
            };
            let Some(request) = WireRequest::parse(&wire) else {
                return admitted;
            };
            payload = payload_bytes(&request) as usize;
            if let Ok(command) = session.admit(&request) {
                check(session, command);
                admitted += 1;
            }
        }
    }
    admitted
}

fn check(session: &NbdSession, command: SessionCommand) {
    if let SessionCommand::Read { offset, len, .. }
    | SessionCommand::Write { offset, len, .. }
    | SessionCommand::Zero { offset, len, .. }
    | SessionCommand::Trim { offset, len, .. }
    | SessionCommand::Cache { offset, len }
    | SessionCommand::BlockStatus { offset, len, .. } = command
    {
        assert!(len > 0 && offset + u64::from(len) <= session.size_bytes);
    }
}

/// Runs a server of unknown intent against the client; returns the number of its events.
pub fn client(bytes: &[u8]) -> usize {
    let mut events = 0;
    let Some((mode, cut, bytes)) = mode(bytes) else {
        return events;
    };
    let mut handshake = ClientHandshake::new("vol", mode & 1 != 0).unwrap();
    let mut out = Vec::new();
    let mut replies: Option<ReplyParser> = None;
    for mut input in bytes.chunks(cut.min(bytes.len().max(1))) {
        while replies.is_none() {
            out.clear();
            match handshake.feed(&mut input, &mut out) {
                Ok(client_handshake::ClientStep::More) => break,
                Ok(client_handshake::ClientStep::StartTls) => handshake.encrypted(&mut out),
                Ok(client_handshake::ClientStep::Ready(session)) => {
                    assert!(session.block_bytes_min.is_power_of_two());
                    assert!(session.payload_bytes_max >= session.block_bytes_min);
                    replies = Some(ReplyParser::new(session.structured));
                }
                Err(_) => return events,
            }
            assert!(out.len() < ANSWER_BYTES_MAX);
        }
        let Some(replies) = &mut replies else {
            continue;
        };
        loop {
            match replies.next(&mut input, pending) {
                Ok(Some(event)) => check_event(event),
                Ok(None) => break,
                Err(_) => return events,
            }
            events += 1;
        }
        assert!(input.is_empty());
    }
    events
}

/// Cookies 0 to 15 are pending.
fn pending(cookie: u64) -> Option<PendingCookie> {
    let wants = [Wants::Data, Wants::Extents, Wants::Nothing][(cookie % 3) as usize];
    (cookie < 16).then_some(PendingCookie {
        wants,
        offset: cookie << 12,
        len: 4096,
    })
}

fn check_event(event: ReplyEvent<'_>) {
    match event {
        ReplyEvent::Data { cookie, at, bytes } => {
            assert_eq!(pending(cookie).unwrap().wants, Wants::Data);
            assert!(!bytes.is_empty() && at as usize + bytes.len() <= 4096);
        }
        ReplyEvent::Hole { at, len, .. } => assert!(len > 0 && at + len <= 4096),
        ReplyEvent::Extent { len, .. } => assert!(len > 0 && len <= 4096),
        ReplyEvent::Error { code, message, .. } => {
            assert!(code != 0 && message.len() <= 3 * 4096);
        }
        ReplyEvent::End { cookie } => assert!(pending(cookie).is_some()),
    }
}
