//! The contract of every [`Port`].
//!
//! Its tags are served by a task each to the end; the cases differ in the manner of service.

use super::join::join_all;
use super::rng::{SuiteRng, mix};
use super::{SuiteCase, check};
use crate::{
    Answer, Env, Extent, Fua, IoError, IoErrorKind, IoResult, Lba, Nanos, Port, Request,
    RequestTaker, SECTOR_BYTES, Sectors, SharedBuf, Signal, Tag,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The limit of a case, far over the time that any needs.
const CASE_MAX: Nanos = Nanos::from_secs(60);
/// The wait for a request that must not come.
const SETTLE: Nanos = Nanos::from_millis(10);
/// Requests of a case.
const REQUESTS: u64 = 200;
/// Each request has a place of its own.
const PLACE: Sectors = Sectors(16);

/// The clients of the port under test. Each stays within the first 16 MiB of the device.
#[allow(async_fn_in_trait, reason = "shard-local: no future here is Send")]
pub trait PortClients: 'static {
    /// Sends a request, and waits for the answer: the bytes of a read, or `None` for a failure.
    async fn ask(&self, request: Request, data: Vec<u8>) -> Option<Vec<u8>>;
}

/// Runs the suite; panics with the seed at the first breach. Closes the port.
pub async fn port<P: Port, A: PortClients>(port: Rc<P>, asker: &A, env: &Env, seed: u64) {
    let server = Rc::new(SuiteServer {
        env: env.clone(),
        seed,
        case: SuiteCase::new("port", seed),
        how: Cell::new(How::Serve),
        given: RefCell::default(),
        left: Cell::new(port.tags()),
        port,
    });
    for tag in (0..server.port.tags()).map(Tag) {
        let server = server.clone();
        env.spawn.spawn(async move {
            server.serve(tag).await;
            server.left.set(server.left.get() - 1);
        });
    }
    let free = env.pool.free_bytes();
    let clients = LinearClients {
        server: &server,
        asker,
        rng: RefCell::new(SuiteRng::new(seed)),
        next: Cell::new(0),
    };
    for (how, name) in [
        (How::Serve, "each request once"),
        (How::Fail, "errors reach who asked"),
        (How::BreakRules, "what a tag does not wait for"),
    ] {
        server.case.enter(name);
        server.how.set(how);
        clients.in_time(clients.all()).await;
    }
    server.case.enter("memory");
    check!(
        server.case,
        env.pool.free_bytes() == free,
        "an answer is kept"
    );
    server.case.enter("closed");
    server.port.close();
    clients.in_time(server.ended()).await;
    let later = server.port.next(Tag(0), None).await;
    let kind = later.map_err(|error| error.kind());
    check!(
        server.case,
        kind == Err(IoErrorKind::Gone),
        "once closed: {kind:?}"
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Serve,
    /// Every third place fails.
    Fail,
    /// Gives first an answer that the tag does not wait for.
    BreakRules,
}

struct SuiteServer<P> {
    port: Rc<P>,
    env: Env,
    seed: u64,
    case: SuiteCase,
    how: Cell<How>,
    given: RefCell<Vec<Request>>,
    /// Tags that are served.
    left: Cell<u16>,
}

/// Takes one request for a task.
#[derive(Default)]
struct TakenRequest {
    next: RefCell<Option<IoResult<Request>>>,
    taken: Signal,
}

impl RequestTaker for TakenRequest {
    fn take_next(self: Rc<Self>, _: Tag, next: IoResult<Request>) {
        self.next.replace(Some(next));
        self.taken.notify();
    }
}

fn fails(extent: Extent) -> bool {
    (extent.start.0 / PLACE.0).is_multiple_of(3)
}

impl<P: Port> SuiteServer<P> {
    /// The bytes of an extent for a read, or for a write.
    fn bytes(&self, extent: Extent, written: bool) -> Vec<u8> {
        let len = extent.len.0 * SECTOR_BYTES;
        let salt = self.seed ^ u64::from(written) << 62 ^ extent.start.0 << 20;
        (0..len).map(|at| mix(salt ^ at) as u8).collect()
    }

    /// The next request: of every other tag without a task, if the port can.
    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        if tag.0.is_multiple_of(2) {
            return self.port.next(tag, answer).await;
        }
        let taken = Rc::new(TakenRequest::default());
        match self.port.begin_next(tag, answer, taken.clone()) {
            Ok(()) => taken.taken.until_some(|| taken.next.take()).await,
            Err(answer) => self.port.next(tag, answer).await,
        }
    }

    async fn serve(&self, tag: Tag) {
        let mut answer = None;
        loop {
            let request = match self.next(tag, answer.take()).await {
                Ok(request) => request,
                Err(error) => {
                    let closed =
                        self.case.name.get() == "closed" && error.kind() == IoErrorKind::Gone;
                    check!(self.case, closed, "no next request: {error}");
                    return;
                }
            };
            let number = self.given.borrow().len() as u64;
            self.given.borrow_mut().push(request);
            // Answers come in another order than requests.
            let span = Nanos::from_micros(mix(self.seed ^ number) % 20);
            self.env.timer.sleep(span).await;
            if self.how.get() == How::BreakRules {
                self.break_rules(tag, request).await;
            }
            answer = Some(self.answer(tag, request).await);
        }
    }

    async fn answer(&self, tag: Tag, request: Request) -> Answer {
        match request {
            Request::Write(extent, _) => {
                let buf = self.env.pool.get(request.bytes()).await;
                let (buf, taken) = self.port.take(tag, buf).await;
                check!(self.case, taken.is_ok(), "a take fails: {taken:?}");
                let same = buf[..] == self.bytes(extent, true)[..];
                check!(self.case, same, "{request:?} comes with other bytes");
                self.result(extent)?;
            }
            Request::Read(extent) => {
                self.result(extent)?;
                return Ok(Some(self.shared(&self.bytes(extent, false)).await));
            }
            Request::Zero(extent) | Request::Discard(extent) => self.result(extent)?,
            Request::Flush => {}
        }
        Ok(None)
    }

    fn result(&self, extent: Extent) -> IoResult {
        match self.how.get() == How::Fail && fails(extent) {
            true => Err(IoError::new(IoErrorKind::Media, "it shall fail")),
            false => Ok(()),
        }
    }

    async fn shared(&self, bytes: &[u8]) -> SharedBuf {
        let mut buf = self.env.pool.get(bytes.len()).await;
        buf.copy_from_slice(bytes);
        buf.share()
    }

    /// An answer that the tag does not wait for is refused, and the tag keeps its request.
    async fn break_rules(&self, tag: Tag, request: Request) {
        let mut wrong = vec![None];
        if let Request::Read(_) | Request::Write(..) = request {
            wrong.push(Some(Ok(None)));
        }
        for answer in wrong {
            let what = format!("{answer:?}");
            let next = self.next(tag, answer).await;
            let kind = next.map_err(|error| error.kind());
            let refused = kind == Err(IoErrorKind::Invalid);
            check!(
                self.case,
                refused,
                "{request:?} answered with {what}: {kind:?}"
            );
        }
        // A buffer of another length than the write's, or of none.
        let buf = self
            .env
            .pool
            .get(request.bytes() + SECTOR_BYTES as usize)
            .await;
        let (_, taken) = self.port.take(tag, buf).await;
        let kind = taken.map_err(|error| error.kind());
        check!(
            self.case,
            kind == Err(IoErrorKind::Invalid),
            "taken of {request:?}: {kind:?}"
        );
        let beyond = self.port.next(Tag(self.port.tags()), None).await;
        let kind = beyond.map_err(|error| error.kind());
        check!(
            self.case,
            kind == Err(IoErrorKind::Invalid),
            "a tag too many: {kind:?}"
        );
    }

    async fn ended(&self) {
        while self.left.get() > 0 {
            self.env.timer.sleep(Nanos::from_millis(1)).await;
        }
    }
}

