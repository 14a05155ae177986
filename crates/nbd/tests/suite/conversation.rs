//! Both sides of the protocol talk to each other through a stream that is cut
//! anywhere; the bytes a client reads are those of a flat model.

use nbd::protocol::client_handshake::{self, ClientHandshake};
use nbd::protocol::coverage::Coverage;
use nbd::protocol::errno::Errno;
use nbd::protocol::export::{BlockSizes, ExportFeatures, ExportInfo};
use nbd::protocol::gather::Gather;
use nbd::protocol::replies::{PendingCookie, ReplyEvent, ReplyParser, Wants};
use nbd::protocol::reply;
use nbd::protocol::request::WireRequest;
use nbd::protocol::server_handshake::{self, ServerHandshake, TlsPolicy};
use nbd::protocol::session::{NbdSession, SessionCommand, payload_bytes};
use nbd::protocol::wire::{REQUEST_BYTES, chunk, cmd, flag};
use proptest::prelude::*;

const SIZE: usize = 64 << 10;

fn export(name: &str) -> ExportInfo {
    let features = ExportFeatures {
        read_only: false,
        rotational: false,
        trim: true,
        multi_conn: true,
    };
    let block = BlockSizes {
        min: 1,
        min_offered: 1,
        preferred: 4096,
        payload_max: 32 << 20,
    };
    ExportInfo::new(name, "", SIZE as u64, features, block).unwrap()
}

/// Moves bytes in pieces of the given sizes, again and again.
struct Wire {
    cuts: Vec<usize>,
    next: usize,
}

