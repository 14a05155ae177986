//! One connection: handshake, then requests until either side ends it.

use super::link::{Job, Link, Parts};
use super::{Export, Server, Tls, work};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::protocol::gather::Gather;
use crate::protocol::request::Request;
use crate::protocol::server_handshake::{ServerHandshake, Step, TlsPolicy};
use crate::protocol::session::{Command, Refusal, Session, payload_bytes};
use crate::protocol::wire::REQUEST_BYTES;
use crate::signal::unless;
use block::{Buf, Device, Fua, IoResult, Pool, Stream};
use std::rc::Rc;

/// Why a connection ended, where that is worth a line in the log.
type Ending = Option<String>;

/// Serves a stream to its end.
pub(super) async fn run<D: Device, S: Stream>(
    server: &Rc<Server<D>>,
    link: &Rc<Link>,
    stream: Rc<S>,
    tls: Option<Tls>,
) -> Ending {
    let ending = unless(
        link.is_killed(),
        negotiate(server, link, stream.clone(), tls),
    )
    .await;
    stream.close();
    match ending {
        Some(ending) => ending,
        None => {
            // What is in flight is still carried out.
            link.finish();
            link.drained().await;
            link.killed().map(String::from)
        }
    }
}

/// The handshake, up to TLS, and then the rest over TLS.
async fn negotiate<D: Device, S: Stream>(
    server: &Rc<Server<D>>,
    link: &Rc<Link>,
    stream: Rc<S>,
    tls: Option<Tls>,
) -> Ending {
    let pool = &server.env.pool;
    let mut inbox = Inbox::new(pool).await;
    let mut out = Vec::new();
    let policy = tls.as_ref().map_or(TlsPolicy::Off, |(_, policy)| *policy);
    let mut handshake = ServerHandshake::new(policy, &mut out);
    let deadline = server.env.timer.now() + server.limits.handshake_timeout;
    let time_left = || deadline.since(server.env.timer.now());
    let shaking = shake(server, &mut handshake, &*stream, &mut inbox, &mut out);
    let shaken = match timed(server, time_left(), shaking).await {
        Ok(shaken) => shaken,
        Err(ending) => return ending,
    };
    if let Some(chosen) = shaken {
        return transmit(server, link, stream, inbox, chosen).await;
    }
    let (acceptor, _) = tls.expect("STARTTLS needs a configuration");
    let secure = acceptor.accept(stream, inbox.bytes(), pool);
    let stream = match timed(server, time_left(), async {
        secure
            .await
            .map_err(|e| Some(format!("the TLS handshake failed: {e}")))
    })
    .await
    {
        Ok(stream) => Rc::new(stream),
        Err(ending) => return ending,
    };
    inbox = Inbox::new(pool).await;
    out.clear();
    let shaking = shake(server, &mut handshake, &*stream, &mut inbox, &mut out);
    match timed(server, time_left(), shaking).await {
        Ok(Some(chosen)) => transmit(server, link, stream, inbox, chosen).await,
        Ok(None) => Some("STARTTLS inside TLS".into()),
        Err(ending) => ending,
    }
}

async fn timed<D: Device, T>(
    server: &Server<D>,
    span: block::Nanos,
    work: impl Future<Output = Result<T, Ending>>,
) -> Result<T, Ending> {
    let stopping = server.stop.until(|| server.stopping.get().then_some(()));
    let work = server.env.timer.timeout(span, work);
    match unless(stopping, work).await {
        None => Err(None),
        Some(None) => Err(Some("the handshake took too long".into())),
        Some(Some(result)) => result,
    }
}

/// An export and what was agreed about it.
type Chosen<D> = (Rc<Export<D>>, Session);

