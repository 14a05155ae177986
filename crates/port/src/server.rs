//! The requests of a port, from each to its answer.
//!
//! A read that begins at once needs no task: its end is the answer. Any other request is a task.

use block::{
    Answer, AskedRead, Boundary, Env, Extent, IoError, IoErrorKind, IoResult, Nanos, Port,
    ReadTaker, Request, RequestTaker, Semaphore, SharedBuf, Signal, Tag,
};
use std::cell::Cell;
use std::rc::Rc;

/// The options of a server.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Refuses everything that writes.
    pub read_only: bool,
    /// Bytes of requests in hand at one time.
    pub memory_bytes_max: usize,
}

/// Counts since the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Requests answered.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// A port that is served.
pub struct PortServer<P, G> {
    port: P,
    gate: G,
    env: Env,
    options: Options,
    /// The bytes of requests that may still be in hand.
    bytes: Semaphore,
    stats: Cell<PortStats>,
    /// Number of tags that are served.
    tags: Cell<u16>,
    /// Number of requests begun and not answered.
    in_hand: Cell<u16>,
    stopping: Cell<bool>,
    /// One of the three has changed.
    changed: Signal,
}

impl<P: Port, G: Boundary> PortServer<P, G> {
    /// Begins to serve `port` by `gate`.
    pub fn begin(port: P, gate: G, options: Options, env: Env) -> Rc<PortServer<P, G>> {
        let tags = port.tags();
        let server = Rc::new(PortServer {
            port,
            gate,
            env,
            options,
            bytes: Semaphore::new(options.memory_bytes_max),
            stats: Cell::default(),
            tags: Cell::new(tags),
            in_hand: Cell::new(0),
            stopping: Cell::new(false),
            changed: Signal::default(),
        });
        (0..tags).for_each(|tag| server.clone().next(Tag(tag), None));
        server
    }

    /// The counts so far.
    pub fn stats(&self) -> PortStats {
        self.stats.get()
    }

    /// Number of tags that are served.
    pub fn tags(&self) -> u16 {
        self.tags.get()
    }

    /// Number of requests begun and not answered.
    pub fn in_hand(&self) -> u16 {
        self.in_hand.get()
    }

    /// Waits until the port has ended.
    pub async fn ended(&self) {
        self.changed.until(|| self.tags.get() == 0).await;
    }

    /// Begins no further request, and waits until those begun are answered, at most for `grace`.
    /// Returns true if all are. The port stays as it is.
    pub async fn stop(&self, grace: Nanos) -> bool {
        self.stopping.set(true);
        let answered = self.changed.until(|| self.in_hand.get() == 0);
        self.env.timer.timeout(grace, answered).await.is_some()
    }

    /// Ends the port.
    pub fn close(&self) {
        self.port.close();
    }

    /// Answers the request of `tag`, if there is one, and begins to wait for the next.
    #[inline]
    fn next(self: Rc<Self>, tag: Tag, answer: Option<Answer>) {
        if let Err(answer) = self.port.begin_next(tag, answer, self.clone()) {
            let server = self.clone();
            self.env.spawn.spawn(async move {
                let next = server.port.next(tag, answer).await;
                server.take_next(tag, next);
            });
        }
    }

    /// Ends a request in hand.
    #[inline]
    fn answered(self: Rc<Self>, tag: Tag, answer: Answer) {
        self.in_hand.set(self.in_hand.get() - 1);
        let mut stats = self.stats.get();
        stats.requests += 1;
        stats.errors += u64::from(answer.is_err());
        self.stats.set(stats);
        if self.stopping.get() {
            self.changed.notify();
        }
        self.next(tag, Some(answer));
    }

    /// The bytes that a request has in hand.
    fn bytes_of(&self, request: &Request) -> usize {
        request.bytes().min(self.options.memory_bytes_max)
    }

    /// Begins a read if there is memory for it, and its place is known.
    #[inline]
    fn begin_read(self: &Rc<Self>, tag: Tag, at: Extent) -> bool {
        let charge = self.bytes_of(&Request::Read(at));
        let Ok(len) = u32::try_from(at.len.bytes()) else {
            return false;
        };
        if !self.bytes.try_take(charge) {
            return false;
        }
        let read = AskedRead {
            offset: at.start.byte(),
            len,
            charge: charge as u32,
            ticket: tag.0.into(),
        };
        let has_begun = self.gate.begin_read(read, self.clone());
        if !has_begun {
            self.bytes.release(charge);
        }
        has_begun
    }

    async fn answer(&self, tag: Tag, request: Request) -> Answer {
        // The memory is given back before the answer: an answer's bytes live until the driver has
        // taken them in, at the end of this turn.
        let _held = self.bytes.take(self.bytes_of(&request)).await;
        match request {
            Request::Read(at) => {
                let data = self.gate.read(at.start.byte(), request.bytes()).await?;
                return Ok(Some(data));
            }
            Request::Write(at, fua) => {
                let buf = self.env.pool.take(request.bytes());
                let (buf, taken) = self.port.take(tag, buf).await;
                taken?;
                self.writable()?;
                self.gate.write(at.start.byte(), buf.share(), fua).await?;
            }
            Request::Zero(at) => self.change(at, |at, len| self.gate.zero(at, len)).await?,
            Request::Discard(at) => {
                self.change(at, |at, len| self.gate.discard(at, len))
                    .await?
            }
            Request::Flush => self.gate.flush().await?,
        }
        Ok(None)
    }

    async fn change<F>(&self, at: Extent, work: impl FnOnce(u64, u64) -> F) -> IoResult
    where
        F: Future<Output = IoResult>,
    {
        self.writable()?;
        work(at.start.byte(), at.len.bytes()).await
    }

    fn writable(&self) -> IoResult {
        match self.options.read_only {
            false => Ok(()),
            true => {
                let what = "the volume is read-only";
                Err(IoError::new(IoErrorKind::ReadOnly, what))
            }
        }
    }
}

impl<P: Port, G: Boundary> RequestTaker for PortServer<P, G> {
    #[inline]
    fn take_next(self: Rc<Self>, tag: Tag, next: IoResult<Request>) {
        let request = match next {
            Ok(request) if !self.stopping.get() => request,
            _ => {
                self.tags.set(self.tags.get() - 1);
                return self.changed.notify();
            }
        };
        self.in_hand.set(self.in_hand.get() + 1);
        if let Request::Read(at) = request
            && self.begin_read(tag, at)
        {
            return;
        }
        let spawn = self.env.spawn.clone();
        spawn.spawn(async move {
            let answer = self.answer(tag, request).await;
            self.answered(tag, answer);
        });
    }
}

impl<P: Port, G: Boundary> ReadTaker for PortServer<P, G> {
    #[inline]
    fn take_read(self: Rc<Self>, read: &AskedRead, result: IoResult<SharedBuf>) {
        self.bytes.release(read.charge as usize);
        self.answered(Tag(read.ticket as u16), result.map(Some));
    }
}
