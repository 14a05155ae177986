//! State shared by the tasks of one connection.
//!
//! Invariant: a request is counted until its last answer is sent, or dropped with the
//! connection.

use super::admission::{Admission, Release};
use super::credit::Credits;
use super::flushes::FlushClient;
use super::life::ConnectionLife;
use super::limits::ServerLimits;
use super::quota;
use super::replies::UnsentReplies;
use super::workers::{WorkerJob, Workers};
use crate::outbox::{Frame, SendLoad};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// A source of connections, and a place of one.
pub(super) type LinkSource = quota::StreamSource<ServerLink>;
pub(super) type Place = quota::ConnectionPlace<ServerLink>;
/// Count of a request.
pub(super) type Admitted<'a> = super::admission::Admitted<'a, ServerLink>;

pub(super) struct ServerLink {
    admission: Admission<Place>,
    workers: Workers,
    replies: UnsentReplies,
    life: ConnectionLife,
    /// The client's view of its export's flushes.
    pub(super) client: FlushClient,
}

impl Release for ServerLink {
    fn release(&self, load: SendLoad) {
        self.admission.release(load);
        if self.is_drained() {
            self.replies.unsent.notify();
            self.workers.dismiss();
        }
    }
}

impl ServerLink {
    pub(super) fn new(limits: &ServerLimits, credits: &Rc<Credits>) -> ServerLink {
        ServerLink {
            admission: Admission::new(limits, credits),
            workers: Workers::default(),
            replies: UnsentReplies::default(),
            life: ConnectionLife::default(),
            client: FlushClient::default(),
        }
    }

    /// Gives the connection its place, and buffers of `fixed` bytes.
    pub(super) fn enter(&self, place: Place, fixed: usize, peer_closed: Box<dyn Fn() -> bool>) {
        self.admission.enter(place, fixed, peer_closed);
    }

    /// Gives the place back to others: the peer sends no more requests.
    pub(super) fn leave(&self) {
        self.admission.leave();
    }

    /// Shrinks the buffers by so many bytes.
    pub(super) fn shrink(&self, bytes: usize) {
        self.admission.account.shrink(bytes);
    }

