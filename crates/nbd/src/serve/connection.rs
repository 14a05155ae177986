//! One connection: handshake, then requests until either side ends it.

use super::limits::HANDSHAKE_INBOX_BYTES;
use super::link::{Admitted, LinkSource, Place, ServerLink};
use super::quota::Handshake;
use super::server::{Export, NbdServer, Tls};
use super::work::{self, ConnectionRequests};
use super::workers::{WorkerJob, WriteParts};
use crate::inbox::{INBOX_BYTES, ReceivedBytes};
use crate::outbox::Outbox;
use crate::protocol::gather::Gather;
use crate::protocol::request::WireRequest;
use crate::protocol::server_handshake::{ServerHandshake, ServerStep, TlsPolicy};
use crate::protocol::session::{NbdSession, RequestRefusal, SessionCommand, payload_bytes};
use crate::protocol::wire::REQUEST_BYTES;
use crate::tls::TLS_BYTES;
use crate::until_stopped::until_stopped;
use block::{AskedRead, Boundary, Buf, Fua, IoResult, Nanos, PAGE_BYTES, Pool, Stream};
use std::rc::Rc;

/// Reason for a connection's end, if worth a line in the log.
type Ending = Option<String>;

/// Serves a stream to its end.
pub(super) async fn run<G: Boundary, S: Stream>(
    server: &Rc<NbdServer<G>>,
    link: &Rc<ServerLink>,
    stream: Rc<S>,
    tls: Option<Tls>,
    entry: ConnectionEntry,
) -> Ending {
    let negotiation = negotiate(server, link, stream.clone(), tls, entry);
    let ending = until_stopped(link.life.is_killed(), negotiation).await;
    stream.close();
    match ending {
        Some(ending) => ending,
        None => {
            // Requests in flight are still carried out.
            link.finish();
            link.admission.leave();
            link.drained().await;
            link.life.killed().map(String::from)
        }
    }
}

/// The handshake, up to TLS, and then the rest over TLS.
async fn negotiate<G: Boundary, S: Stream>(
    server: &Rc<NbdServer<G>>,
    link: &Rc<ServerLink>,
    stream: Rc<S>,
    tls: Option<Tls>,
    entry: ConnectionEntry,
) -> Ending {
    let pool = &server.env.pool;
    let begun = server.env.timer.now();
    let mut out = Vec::new();
    let policy = tls.as_ref().map_or(TlsPolicy::Off, |(_, policy)| *policy);
    let mut handshake = ServerHandshake::new(policy, &mut out);
    let shaking = async {
        let mut inbox = ReceivedBytes::new(pool, HANDSHAKE_INBOX_BYTES).await;
        let shaken = shake(
            server,
            &mut handshake,
            &*stream,
            &mut inbox,
            &mut out,
            &entry.source,
        );
        Ok((shaken.await?, inbox))
    };
    let (shaken, inbox) = match timed(server, begun, shaking).await {
        Ok(shaken) => shaken,
        Err(ending) => return ending,
    };
    if let Some(chosen) = shaken {
        let fixed = INBOX_BYTES + PAGE_BYTES;
        return transmit(server, link, stream, inbox, chosen, entry, fixed).await;
    }
    let (acceptor, _) = tls.expect("STARTTLS needs a configuration");
    let shaking = async {
        let worker = server.worker.borrow().clone();
        let secure = acceptor.accept(stream, inbox.bytes(), pool, worker).await;
        let secure = secure.map_err(|e| Some(format!("the TLS handshake failed: {e}")))?;
        drop(inbox);
        let mut inbox = ReceivedBytes::new(pool, HANDSHAKE_INBOX_BYTES).await;
        out.clear();
        let shaken = shake(
            server,
            &mut handshake,
            &secure,
            &mut inbox,
            &mut out,
            &entry.source,
        );
        Ok((shaken.await?, inbox, secure))
    };
    match timed(server, begun, shaking).await {
        Ok((Some(chosen), inbox, mut secure)) => {
            secure.widen();
            let fixed = INBOX_BYTES + PAGE_BYTES + TLS_BYTES;
            let secure = Rc::new(secure);
            transmit(server, link, secure, inbox, chosen, entry, fixed).await
        }
        Ok((None, ..)) => Some("STARTTLS inside TLS".into()),
        Err(ending) => ending,
    }
}

