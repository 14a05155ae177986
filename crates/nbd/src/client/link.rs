//! The connection to the server: kept up, and requests passed over it.
//!
//! One task, the keeper, connects, reads replies, and connects again; one task
//! a connection sends. Requests wait in [`ClientLink::ask`], also while a third task checks
//! that a later connection leads to the same export.

use super::dial::{Wire, check_same, connect};
use super::options::{Options, Recognised};
use super::slots::{ClientSlots, SlotAnswer, SlotRequest};
use crate::inbox::ReceivedBytes;
use crate::outbox::{Frame, Outbox};
use crate::protocol::replies::ReplyParser;
use crate::protocol::request::WireRequest;
use crate::protocol::session::NbdSession;
use crate::protocol::wire::cmd;
use crate::until_stopped::until_stopped;
use block::Signal;
use block::{Connector, Deadline, Env, IoError, IoErrorKind, IoResult, Nanos, Stream};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// State of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkHealth {
    Up,
    /// Lost and sought; requests wait.
    Down,
    /// Lost for so long that requests fail; still sought.
    GivenUp,
}

/// Check of the export that a link is connected to.
pub(super) type Look = Rc<dyn Fn(Rc<ClientLink>) -> Recognised>;

pub(super) struct ClientLink {
    pub(super) env: Env,
    pub(super) options: Options,
    /// The session of the first connection.
    pub(super) first: NbdSession,
    /// The session of the last connection.
    pub(super) session: Cell<NbdSession>,
    health: Cell<LinkHealth>,
    /// True while the export of a new connection is being recognised.
    looking: Cell<bool>,
    /// Reason for which the last server's export counts as another one.
    pub(super) other: RefCell<Option<String>>,
    /// Time without a connection, so far.
    sought: Cell<Nanos>,
    last_error: RefCell<Option<IoError>>,
    slots: RefCell<ClientSlots>,
    frames: RefCell<VecDeque<Frame>>,
    /// Notified of frames to send, or of a reason to stop.
    unsent: Signal,
    /// A slot is free, or `health` has changed.
    changed: Signal,
    connection: RefCell<Rc<LinkConnection>>,
    /// A connection must end, or the link is closed.
    breaks: Signal,
    closed: Cell<bool>,
    progress: Cell<u64>,
    /// Of the acknowledged changes, those made durable by a flush, or noticed as lost.
    settled: Cell<u64>,
    /// Losses of a connection with changes not settled, and those reported.
    pub(super) losses: Cell<u64>,
    losses_reported: Cell<u64>,
}

/// State shared by the two tasks of one connection.
#[derive(Default)]
struct LinkConnection {
    /// The connection must end.
    broken: Cell<bool>,
    /// The sender has ended.
    sent: Cell<bool>,
}

/// Changes that a flush covers, counted when the flush begins.
#[derive(Clone, Copy)]
pub(super) struct Covered {
    acknowledged: u64,
    losses: u64,
}

impl ClientLink {
    /// Connects for the first time, and keeps the connection from then on.
    pub(super) async fn open<C: Connector>(
        env: Env,
        connector: C,
        options: Options,
        look: Option<Look>,
    ) -> IoResult<(Rc<ClientLink>, NbdSession)> {
        let wire = connect(&env, &connector, &options).await?;
        let session = wire.session();
        let link = Rc::new(ClientLink {
            first: session,
            session: Cell::new(session),
            health: Cell::new(LinkHealth::Up),
            looking: Cell::new(false),
            other: RefCell::default(),
            sought: Cell::new(Nanos::ZERO),
            last_error: RefCell::default(),
            slots: RefCell::new(ClientSlots::new(options.requests_max.max(1))),
            frames: RefCell::default(),
            unsent: Signal::default(),
            changed: Signal::default(),
            connection: RefCell::default(),
            breaks: Signal::default(),
            closed: Cell::new(false),
            progress: Cell::new(0),
            settled: Cell::new(0),
            losses: Cell::new(0),
            losses_reported: Cell::new(0),
            env: env.clone(),
            options,
        });
        env.spawn.spawn(keep(link.clone(), connector, wire, look));
        env.spawn.spawn(watch(Rc::downgrade(&link), env.clone()));
        Ok((link, session))
    }

