//! What the tasks of one connection share: requests not begun, answers not
//! sent, and how much of its share of memory is in use.
//!
//! Invariants:
//!   - `requests` counts from parsing to the last answer's being sent;
//!   - the account counts the memory of those requests;
//!   - a connection whose peer has closed its end has no place any more, though what it
//!     was asked for is still carried out.

use super::credit::{Account, Credits};
use super::doors;
use super::flushes::Client;
use super::limits::Limits;
use crate::outbox::{Frame, Load};
use crate::protocol::session::Command;
use block::Signal;
use block::{IoError, PAGE_BYTES, Shared};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// What brings connections, and a place of one.
pub(super) type Door = doors::Door<Link>;
pub(super) type Place = doors::Place<Link>;

/// A request on its way to the device.
pub(super) struct Job {
    pub(super) cookie: u64,
    pub(super) command: Command,
    /// The memory it was charged for, in bytes.
    pub(super) charge: u32,
    /// The longest piece of it that is carried out at once, in bytes.
    pub(super) piece: u32,
    /// A write's bytes, or a part of them.
    pub(super) payload: Option<Shared>,
    /// The other parts of the same write.
    pub(super) parts: Option<Rc<Parts>>,
}

/// A write that is carried out in several parts.
pub(super) struct Parts {
    /// Bytes of it that are not written yet.
    pub(super) left: Cell<u32>,
    pub(super) error: RefCell<Option<IoError>>,
}

/// What was counted for a request that has no job yet; uncounted when dropped.
pub(super) struct Admitted<'a> {
    link: &'a Link,
    load: Load,
    /// The longest piece that may be carried out at once, in bytes.
    pub(super) piece: u32,
}

impl Admitted<'_> {
    /// The memory that was counted.
    pub(super) fn charge(&self) -> u32 {
        self.load.charge
    }

    /// Leaves it counted: whoever answers the request gives it back.
    pub(super) fn keep(mut self) {
        self.load = Load::default();
    }
}

/// The longest piece.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The longest piece of a request with so much memory: one that is off the blocks takes
/// a buffer for itself and one of twice its size to be merged in.
fn piece(bytes: usize) -> u32 {
    let third = (bytes / 3).clamp(PAGE_BYTES, PIECE_BYTES_MAX);
    1 << third.ilog2()
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.load != Load::default() {
            self.link.release(self.load);
        }
    }
}

/// One of the tasks that carry out jobs.
#[derive(Default)]
struct Worker {
    /// What it was handed.
    job: Option<Job>,
    waker: Option<Waker>,
    is_idle: bool,
}

pub(super) struct Link {
    requests_max: u32,
    pub(super) account: Account,
    requests: Cell<u32>,
    room: Signal,
    /// Whoever reads requests waits for room.
    waits: Cell<bool>,
    place: RefCell<Option<Place>>,
    /// Whether the peer has closed its end.
    peer_closed: RefCell<Option<Box<dyn Fn() -> bool>>>,

    /// Jobs that found no worker.
    jobs: RefCell<VecDeque<Job>>,
    workers: RefCell<Vec<Worker>>,
    /// Workers without a job, by number. None is idle while `jobs` holds any.
    idle: RefCell<Vec<u32>>,

    pub(super) frames: RefCell<VecDeque<Frame>>,
    /// Frames of the answer that nothing may come between.
    pub(super) undivided: RefCell<VecDeque<Frame>>,
    is_undivided: Cell<bool>,
    /// Frames ever queued in `frames` and ever sent from it.
    queued_total: Cell<u64>,
    sent_total: Cell<u64>,
    /// Something to send, or a reason to stop.
    unsent: Signal,
    /// Something was sent.
    sent: Signal,

    /// No more requests will come.
    finished: Cell<bool>,
    killed: Cell<Option<&'static str>>,
    kill: Signal,
    /// Set when the export is withdrawn.
    withdrawn: RefCell<Option<Rc<Cell<bool>>>>,

    /// The peer owes bytes, or to take some.
    pub(super) receiving: Cell<bool>,
    pub(super) sending: Cell<bool>,
    /// What it knows of its export's flushes.
    pub(super) client: Client,
    progress: Cell<u32>,
    progress_seen: Cell<u32>,
}

impl Link {
    pub(super) fn new(limits: &Limits, credits: &Rc<Credits>) -> Link {
        Link {
            requests_max: limits.requests_max,
            account: credits.account(),
            requests: Cell::new(0),
            room: Signal::default(),
            waits: Cell::new(false),
            place: RefCell::default(),
            peer_closed: RefCell::default(),
            jobs: RefCell::default(),
            workers: RefCell::default(),
            idle: RefCell::default(),
            frames: RefCell::default(),
            undivided: RefCell::default(),
            is_undivided: Cell::new(false),
            queued_total: Cell::new(0),
            sent_total: Cell::new(0),
            unsent: Signal::default(),
            sent: Signal::default(),
            client: Client::default(),
            finished: Cell::new(false),
            killed: Cell::new(None),
            kill: Signal::default(),
            withdrawn: RefCell::default(),
            receiving: Cell::new(false),
            sending: Cell::new(false),
            progress: Cell::new(0),
            progress_seen: Cell::new(0),
        }
    }