/// A part of the handshake, all of which has begun at `begun`.
async fn timed<G: Boundary, T>(
    server: &NbdServer<G>,
    begun: Nanos,
    work: impl Future<Output = Result<T, Ending>>,
) -> Result<T, Ending> {
    let timer = &server.env.timer;
    let left = (begun + server.limits.handshake_timeout).since(timer.now());
    let stopping = server
        .stop
        .until_some(|| server.stopping.get().then_some(()));
    match until_stopped(stopping, timer.timeout(left, work)).await {
        None => Err(None),
        Some(None) => Err(Some("the handshake took too long".into())),
        Some(Some(result)) => result,
    }
}

/// An export, the session agreed for it, and a place to use it.
type Chosen<G> = (Rc<Export<G>>, NbdSession, Place);

/// The listener of a connection, and its handshake: needed until the handshake has ended.
pub(super) struct ConnectionEntry {
    pub(super) source: Rc<LinkSource>,
    #[expect(dead_code, reason = "held for its drop")]
    pub(super) handshake: Handshake<ServerLink>,
}

/// Negotiates until an export is chosen, or `None`: TLS begins.
async fn shake<G: Boundary, S: Stream>(
    server: &NbdServer<G>,
    handshake: &mut ServerHandshake,
    stream: &S,
    inbox: &mut ReceivedBytes,
    out: &mut Vec<u8>,
    source: &Rc<LinkSource>,
) -> Result<Option<Chosen<G>>, Ending> {
    let pool = &server.env.pool;
    loop {
        send(stream, pool, out).await.map_err(|_| None)?;
        let mut chosen = None;
        let step = inbox.parse(|input| {
            let exports = server.exports.borrow();
            let step = handshake.feed(input, &exports.infos, out);
            if let ServerStep::Transmit(index, session) = step {
                chosen = Some((exports.exports[index].clone(), session));
            }
            step
        });
        match step {
            ServerStep::More => {
                // A peer that comes and goes, or looks and leaves, is no failure.
                if !inbox.fill(stream).await.map_err(|_| None)? {
                    return Err(None);
                }
            }
            ServerStep::Answered => {}
            ServerStep::Close(why) => {
                send(stream, pool, out).await.map_err(|_| None)?;
                let orderly = why == "the client ended the negotiation";
                return Err((!orderly).then(|| why.into()));
            }
            ServerStep::StartTls => {
                send(stream, pool, out).await.map_err(|_| None)?;
                return Ok(None);
            }
            ServerStep::Transmit(..) => {
                let (export, session) = chosen.expect("set with the step");
                let Some(place) = source.place() else {
                    server.refuse();
                    return Err(None);
                };
                send(stream, pool, out).await.map_err(|_| None)?;
                return Ok(Some((export, session, place)));
            }
        }
    }
}

/// Sends and empties `out`.
async fn send(stream: &impl Stream, pool: &Pool, out: &mut Vec<u8>) -> IoResult {
    for piece in out.chunks(PAGE_BYTES) {
        let mut buf = pool.take(piece.len());
        buf.copy_from_slice(piece);
        stream.send(vec![buf.share()]).await.1?;
    }
    out.clear();
    Ok(())
}

async fn transmit<G: Boundary, S: Stream>(
    server: &Rc<NbdServer<G>>,
    link: &Rc<ServerLink>,
    stream: Rc<S>,
    mut inbox: ReceivedBytes,
    (export, session, place): Chosen<G>,
    entry: ConnectionEntry,
    fixed: usize,
) -> Ending {
    let peer = stream.clone();
    link.admission
        .enter(place, fixed, Box::new(move || peer.peer_closed()));
    drop(entry);
    server.publish();
    inbox.widen().await;
    let _attached = AttachedConnection::new(&export, link);
    link.life.serves(export.withdrawn.clone());
    let sender = sender(link.clone(), stream.clone(), server.env.pool.clone());
    server.env.spawn.spawn(sender);
    let requests = Rc::new(ConnectionRequests {
        server: server.clone(),
        link: link.clone(),
        export: export.clone(),
        session,
    });
    let mut reader = RequestReader {
        requests,
        stream,
        inbox,
        gather: Gather::default(),
    };
    let ending = until_stopped(link.life.is_killed(), reader.receive()).await;
    drop(reader);
    link.finish();
    link.admission.account.shrink(fixed - INBOX_BYTES);
    // The received requests are carried out, however long that takes.
    link.admission.leave();
    link.drained().await;
    match ending {
        Some(ending) => ending,
        None => link.life.killed().map(String::from),
    }
}