impl Wire {
    fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let cut = self.cuts[self.next % self.cuts.len()];
            self.next += 1;
            let (piece, rest) = bytes.split_at(cut.min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

/// Runs a handshake to its end; returns the session that each side has.
fn shake(
    name: &str,
    tls: bool,
    policy: TlsPolicy,
    wire: &mut Wire,
) -> Result<(usize, NbdSession, NbdSession), String> {
    let exports = [export(""), export("vol")];
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = ServerHandshake::new(policy, &mut to_client);
    let mut client = ClientHandshake::new(name, tls).unwrap();
    let mut ours = None;
    let mut theirs = None;
    while ours.is_none() || theirs.is_none() {
        let bytes = std::mem::take(&mut to_client);
        let mut moved = !bytes.is_empty();
        for mut piece in wire.pieces(&bytes) {
            while !piece.is_empty() {
                match client
                    .feed(&mut piece, &mut to_server)
                    .map_err(|e| e.to_string())?
                {
                    client_handshake::ClientStep::More => assert!(piece.is_empty()),
                    client_handshake::ClientStep::StartTls => client.encrypted(&mut to_server),
                    client_handshake::ClientStep::Ready(session) => theirs = Some(session),
                }
            }
        }
        let bytes = std::mem::take(&mut to_server);
        moved |= !bytes.is_empty();
        for mut piece in wire.pieces(&bytes) {
            while !piece.is_empty() {
                match server.feed(&mut piece, &exports, &mut to_client) {
                    server_handshake::ServerStep::More => assert!(piece.is_empty()),
                    server_handshake::ServerStep::Answered
                    | server_handshake::ServerStep::StartTls => {}
                    server_handshake::ServerStep::Transmit(index, session) => {
                        ours = Some((index, session));
                    }
                    server_handshake::ServerStep::Close(why) => return Err(why.into()),
                }
            }
        }
        assert!(moved, "both sides wait for the other");
    }
    let (index, ours) = ours.unwrap();
    Ok((index, ours, theirs.unwrap()))
}

/// A server of a flat array that answers reads in pieces and out of order.
struct Model {
    session: NbdSession,
    bytes: Vec<u8>,
    gather: Gather<REQUEST_BYTES>,
    write: Option<(WireRequest, Vec<u8>)>,
    piece: usize,
}

impl Model {
    fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        loop {
            if let Some((request, mut payload)) = self.write.take() {
                let n = input.len().min(request.len as usize - payload.len());
                payload.extend(&input[..n]);
                input = &input[n..];
                if payload.len() < request.len as usize {
                    self.write = Some((request, payload));
                    return;
                }
                self.answer(&request, &payload, out);
            }
            let Some(wire) = self.gather.take(&mut input) else {
                return;
            };
            let request = WireRequest::parse(&wire).expect("an honest client");
            if payload_bytes(&request) > 0 {
                self.write = Some((request, Vec::new()));
            } else {
                self.answer(&request, &[], out);
            }
        }
    }

    fn answer(&mut self, request: &WireRequest, payload: &[u8], out: &mut Vec<u8>) {
        let cookie = request.cookie;
        let range = |offset, len| offset as usize..offset as usize + len as usize;
        match self.session.admit(request) {
            Ok(SessionCommand::Read { offset, len, .. }) if self.session.structured => {
                let data = &self.bytes[range(offset, len)];
                let pieces = data.chunks(self.piece).enumerate();
                for (i, piece) in pieces.rev() {
                    let at = offset + (i * self.piece) as u64;
                    if piece.iter().all(|b| *b == 0) {
                        out.extend(reply::chunk(0, chunk::OFFSET_HOLE, cookie, 12));
                        out.extend(at.to_be_bytes());
                        out.extend((piece.len() as u32).to_be_bytes());
                    } else {
                        let len = piece.len() as u32 + 8;
                        out.extend(reply::chunk(0, chunk::OFFSET_DATA, cookie, len));
                        out.extend(at.to_be_bytes());
                        out.extend(piece);
                    }
                }
                out.extend(reply::chunk(chunk::DONE, chunk::NONE, cookie, 0));
            }
            Ok(SessionCommand::Read { offset, len, .. }) => {
                out.extend(reply::simple(0, cookie));
                out.extend(&self.bytes[range(offset, len)]);
            }
            Ok(command) => {
                match command {
                    SessionCommand::Write { offset, len, .. } => {
                        self.bytes[range(offset, len)].copy_from_slice(payload);
                    }
                    SessionCommand::Zero { offset, len, .. } => {
                        self.bytes[range(offset, len)].fill(0)
                    }
                    _ => {}
                }
                out.extend(reply::simple(0, cookie));
            }
            Err(refusal) if self.session.structured => {
                reply::put_error(out, cookie, refusal.errno, refusal.why);
            }
            Err(refusal) => out.extend(reply::simple(refusal.errno.code(), cookie)),
        }
    }
}

/// The answer to a request: its error, and the data of a read.
type ExpectedReply = (Option<Errno>, Option<Vec<u8>>);

/// The answers of a flat array of zeroes to `requests`, and the bytes of these.
fn expected(requests: &[(u16, u64, u32, u8)]) -> (Vec<u8>, Vec<ExpectedReply>) {
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    let mut truth = vec![0u8; SIZE];
    for (cookie, (cmd, offset, len, fill)) in (0..).zip(requests.iter().copied()) {
        let (offset, len) = match cmd {
            cmd::FLUSH => (0, 0),
            _ => (offset, len),
        };
        let request = WireRequest {
            flags: 0,
            cmd,
            cookie,
            offset,
            len,
        };
        bytes.extend(request.encode());
        let payload = vec![fill; payload_bytes(&request) as usize];
        bytes.extend(&payload);
        let end = offset as usize + len as usize;
        if cmd != cmd::FLUSH && (len == 0 || end > SIZE) {
            let past = len > 0 && matches!(cmd, cmd::WRITE | cmd::WRITE_ZEROES);
            let errno = if past { Errno::NoSpc } else { Errno::Inval };
            answers.push((Some(errno), None));
            continue;
        }
        let range = &mut truth[offset as usize..end];
        let mut data = None;
        match cmd {
            cmd::WRITE => range.copy_from_slice(&payload),
            cmd::WRITE_ZEROES => range.fill(0),
            cmd::READ => data = Some(range.to_vec()),
            _ => {}
        }
        answers.push((None, data));
    }
    (bytes, answers)
}

fn session(structured: bool) -> NbdSession {
    NbdSession {
        size_bytes: SIZE as u64,
        flags: export("").transmission_flags(structured),
        structured,
        allocation: None,
        block_bytes_min: 1,
        block_bytes_preferred: 4096,
        payload_bytes_max: 32 << 20,
    }
}

fn requests() -> impl Strategy<Value = Vec<(u16, u64, u32, u8)>> {
    let cmd = prop_oneof![
        Just(cmd::READ),
        Just(cmd::WRITE),
        Just(cmd::WRITE_ZEROES),
        Just(cmd::FLUSH)
    ];
    let request = (cmd, 0..SIZE as u64 + 100, 0u32..5000, any::<u8>());
    prop::collection::vec(request, 1..30)
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    let cut = prop_oneof![1usize..40, 1usize..5000];
    prop::collection::vec(cut, 1..20)
}

proptest! {
    #[test]
    fn both_sides_agree_on_every_handshake(
        named in any::<bool>(),
        tls in any::<bool>(),
        policy in prop_oneof![Just(TlsPolicy::Off), Just(TlsPolicy::Optional), Just(TlsPolicy::Required)],
        cuts in cuts(),
    ) {
        let name = if named { "vol" } else { "" };
        let outcome = shake(name, tls, policy, &mut Wire { cuts, next: 0 });
        let possible = match policy {
            TlsPolicy::Off => !tls,
            TlsPolicy::Optional => true,
            TlsPolicy::Required => tls,
        };
        prop_assert_eq!(outcome.is_ok(), possible, "{:?}", outcome);
        if let Ok((index, ours, theirs)) = outcome {
            prop_assert_eq!(index, usize::from(named));
            prop_assert_eq!(ours, theirs);
            prop_assert!(ours.structured && ours.allocation.is_some());
            prop_assert!(ours.flags & flag::SEND_DF != 0);
        }
    }

    #[test]
    fn an_unknown_export_is_refused(cuts in cuts()) {
        let outcome = shake("nope", false, TlsPolicy::Off, &mut Wire { cuts, next: 0 });
        prop_assert!(outcome.unwrap_err().contains("no such export"));
    }

    #[test]
    fn what_is_read_is_what_was_written(
        structured in any::<bool>(),
        requests in requests(),
        piece in 100usize..5000,
        cuts in cuts(),
    ) {
        let mut wire = Wire { cuts, next: 0 };
        let session = session(structured);
        let mut model = Model {
            session,
            bytes: vec![0; SIZE],
            gather: Gather::default(),
            write: None,
            piece,
        };
        let (bytes, expected) = expected(&requests);
        let mut answers = Vec::new();
        for piece in wire.pieces(&bytes) {
            model.feed(piece, &mut answers);
        }

        let pending = |cookie: u64| {
            let (cmd, offset, len, _) = *requests.get(cookie as usize)?;
            let wants = if cmd == cmd::READ { Wants::Data } else { Wants::Nothing };
            Some(PendingCookie { wants, offset, len })
        };
        let mut replies = ReplyParser::new(structured);
        let mut ended = 0;
        let mut got = vec![(None, vec![0xaa; 5000], Coverage::default()); requests.len()];
        for mut piece in wire.pieces(&answers) {
            while let Some(event) = replies.next(&mut piece, pending).unwrap() {
                match event {
                    ReplyEvent::Data { cookie, at, bytes } => {
                        let (_, data, coverage) = &mut got[cookie as usize];
                        data[at as usize..][..bytes.len()].copy_from_slice(bytes);
                        coverage.add(at, bytes.len() as u32).unwrap();
                    }
                    ReplyEvent::Hole { cookie, at, len } => {
                        let (_, data, coverage) = &mut got[cookie as usize];
                        data[at as usize..][..len as usize].fill(0);
                        coverage.add(at, len).unwrap();
                    }
                    ReplyEvent::Error { cookie, code, .. } => {
                        got[cookie as usize].0 = Some(Errno::from_code(code));
                    }
                    ReplyEvent::End { cookie } => {
                        ended += 1;
                        let (errno, data, coverage) = &got[cookie as usize];
                        let (want_errno, want_data) = &expected[cookie as usize];
                        prop_assert_eq!(errno, want_errno);
                        if let Some(want) = want_data {
                            prop_assert!(coverage.is_whole(want.len() as u32));
                            prop_assert_eq!(&data[..want.len()], &want[..]);
                        }
                    }
                    ReplyEvent::Extent { .. } => prop_assert!(false, "nobody asked for extents"),
                }
            }
        }
        prop_assert_eq!(ended, requests.len());
    }
}