/// Negotiates until an export is chosen, or `None`: TLS begins.
async fn shake<D: Device, S: Stream>(
    server: &Server<D>,
    handshake: &mut ServerHandshake,
    stream: &S,
    inbox: &mut Inbox,
    out: &mut Vec<u8>,
) -> Result<Option<Chosen<D>>, Ending> {
    let pool = &server.env.pool;
    loop {
        send(stream, pool, out).await.map_err(|_| None)?;
        let mut chosen = None;
        let step = inbox.parse(|input| {
            let exports = server.exports.borrow();
            let step = handshake.feed(input, &exports.infos, out);
            if let Step::Transmit(index, session) = step {
                chosen = Some((exports.exports[index].clone(), session));
            }
            step
        });
        match step {
            Step::More => {
                // A peer that comes and goes, or looks and leaves, is no failure.
                if !inbox.fill(stream).await.map_err(|_| None)? {
                    return Err(None);
                }
            }
            Step::Answered => {}
            Step::Close(why) => {
                send(stream, pool, out).await.map_err(|_| None)?;
                let orderly = why == "the client ended the negotiation";
                return Err((!orderly).then(|| why.into()));
            }
            Step::StartTls => {
                send(stream, pool, out).await.map_err(|_| None)?;
                return Ok(None);
            }
            Step::Transmit(..) => {
                send(stream, pool, out).await.map_err(|_| None)?;
                return Ok(chosen);
            }
        }
    }
}

/// Sends and empties `out`.
async fn send(stream: &impl Stream, pool: &Pool, out: &mut Vec<u8>) -> IoResult {
    for piece in out.chunks(64 << 10) {
        let mut buf = pool.take(piece.len());
        buf.copy_from_slice(piece);
        stream.send(vec![buf.share()]).await.1?;
    }
    out.clear();
    Ok(())
}

async fn transmit<D: Device, S: Stream>(
    server: &Rc<Server<D>>,
    link: &Rc<Link>,
    stream: Rc<S>,
    inbox: Inbox,
    (export, session): Chosen<D>,
) -> Ending {
    let _attached = Attached::new(&export, link);
    link.serves(export.withdrawn.clone());
    let sender = sender(link.clone(), stream.clone(), server.env.pool.clone());
    server.env.spawn.spawn(sender);
    let mut reader = Reader {
        server: server.clone(),
        link: link.clone(),
        stream,
        inbox,
        export: export.clone(),
        session,
        gather: Gather::default(),
    };
    let ending = unless(link.is_killed(), reader.requests()).await;
    link.finish();
    link.drained().await;
    match ending {
        Some(ending) => ending,
        None => link.killed().map(String::from),
    }
}

/// A connection that counts among those of its export until dropped.
struct Attached<D> {
    export: Rc<Export<D>>,
    link: Rc<Link>,
}

impl<D> Attached<D> {
    fn new(export: &Rc<Export<D>>, link: &Rc<Link>) -> Attached<D> {
        export.connections.set(export.connections.get() + 1);
        export.flushes.enter(&link.client);
        Attached {
            export: export.clone(),
            link: link.clone(),
        }
    }
}

impl<D> Drop for Attached<D> {
    fn drop(&mut self) {
        self.export.flushes.leave(&self.link.client);
        self.export
            .connections
            .set(self.export.connections.get() - 1);
    }
}

async fn sender<S: Stream>(link: Rc<Link>, stream: Rc<S>, pool: Pool) {
    let mut outbox = Outbox::new(&pool);
    let mut parts = Vec::new();
    while let Some(frames) = link.next_frames().await {
        link.sending.set(true);
        let load = outbox.gather(frames, &mut parts).await;
        let result;
        (parts, result) = stream.send(parts).await;
        link.has_sent(load);
        if result.is_err() {
            link.kill("the peer does not take its replies");
        }
    }
}

/// Reads requests and hands them to the workers.
struct Reader<D: Device, S> {
    server: Rc<Server<D>>,
    link: Rc<Link>,
    stream: Rc<S>,
    inbox: Inbox,
    export: Rc<Export<D>>,
    session: Session,
    gather: Gather<REQUEST_BYTES>,
}