/// A connection that counts among those of its export until dropped.
struct AttachedConnection<G> {
    export: Rc<Export<G>>,
    link: Rc<ServerLink>,
}

impl<G> AttachedConnection<G> {
    fn new(export: &Rc<Export<G>>, link: &Rc<ServerLink>) -> AttachedConnection<G> {
        export.connections.set(export.connections.get() + 1);
        export.flushes.enter(&link.client);
        AttachedConnection {
            export: export.clone(),
            link: link.clone(),
        }
    }
}

impl<G> Drop for AttachedConnection<G> {
    fn drop(&mut self) {
        self.export.flushes.leave(&self.link.client);
        self.export
            .connections
            .set(self.export.connections.get() - 1);
    }
}

async fn sender<S: Stream>(link: Rc<ServerLink>, stream: Rc<S>, pool: Pool) {
    let mut outbox = Outbox::new(&pool);
    let mut parts = Vec::new();
    while let Some(frames) = link.next_frames().await {
        link.life.sending.set(true);
        let load = outbox.gather(frames, &mut parts).await;
        let result;
        (parts, result) = stream.send(parts).await;
        link.has_sent(load);
        if result.is_err() {
            link.kill("the peer does not take its replies");
        }
    }
}

/// Receives requests, begins reads, and hands the rest to the workers.
struct RequestReader<G: Boundary, S> {
    requests: Rc<ConnectionRequests<G>>,
    stream: Rc<S>,
    inbox: ReceivedBytes,
    gather: Gather<REQUEST_BYTES>,
}

impl<G: Boundary, S: Stream> RequestReader<G, S> {
    async fn receive(&mut self) -> Ending {
        loop {
            let wire = self.inbox.parse(|input| self.gather.take(input));
            let Some(wire) = wire else {
                match self.fill().await {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(ending) => return ending,
                }
            };
            let Some(request) = WireRequest::parse(&wire) else {
                return Some("something that is no NBD request".into());
            };
            let received = match self.requests.session.admit(&request) {
                Ok(SessionCommand::Disconnect) => {
                    self.requests.link.client.ends_in_order();
                    return None;
                }
                Ok(SessionCommand::Write { offset, len, fua }) => {
                    self.write(request.cookie, offset, len, fua).await
                }
                Ok(command) => {
                    let charge = |piece| charge(&command, piece);
                    let admitted = match self.requests.link.try_admit(charge) {
                        Some(admitted) => admitted,
                        None => self.requests.link.admit(charge).await,
                    };
                    self.hand_over(request.cookie, command, admitted);
                    Ok(())
                }
                Err(refusal) => self.refuse(&request, refusal).await,
            };
            if let Err(error) = received {
                return Some(error.to_string());
            }
        }
    }

    /// Receives more. False if the connection has to stop.
    async fn fill(&mut self) -> Result<bool, Ending> {
        let (server, export) = (&self.requests.server, &self.requests.export);
        let stops = || (server.stopping.get() || export.withdrawn.get()).then_some(());
        self.requests
            .link
            .life
            .receiving
            .set(self.gather.is_partial());
        let filled = until_stopped(
            server.stop.until_some(stops),
            self.inbox.fill(&*self.stream),
        )
        .await;
        self.requests.link.life.has_progressed();
        match filled {
            None => Ok(false),
            Some(Ok(true)) => Ok(true),
            // A peer that vanishes between requests has done no harm.
            Some(_) if !self.gather.is_partial() => Err(None),
            Some(_) => Err(Some("the stream ended inside a request".into())),
        }
    }

