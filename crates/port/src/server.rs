//! The tasks of a port, and their end.

use block::{
    Answer, Boundary, Env, Extent, IoError, IoErrorKind, IoResult, Nanos, Port, Request, Semaphore,
    Signal, Tag,
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
    /// Number of tags with tasks that have not ended.
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
        for tag in (0..tags).map(Tag) {
            let server_of_tag = server.clone();
            server.env.spawn.spawn(async move {
                server_of_tag.serve(tag).await;
                server_of_tag.tags.set(server_of_tag.tags.get() - 1);
                server_of_tag.changed.notify();
            });
        }
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

    async fn serve(&self, tag: Tag) {
        let mut answer = None;
        while let Ok(request) = self.port.next(tag, answer.take()).await {
            if self.stopping.get() {
                return;
            }
            self.in_hand.set(self.in_hand.get() + 1);
            let given = self.answer(tag, request).await;
            self.in_hand.set(self.in_hand.get() - 1);
            let mut stats = self.stats.get();
            stats.requests += 1;
            stats.errors += u64::from(given.is_err());
            self.stats.set(stats);
            if self.stopping.get() {
                self.changed.notify();
            }
            answer = Some(given);
        }
    }

    async fn answer(&self, tag: Tag, request: Request) -> Answer {
        // The memory is given back before the answer: an answer's bytes live until the driver has
        // taken them in, at the end of this turn.
        let bytes = request.bytes().min(self.options.memory_bytes_max);
        let _held = self.bytes.take(bytes).await;
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