    /// Waits until one more request is within the limits, and counts it; `charge` returns its
    /// memory in pieces of a length.
    pub(super) async fn admit(&self, charge: impl Fn(u32) -> u32) -> Admitted<'_> {
        let admit = || self.try_admit(&charge);
        self.admission.when_room(admit).await
    }

    /// Counts one more request, if that is within the limits.
    #[inline]
    pub(super) fn try_admit(&self, charge: impl Fn(u32) -> u32) -> Option<Admitted<'_>> {
        self.admission.try_admit(self, charge)
    }

    /// Waits until more memory of a request is within the limits, and counts that memory.
    pub(super) async fn charge(&self, charge: impl Fn(u32) -> u32) -> Admitted<'_> {
        let take = || self.admission.try_charge(self, &charge);
        self.admission.when_room(take).await
    }

    /// Gives the place back if the peer has closed its end: a reader that waits for room does not
    /// see that.
    pub(super) fn leave_if_closed(&self) {
        if self.life.finished.get() || self.admission.is_closed_unseen() {
            self.leave();
        }
    }

    /// Ends the connection's account: no request is left.
    pub(super) fn end(&self) {
        self.admission.end();
    }

    /// Gives memory back.
    pub(super) fn discharge(&self, charge: u32) {
        self.release(SendLoad {
            charge,
            ..SendLoad::default()
        });
    }

    /// Hands a job to a worker; returns the number of a new worker to start for the job, if none is
    /// idle and there may be one more.
    #[inline]
    pub(super) fn dispatch(&self, job: WorkerJob) -> Option<u32> {
        self.workers.dispatch(job, self.admission.requests_max)
    }

    /// The next job of a worker, or `None` when there will be no more.
    pub(super) fn next_job(&self, number: u32) -> impl Future<Output = Option<WorkerJob>> {
        self.workers.next(number, || self.is_drained())
    }

    /// Queues an answer.
    #[inline]
    pub(super) fn answer(&self, frame: Frame) {
        self.queue(frame, false);
        self.replies.count();
    }

    #[inline]
    fn queue(&self, frame: Frame, undivided: bool) {
        if self.killed().is_some() {
            self.release(SendLoad {
                requests: u32::from(frame.last),
                charge: frame.charge,
                frames: 0,
            });
            self.replies.sent.notify();
            return;
        }
        self.replies.queue(frame, undivided);
    }

    /// Queues one frame of an undivided answer, and waits until the frame has been sent. The caller
    /// holds the right by [`ServerLink::begin_undivided`].
    pub(super) async fn answer_undivided(&self, frame: Frame) {
        self.queue(frame, true);
        self.replies.undivided_gone(&self.life.sending).await;
    }

    /// Waits for the right to send an answer that nothing may come between.
    pub(super) async fn begin_undivided(&self) {
        self.replies.begin_undivided().await;
    }

    pub(super) fn end_undivided(&self) {
        self.replies.end_undivided();
    }

    /// Waits until every answer queued before now has been sent.
    pub(super) async fn all_sent(&self) {
        self.replies.all_sent(|| self.killed().is_some()).await;
    }

    /// Waits for frames to send; `None` when there will be no more.
    pub(super) async fn next_frames(&self) -> Option<&RefCell<VecDeque<Frame>>> {
        let over = || self.killed().is_some() || self.is_drained();
        let next = || match over() {
            true => Some(None),
            false => self.replies.ready().map(Some),
        };
        self.replies.unsent.until_some(next).await
    }

    /// A send has begun.
    pub(super) fn begin_send(&self) {
        self.life.sending.set(true);
    }

    /// A send has ended.
    pub(super) fn has_sent(&self, load: SendLoad) {
        self.life.sending.set(false);
        self.life.has_progressed();
        self.replies.has_sent(load.frames);
        self.release(load);
        self.replies.sent.notify();
    }

    /// Notes that bytes of the peer are awaited, or no more.
    pub(super) fn set_receiving(&self, receiving: bool) {
        self.life.receiving.set(receiving);
    }

    /// The peer has made progress.
    pub(super) fn has_progressed(&self) {
        self.life.has_progressed();
    }

    /// True if the peer has made no progress since the last call, while bytes of the peer, or a
    /// receive, are awaited.
    pub(super) fn has_stalled(&self) -> bool {
        self.life.has_stalled()
    }

    /// No more requests will come; those in flight are still answered.
    pub(super) fn finish(&self) {
        self.life.finished.set(true);
        self.replies.unsent.notify();
        self.workers.dismiss();
    }

    fn is_drained(&self) -> bool {
        self.life.finished.get() && self.admission.is_idle()
    }

    /// Waits until every request is answered or given up.
    pub(super) async fn drained(&self) {
        let drained = || self.is_drained().then_some(());
        self.admission.room.until_some(drained).await;
    }

    /// Ends the connection without regard for requests in flight.
    pub(super) fn kill(&self, why: &'static str) {
        if !self.life.kill(why) {
            return;
        }
        let mut load = SendLoad::default();
        self.replies.drop_all(|frame| {
            load.requests += u32::from(frame.last);
            load.charge += frame.charge;
        });
        self.release(load);
        self.life.notify_killed();
        self.replies.unsent.notify();
        self.replies.sent.notify();
    }

    /// Waits for [`ServerLink::kill`].
    pub(super) async fn is_killed(&self) {
        self.life.is_killed().await;
    }

    /// Reason for which the connection was killed, if that happened.
    pub(super) fn killed(&self) -> Option<&'static str> {
        self.life.killed()
    }

    /// Names the flag that is set when the export is withdrawn.
    pub(super) fn serves(&self, withdrawn: Rc<Cell<bool>>) {
        self.life.serves(withdrawn);
    }

    /// True if the connection's export has been withdrawn.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.life.is_withdrawn()
    }
}