    /// Begins a read that can begin at once, and hands any other command to a worker.
    #[inline]
    fn hand_over(&self, cookie: u64, command: SessionCommand, admitted: Admitted<'_>) {
        let (charge, piece) = (admitted.charge(), admitted.piece);
        admitted.keep();
        if let SessionCommand::Read { offset, len, .. } = command
            && len <= piece
        {
            let read = AskedRead {
                offset,
                len,
                charge,
                ticket: cookie,
            };
            if self
                .requests
                .export
                .gate
                .begin_read(read, self.requests.clone())
            {
                return;
            }
        }
        self.requests.clone().dispatch(WorkerJob {
            cookie,
            command,
            charge,
            piece,
            payload: None,
            parts: None,
        });
    }

    /// Receives a write's payload, in parts if the payload is long.
    async fn write(&mut self, cookie: u64, offset: u64, len: u32, fua: Fua) -> IoResult {
        let link = self.requests.link.clone();
        let mut rest = None;
        let mut at = 0;
        while at < len {
            let from = offset + u64::from(at);
            let charge = |piece: u32| {
                let n = piece.min(len - at);
                work::charge(from, n) + work::rounded(n)
            };
            let admitted = match at {
                0 => link.admit(charge).await,
                _ => link.charge(charge).await,
            };
            let (charge, piece) = (admitted.charge(), admitted.piece);
            let n = piece.min(len - at);
            let payload = self.payload(n).await?.share();
            admitted.keep();
            if at == 0 && n < len {
                self.requests.export.gate.announce(offset, len.into()).await;
                rest = Some(WriteRest {
                    link: &link,
                    parts: Rc::new(WriteParts::new(len)),
                    left: len,
                });
            }
            let parts = rest.as_mut().map(|rest| rest.take(n));
            self.requests.clone().dispatch(WorkerJob {
                cookie,
                command: SessionCommand::Write {
                    offset: from,
                    len: n,
                    fua,
                },
                charge,
                piece,
                payload: Some(payload),
                parts,
            });
            at += n;
        }
        Ok(())
    }

    async fn payload(&mut self, len: u32) -> IoResult<Buf> {
        let buf = self.requests.server.env.pool.take(len as usize);
        let link = &self.requests.link;
        link.life.receiving.set(true);
        let received = self
            .inbox
            .fill_exact(&*self.stream, buf, || link.life.has_progressed())
            .await;
        link.life.receiving.set(false);
        received
    }

    /// Skips the payload, if there is one, and answers with an error. A client may not look for an
    /// answer before the end of its own request.
    async fn refuse(&mut self, request: &WireRequest, refusal: RequestRefusal) -> IoResult {
        self.requests.server.count(|s| s.errors.add(1));
        self.skip_payload(request).await?;
        let admitted = self.requests.link.admit(|_| 0).await;
        let pool = &self.requests.server.env.pool;
        let RequestRefusal { errno, why } = refusal;
        let frame = work::error(pool, &self.requests.session, request.cookie, errno, why);
        admitted.keep();
        self.requests.link.answer(frame);
        Ok(())
    }

    async fn skip_payload(&mut self, request: &WireRequest) -> IoResult {
        let mut left = payload_bytes(request) as usize;
        self.requests.link.life.receiving.set(left > 0);
        loop {
            let n = left.min(self.inbox.bytes().len());
            self.inbox.consume(n);
            left -= n;
            if left == 0 {
                break;
            }
            if !self.inbox.fill(&*self.stream).await? {
                break;
            }
            self.requests.link.life.has_progressed();
        }
        self.requests.link.life.receiving.set(false);
        Ok(())
    }
}

/// The memory that a command takes in pieces of a length; a write's is counted apart.
#[inline]
fn charge(command: &SessionCommand, piece: u32) -> u32 {
    match *command {
        SessionCommand::Read { offset, len, .. } | SessionCommand::Cache { offset, len } => {
            work::charge(offset, len.min(piece))
        }
        SessionCommand::Zero { .. } => piece,
        _ => 0,
    }
}

/// The bytes of a long write that have not arrived; given up when dropped.
struct WriteRest<'a> {
    link: &'a ServerLink,
    parts: Rc<WriteParts>,
    left: u32,
}

impl WriteRest<'_> {
    fn take(&mut self, bytes: u32) -> Rc<WriteParts> {
        self.left -= bytes;
        self.parts.clone()
    }
}

impl Drop for WriteRest<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.parts.abandon(self.link, self.left);
        }
    }
}