    /// Ends the connection once the requests in flight have been sent.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.breaks.notify();
        self.unsent.notify();
    }

    /// Sends a request once and waits for its answer; waits for a connection and a free slot first.
    /// Requests that recognise the export (`recognises`) go before all others.
    pub(super) async fn ask(&self, ask: SlotRequest, recognises: bool) -> SlotAnswer {
        let has_slot = || !self.slots.borrow().is_full();
        let ready = || match (recognises, self.health.get()) {
            (true, _) if !self.looking.get() => Some(Err(broken_off())),
            (true, _) | (false, LinkHealth::Up) if has_slot() => Some(Ok(())),
            (false, LinkHealth::GivenUp) => Some(Err(self.unreachable())),
            _ => None,
        };
        if let Err(error) = self.changed.until_some(ready).await {
            return SlotAnswer {
                ask,
                extents: Vec::new(),
                outcome: Err(super::slots::RequestFailure::Reported(error)),
            };
        }
        let payload = ask.payload.clone();
        let request = ask.request(0);
        let cookie = self.slots.borrow_mut().begin(ask);
        let request = WireRequest { cookie, ..request };
        self.frames
            .borrow_mut()
            .push_back(Frame::new(request.encode(), payload));
        self.unsent.notify();
        let waiting = AnswerWait {
            link: self,
            cookie: Some(cookie),
        };
        waiting.answer().await
    }

    /// Reason for which requests wait or fail.
    pub(super) fn trouble(&self) -> Option<String> {
        match self.health.get() {
            LinkHealth::Up => None,
            LinkHealth::GivenUp => Some(self.unreachable().to_string()),
            LinkHealth::Down => self.last_error.borrow().as_ref().map(ToString::to_string),
        }
    }

    fn unreachable(&self) -> IoError {
        if let Some(why) = &*self.other.borrow() {
            let what = format!("another export answers in its place ({why}); bring it back");
            return IoError::new(IoErrorKind::Gone, what);
        }
        let secs = self.options.give_up_after.as_secs_f64();
        let error = IoError::new(
            IoErrorKind::Gone,
            format!(
                "the NBD server has not been reached for {secs} s; see to it, or to the network"
            ),
        );
        match &*self.last_error.borrow() {
            Some(last) => error.because(last.to_string()),
            None => error,
        }
    }

    /// Waits until no change that was given up can undo a later one.
    pub(super) async fn abandoned_ended(&self) {
        let ended = || (!self.slots.borrow().has_abandoned_changes()).then_some(());
        self.changed.until_some(ended).await;
    }

    /// Begins a flush; returns the changes it covers. `Err`, once for each loss, if the server may
    /// have forgotten some of them.
    pub(super) fn begin_flush(&self) -> IoResult<Covered> {
        let losses = self.losses.get();
        if self.losses_reported.replace(losses) != losses {
            return Err(forgotten());
        }
        Ok(Covered {
            acknowledged: self.slots.borrow().acknowledged(),
            losses,
        })
    }

    /// A flush has succeeded. `Err` if a connection was lost meanwhile.
    pub(super) fn end_flush(&self, covered: Covered) -> IoResult {
        if self.losses.get() != covered.losses {
            self.losses_reported.set(self.losses.get());
            return Err(forgotten());
        }
        self.settled
            .set(self.settled.get().max(covered.acknowledged));
        Ok(())
    }

    fn lost(&self, error: IoError) {
        let acknowledged = self.slots.borrow().acknowledged();
        if self.settled.replace(acknowledged) != acknowledged {
            self.losses.set(self.losses.get() + 1);
        }
        if self.looking.replace(false) {
            // This connection was never up: an earlier error stays, and the time since.
            self.last_error.borrow_mut().get_or_insert(error);
        } else {
            *self.last_error.borrow_mut() = Some(error);
        }
        if self.health.get() == LinkHealth::Up {
            self.health.set(LinkHealth::Down);
        }
        self.frames.borrow_mut().clear();
        self.slots.borrow_mut().lose();
        self.changed.notify();
    }

    /// Marks the connection as up: the export answers, and is the same as before.
    fn up(&self) {
        self.looking.set(false);
        self.sought.set(Nanos::ZERO);
        self.other.borrow_mut().take();
        self.health.set(LinkHealth::Up);
        self.changed.notify();
    }

    /// Adds the time since `began`, at most `limit`, to the time without a connection. An attempt
    /// has limits of its own: any time beyond `limit` is time in which the process was paused.
    /// Requests that have waited long enough fail.
    fn has_sought(&self, began: Nanos, limit: Nanos) {
        let took = self.env.timer.now().since(began);
        self.sought.set(self.sought.get() + took.min(limit));
        if self.sought.get() >= self.options.give_up_after {
            self.give_up();
        }
    }

    fn give_up(&self) {
        self.health.set(LinkHealth::GivenUp);
        self.changed.notify();
    }

    fn break_off(&self, connection: &LinkConnection) {
        connection.broken.set(true);
        self.breaks.notify();
        self.unsent.notify();
    }
}