impl<D: Device, S: Stream> Reader<D, S> {
    async fn requests(&mut self) -> Ending {
        loop {
            let wire = self.inbox.parse(|input| self.gather.take(input));
            let Some(wire) = wire else {
                match self.fill().await {
                    Ok(true) => continue,
                    Ok(false) => return None,
                    Err(ending) => return ending,
                }
            };
            let Some(request) = Request::parse(&wire) else {
                return Some("something that is no NBD request".into());
            };
            let received = match self.session.admit(&request) {
                Ok(Command::Disconnect) => {
                    self.link.client.ends_in_order();
                    return None;
                }
                Ok(Command::Write { offset, len, fua }) => {
                    self.write(request.cookie, offset, len, fua).await
                }
                Ok(command) => {
                    if !self.begin(request.cookie, command) {
                        self.link.admit(self.charge(&command)).await.keep();
                        self.hand_over(request.cookie, command);
                    }
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
        let (server, export) = (&self.server, &self.export);
        let stops = || (server.stopping.get() || export.withdrawn.get()).then_some(());
        self.link.receiving.set(self.gather.is_partial());
        let filled = unless(server.stop.until(stops), self.inbox.fill(&*self.stream)).await;
        self.link.has_progressed();
        match filled {
            None => Ok(false),
            Some(Ok(true)) => Ok(true),
            // A peer that vanishes between requests has done no harm.
            Some(_) if !self.gather.is_partial() => Err(None),
            Some(_) => Err(Some("the stream ended inside a request".into())),
        }
    }

    /// Begins a command if the limits allow it now.
    #[inline]
    fn begin(&self, cookie: u64, command: Command) -> bool {
        let Some(admitted) = self.link.try_admit(self.charge(&command)) else {
            return false;
        };
        admitted.keep();
        self.hand_over(cookie, command);
        true
    }

    /// Hands a command that was admitted to a worker.
    #[inline]
    fn hand_over(&self, cookie: u64, command: Command) {
        self.dispatch(Job {
            cookie,
            command,
            charge: self.charge(&command),
            payload: None,
            parts: None,
        });
    }

    #[inline]
    fn charge(&self, command: &Command) -> u32 {
        match *command {
            Command::Read { offset, len, .. } | Command::Cache { offset, len } => {
                work::charge(offset, len.min(self.link.piece_bytes))
            }
            Command::Zero { .. } => self.link.piece_bytes,
            _ => 0,
        }
    }

    fn dispatch(&self, job: Job) {
        if let Some(number) = self.link.dispatch(job) {
            let worker = work::worker(
                self.server.clone(),
                self.link.clone(),
                self.export.clone(),
                self.session,
                number,
            );
            self.server.env.spawn.spawn(worker);
        }
    }

    /// Receives a write's payload, in parts if it is long.
    async fn write(&mut self, cookie: u64, offset: u64, len: u32, fua: Fua) -> IoResult {
        let link = self.link.clone();
        let piece = link.piece_bytes;
        let mut rest = None;
        for at in (0..len).step_by(piece as usize) {
            let (offset, n) = (offset + u64::from(at), piece.min(len - at));
            let charge = work::charge(offset, n) + work::rounded(n);
            let admitted = match at {
                0 => link.admit(charge).await,
                _ => link.charge(charge).await,
            };
            let payload = self.payload(n).await?.share();
            admitted.keep();
            if at == 0 && n < len {
                rest = Some(Rest {
                    link: &link,
                    parts: Rc::new(Parts::new(len.div_ceil(piece))),
                    left: len.div_ceil(piece),
                });
            }
            let parts = rest.as_mut().map(Rest::next);
            self.dispatch(Job {
                cookie,
                command: Command::Write {
                    offset,
                    len: n,
                    fua,
                },
                charge,
                payload: Some(payload),
                parts,
            });
        }
        Ok(())
    }

    async fn payload(&mut self, len: u32) -> IoResult<Buf> {
        let buf = self.server.env.pool.take(len as usize);
        let link = &self.link;
        link.receiving.set(true);
        let received = self
            .inbox
            .fill_exact(&*self.stream, buf, || link.has_progressed())
            .await;
        link.receiving.set(false);
        received
    }

    /// Answers with an error and skips the payload, if there is one.
    async fn refuse(&mut self, request: &Request, refusal: Refusal) -> IoResult {
        self.server.count(|s| s.errors += 1);
        let admitted = self.link.admit(0).await;
        let pool = &self.server.env.pool;
        let Refusal { errno, why } = refusal;
        let frame = work::error(pool, &self.session, request.cookie, errno, why).await;
        admitted.keep();
        self.link.answer(frame);
        let mut left = payload_bytes(request) as usize;
        self.link.receiving.set(left > 0);
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
            self.link.has_progressed();
        }
        self.link.receiving.set(false);
        Ok(())
    }
}

/// The parts of a long write that have not arrived; given up when dropped.
struct Rest<'a> {
    link: &'a Link,
    parts: Rc<Parts>,
    left: u32,
}

impl Rest<'_> {
    fn next(&mut self) -> Rc<Parts> {
        self.left -= 1;
        self.parts.clone()
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.parts.abandon(self.link, self.left);
        }
    }
}