    /// Has the connection its place from now on, with buffers of `fixed` bytes.
    pub(super) fn enter(&self, place: Place, fixed: usize, peer_closed: Box<dyn Fn() -> bool>) {
        *self.place.borrow_mut() = Some(place);
        *self.peer_closed.borrow_mut() = Some(peer_closed);
        self.account.enter(fixed);
    }

    /// The peer asks for nothing more: others may have its place.
    pub(super) fn leave(&self) {
        if self.place.borrow().is_some() && self.account.leave() {
            self.place.take();
        }
    }

    /// Nothing is left to do.
    pub(super) fn end(&self) {
        self.account.close();
        self.place.take();
        self.peer_closed.take();
    }

    /// Gives the place back if the peer has closed its end, which nobody sees who waits
    /// for room.
    pub(super) fn leave_if_closed(&self) {
        let closed = self.peer_closed.borrow();
        let unseen = || self.waits.get() && closed.as_ref().is_some_and(|closed| closed());
        if self.finished.get() || unseen() {
            self.leave();
        }
    }

    /// Waits until one more request is within the limits, and counts it; `charge` returns
    /// the memory that it takes in pieces of a length.
    pub(super) async fn admit(&self, charge: impl Fn(u32) -> u32) -> Admitted<'_> {
        self.when_room(|| self.try_admit(&charge)).await
    }

    /// Counts one more request, if that is within the limits.
    #[inline]
    pub(super) fn try_admit(&self, charge: impl Fn(u32) -> u32) -> Option<Admitted<'_>> {
        if self.requests.get() == self.requests_max {
            return None;
        }
        let mut admitted = self.try_charge(charge)?;
        self.requests.set(self.requests.get() + 1);
        admitted.load.requests = 1;
        Some(admitted)
    }

    /// Waits until more memory of a request is within the limits, and counts it.
    pub(super) async fn charge(&self, charge: impl Fn(u32) -> u32) -> Admitted<'_> {
        self.when_room(|| self.try_charge(&charge)).await
    }

    async fn when_room<'a>(&'a self, take: impl Fn() -> Option<Admitted<'a>>) -> Admitted<'a> {
        poll_fn(|cx| {
            let taken = take();
            self.waits.set(taken.is_none());
            if let Some(taken) = taken {
                return Poll::Ready(taken);
            }
            self.room.register(cx.waker());
            self.account.register(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Counts memory: for long pieces, or else for such as there always is memory for.
    #[inline]
    fn try_charge(&self, charge: impl Fn(u32) -> u32) -> Option<Admitted<'_>> {
        for piece in [piece(self.account.limit()), piece(self.account.sure())] {
            let charge = charge(piece);
            if self.account.try_charge(charge as usize) {
                return Some(Admitted {
                    link: self,
                    load: Load {
                        requests: 0,
                        charge,
                        frames: 0,
                    },
                    piece,
                });
            }
        }
        None
    }

    /// Gives memory back.
    pub(super) fn discharge(&self, charge: u32) {
        self.release(Load {
            charge,
            ..Load::default()
        });
    }

    /// Counts what was sent, or never will be.
    pub(super) fn release(&self, load: Load) {
        self.requests.set(self.requests.get() - load.requests);
        self.account.release(load.charge as usize);
        self.room.notify();
        if self.is_drained() {
            self.unsent.notify();
            self.dismiss();
        }
    }

    /// Hands a job to a worker; the number of a new worker to start for it, if
    /// none is idle and there may be one more.
    #[inline]
    pub(super) fn dispatch(&self, job: Job) -> Option<u32> {
        let mut workers = self.workers.borrow_mut();
        if let Some(number) = self.idle.borrow_mut().pop() {
            let worker = &mut workers[number as usize];
            worker.is_idle = false;
            worker.job = Some(job);
            worker.waker.as_ref().expect("set when idle").wake_by_ref();
            return None;
        }
        if workers.len() as u32 == self.requests_max {
            self.jobs.borrow_mut().push_back(job);
            return None;
        }
        workers.push(Worker {
            job: Some(job),
            ..Worker::default()
        });
        Some(workers.len() as u32 - 1)
    }

    /// The next job of a worker, or `None` when there will be no more.
    pub(super) fn next_job(&self, number: u32) -> impl Future<Output = Option<Job>> {
        poll_fn(move |cx| {
            let worker = &mut self.workers.borrow_mut()[number as usize];
            let job = worker.job.take();
            if let Some(job) = job.or_else(|| self.jobs.borrow_mut().pop_front()) {
                return Poll::Ready(Some(job));
            }
            if self.is_drained() {
                return Poll::Ready(None);
            }
            match &mut worker.waker {
                Some(known) => known.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            if !worker.is_idle {
                worker.is_idle = true;
                self.idle.borrow_mut().push(number);
            }
            Poll::Pending
        })
    }

    /// Lets every idle worker see that there will be no more jobs.
    fn dismiss(&self) {
        for worker in self.workers.borrow().iter().filter(|w| w.is_idle) {
            worker.waker.as_ref().expect("set when idle").wake_by_ref();
        }
    }

    /// Queues an answer.
    #[inline]
    pub(super) fn answer(&self, frame: Frame) {
        self.queue(frame, &self.frames);
        self.queued_total.set(self.queued_total.get() + 1);
    }

    #[inline]
    fn queue(&self, frame: Frame, frames: &RefCell<VecDeque<Frame>>) {
        if self.killed.get().is_some() {
            self.release(Load {
                requests: u32::from(frame.last),
                charge: frame.charge,
                frames: 0,
            });
            self.sent.notify();
            return;
        }
        frames.borrow_mut().push_back(frame);
        self.unsent.notify();
    }

    /// Queues one frame of an answer that nothing may come between, and waits
    /// until it is on its way. The caller holds the right by
    /// [`Link::begin_undivided`].
    pub(super) async fn answer_undivided(&self, frame: Frame) {
        self.queue(frame, &self.undivided);
        let gone = || self.undivided.borrow().is_empty() && !self.sending.get();
        self.sent.until_some(|| gone().then_some(())).await;
    }

    /// Waits for the right to send an answer that nothing may come between.
    pub(super) async fn begin_undivided(&self) {
        let free = || (!self.is_undivided.get()).then_some(());
        self.sent.until_some(free).await;
        self.is_undivided.set(true);
    }

    pub(super) fn end_undivided(&self) {
        self.is_undivided.set(false);
        self.sent.notify();
        self.unsent.notify();
    }

    /// Waits until every answer queued before now has been sent.
    pub(super) async fn all_sent(&self) {
        let queued = self.queued_total.get();
        let ready = || self.sent_total.get() >= queued || self.killed.get().is_some();
        self.sent.until_some(|| ready().then_some(())).await;
    }

    /// Waits for frames to send; `None` when there will be no more.
    pub(super) async fn next_frames(&self) -> Option<&RefCell<VecDeque<Frame>>> {
        self.unsent
            .until_some(|| {
                let frames = match self.is_undivided.get() {
                    true => &self.undivided,
                    false => &self.frames,
                };
                if self.killed.get().is_some() || self.is_drained() {
                    return Some(None);
                }
                (!frames.borrow().is_empty()).then_some(Some(frames))
            })
            .await
    }

    /// A send has ended.
    pub(super) fn has_sent(&self, load: Load) {
        self.sending.set(false);
        self.has_progressed();
        if !self.is_undivided.get() {
            let frames = u64::from(load.frames);
            self.sent_total.set(self.sent_total.get() + frames);
        }
        self.release(load);
        self.sent.notify();
    }

    /// The peer did something.
    pub(super) fn has_progressed(&self) {
        self.progress.set(self.progress.get().wrapping_add(1));
    }

    /// Whether the peer has owed something since the last call.
    pub(super) fn has_stalled(&self) -> bool {
        let progress = self.progress.get();
        let same = self.progress_seen.replace(progress) == progress;
        // A peer that owes nothing starts afresh.
        let owes = self.receiving.get() || self.sending.get();
        if !owes {
            self.has_progressed();
        }
        same && owes
    }

    /// No more requests will come; those in flight are still answered.
    pub(super) fn finish(&self) {
        self.finished.set(true);
        self.unsent.notify();
        self.dismiss();
    }

    fn is_drained(&self) -> bool {
        self.finished.get() && self.requests.get() == 0
    }

    /// Waits until every request is answered or given up.
    pub(super) async fn drained(&self) {
        let drained = || self.is_drained().then_some(());
        self.room.until_some(drained).await;
    }

    /// Ends the connection without regard for what is in flight.
    pub(super) fn kill(&self, why: &'static str) {
        if self.killed.get().is_some() {
            return;
        }
        self.killed.set(Some(why));
        for frames in [&self.frames, &self.undivided] {
            let mut load = Load::default();
            for frame in frames.borrow_mut().drain(..) {
                load.requests += u32::from(frame.last);
                load.charge += frame.charge;
            }
            self.release(load);
        }
        self.kill.notify();
        self.unsent.notify();
        self.sent.notify();
    }

    /// Waits for [`Link::kill`].
    pub(super) async fn is_killed(&self) {
        self.kill.until_some(|| self.killed.get().map(|_| ())).await;
    }

    /// Why it was killed, if it was.
    pub(super) fn killed(&self) -> Option<&'static str> {
        self.killed.get()
    }

    /// Names the flag that is set when the export is withdrawn.
    pub(super) fn serves(&self, withdrawn: Rc<Cell<bool>>) {
        *self.withdrawn.borrow_mut() = Some(withdrawn);
    }

    /// Whether the export it serves has been withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.withdrawn.borrow().as_ref().is_some_and(|w| w.get())
    }
}