struct LinearClients<'a, P, A> {
    server: &'a SuiteServer<P>,
    asker: &'a A,
    rng: RefCell<SuiteRng>,
    next: Cell<u64>,
}

impl<P: Port, A: PortClients> LinearClients<'_, P, A> {
    async fn in_time(&self, work: impl Future<Output = ()>) {
        let ended = self.server.env.timer.timeout(CASE_MAX, work).await;
        check!(self.server.case, ended.is_some(), "it never ends");
    }

    /// More requests than tags, all at once.
    async fn all(&self) {
        self.server.given.borrow_mut().clear();
        let asked: Vec<Request> = (0..REQUESTS).map(|_| self.any_request()).collect();
        join_all(asked.iter().map(|request| self.one(*request))).await;
        // Answers without a request may come yet.
        self.server.env.timer.sleep(SETTLE).await;
        let text = |request: &Request| format!("{request:?}");
        let mut asked: Vec<String> = asked.iter().map(text).collect();
        let mut given: Vec<String> = self.server.given.borrow().iter().map(text).collect();
        asked.sort();
        given.sort();
        check!(
            self.server.case,
            asked == given,
            "asked {asked:?}, given {given:?}"
        );
    }

    fn any_request(&self) -> Request {
        let place = self.next.get();
        self.next.set(place + 1);
        let mut rng = self.rng.borrow_mut();
        let len = Sectors(1 + rng.below(PLACE.0));
        let extent = Extent::new(Lba(place * PLACE.0), len);
        match rng.below(8) {
            0..=2 => Request::Read(extent),
            3 => Request::Write(extent, Fua::Yes),
            4 => Request::Write(extent, Fua::No),
            5 => Request::Zero(extent),
            6 => Request::Discard(extent),
            _ => Request::Flush,
        }
    }

    async fn one(&self, request: Request) {
        let (server, how) = (self.server, self.server.how.get());
        let (data, wanted) = match request {
            Request::Write(extent, _) => (server.bytes(extent, true), Vec::new()),
            Request::Read(extent) => (Vec::new(), server.bytes(extent, false)),
            _ => (Vec::new(), Vec::new()),
        };
        let wanted = match request {
            Request::Flush => Some(wanted),
            Request::Read(extent)
            | Request::Write(extent, _)
            | Request::Zero(extent)
            | Request::Discard(extent) => (how != How::Fail || !fails(extent)).then_some(wanted),
        };
        let answer = self.asker.ask(request, data).await;
        check!(
            server.case,
            answer == wanted,
            "{request:?} has another answer"
        );
    }
}