fn broken_off() -> IoError {
    IoError::new(IoErrorKind::Stream, "the NBD connection was broken off")
}

fn forgotten() -> IoError {
    let what =
        "the connection was lost before a flush; writes acknowledged until then may not be durable";
    IoError::new(IoErrorKind::Gone, what)
}

/// A wait for an answer; a dropped wait abandons its slot.
struct AnswerWait<'a> {
    link: &'a ClientLink,
    cookie: Option<u64>,
}

impl AnswerWait<'_> {
    async fn answer(mut self) -> SlotAnswer {
        let cookie = self.cookie.expect("not answered yet");
        let slots = &self.link.slots;
        let answer = std::future::poll_fn(|cx| slots.borrow_mut().poll(cookie, cx)).await;
        self.cookie = None;
        self.link.changed.notify();
        answer
    }
}

impl Drop for AnswerWait<'_> {
    fn drop(&mut self) {
        if let Some(cookie) = self.cookie {
            self.link.slots.borrow_mut().abandon(cookie);
            self.link.changed.notify();
        }
    }
}

/// Uses one connection after the other until the link is closed.
async fn keep<C: Connector>(
    link: Rc<ClientLink>,
    connector: C,
    mut wire: Wire<C::Stream>,
    look: Option<Look>,
) {
    let mut is_first = true;
    loop {
        let this = Rc::new(LinkConnection::default());
        *link.connection.borrow_mut() = this.clone();
        match look.as_ref().filter(|_| !is_first) {
            None => link.up(),
            Some(look) => {
                link.looking.set(true);
                let looked = recognise(link.clone(), this.clone(), look(link.clone()));
                link.env.spawn.spawn(looked);
            }
        }
        is_first = false;
        let error = match wire {
            Wire::Plain(stream, inbox, _) => converse(&link, this, stream, inbox).await,
            Wire::Secure(stream, inbox, _) => converse(&link, this, stream, inbox).await,
        };
        link.lost(error);
        match reconnect(&link, &connector).await {
            Some(next) => wire = next,
            None => return,
        }
    }
}

/// Checks that a connection leads to the link's export, and breaks off one that does not.
async fn recognise(link: Rc<ClientLink>, this: Rc<LinkConnection>, looked: Recognised) {
    let (timer, limit) = (&link.env.timer, link.options.connect_timeout);
    let began = timer.now();
    let recognised = Deadline::new(timer, limit).bound(looked).await;
    link.has_sought(began, limit);
    if this.broken.get() || !Rc::ptr_eq(&this, &link.connection.borrow()) {
        return;
    }
    match recognised {
        Some(Ok(None)) => link.up(),
        Some(Ok(Some(why))) => {
            *link.other.borrow_mut() = Some(why);
            link.give_up();
            link.break_off(&this);
        }
        failed => {
            let late = || {
                IoError::new(
                    IoErrorKind::Timeout,
                    "the NBD export is not recognised in time; see to its server",
                )
            };
            let error = failed.and_then(Result::err).unwrap_or_else(late);
            *link.last_error.borrow_mut() = Some(error);
            link.break_off(&this);
        }
    }
}

async fn reconnect<C: Connector>(link: &ClientLink, connector: &C) -> Option<Wire<C::Stream>> {
    let options = &link.options;
    let mut pause = options.retry_pause;
    while !link.closed.get() {
        let began = link.env.timer.now();
        let closed = link.breaks.until_some(|| link.closed.get().then_some(()));
        let attempt = async {
            link.env.timer.sleep(pause).await;
            let wire = connect(&link.env, connector, options).await?;
            check_same(&link.first, &wire.session())?;
            link.session.set(wire.session());
            Ok(wire)
        };
        match until_stopped(closed, attempt).await? {
            Ok(wire) => return Some(wire),
            Err(error) => *link.last_error.borrow_mut() = Some(error),
        }
        link.has_sought(began, pause + options.connect_timeout);
        pause = (pause + pause).min(options.retry_pause_max);
    }
    None
}

/// Passes requests and replies until the connection ends; returns the reason.
async fn converse<S: Stream>(
    link: &Rc<ClientLink>,
    this: Rc<LinkConnection>,
    stream: Rc<S>,
    inbox: ReceivedBytes,
) -> IoError {
    let sender = send(link.clone(), this.clone(), stream.clone());
    link.env.spawn.spawn(sender);
    let ends = || (this.broken.get() || link.closed.get()).then_some(());
    let ended = until_stopped(link.breaks.until_some(ends), read(link, &*stream, inbox)).await;
    if link.closed.get() {
        // The farewell goes out if the server still listens.
        let farewell = link.changed.until_some(|| this.sent.get().then_some(()));
        let _ = link.env.timer.timeout(Nanos::from_secs(1), farewell).await;
    }
    link.break_off(&this);
    stream.close();
    ended.unwrap_or_else(broken_off)
}

async fn read<S: Stream>(link: &ClientLink, stream: &S, mut inbox: ReceivedBytes) -> IoError {
    let mut replies = ReplyParser::new(link.session.get().structured);
    loop {
        match inbox.parse(|input| take(link, &mut replies, input)) {
            Ok(false) => {}
            Ok(true) => return IoError::new(IoErrorKind::Gone, "the NBD server is shutting down"),
            Err(violation) => {
                let what = format!("the NBD server sent {violation}");
                return IoError::new(IoErrorKind::Stream, what);
            }
        }
        link.changed.notify();
        match inbox.fill(stream).await {
            Ok(true) => link.progress.set(link.progress.get() + 1),
            Ok(false) => {
                return IoError::new(IoErrorKind::Stream, "the NBD server closed the connection");
            }
            Err(error) => return error,
        }
    }
}

/// Takes every reply in `input`. True if the server is ending.
fn take(
    link: &ClientLink,
    replies: &mut ReplyParser,
    input: &mut &[u8],
) -> Result<bool, &'static str> {
    loop {
        let pending = |cookie| link.slots.borrow().pending(cookie);
        let Some(event) = replies.next(input, pending)? else {
            return Ok(false);
        };
        if link.slots.borrow_mut().take(event)? {
            return Ok(true);
        }
    }
}

async fn send<S: Stream>(link: Rc<ClientLink>, this: Rc<LinkConnection>, stream: Rc<S>) {
    let mut outbox = Outbox::new(&link.env.pool);
    let mut parts = Vec::new();
    loop {
        let ready = || {
            let ends = this.broken.get() || link.closed.get();
            (ends || !link.frames.borrow().is_empty()).then_some(())
        };
        link.unsent.until_some(ready).await;
        if this.broken.get() {
            break;
        }
        let farewell = link.frames.borrow().is_empty();
        if farewell {
            let request = WireRequest {
                cmd: cmd::DISC,
                ..WireRequest::default()
            };
            let frame = Frame::new(request.encode(), None);
            link.frames.borrow_mut().push_back(frame);
        }
        outbox.gather(&link.frames, &mut parts).await;
        let result;
        (parts, result) = stream.send(parts).await;
        link.progress.set(link.progress.get() + 1);
        if farewell || result.is_err() {
            break;
        }
    }
    this.sent.set(true);
    link.break_off(&this);
    link.changed.notify();
}

/// Ends a connection whose server has a reply pending and sends nothing.
async fn watch(link: Weak<ClientLink>, env: Env) {
    let mut seen = None;
    loop {
        let Some(span) = link.upgrade().map(|l| l.options.reply_timeout) else {
            return;
        };
        Deadline::new(&env.timer, span).await;
        let Some(link) = link.upgrade() else {
            return;
        };
        if link.closed.get() {
            return;
        }
        let is_pending = link.slots.borrow().in_flight() > 0;
        let progress = link.progress.get();
        let is_connected = link.health.get() == LinkHealth::Up || link.looking.get();
        if is_pending && seen == Some(progress) && is_connected {
            link.break_off(&link.connection.borrow().clone());
        }
        // A server without a pending reply gets the whole time again.
        seen = is_pending.then_some(progress);
    }
}
