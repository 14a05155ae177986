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
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A source of connections, and a place of one.
pub(super) type LinkSource = quota::StreamSource<ServerLink>;
pub(super) type Place = quota::ConnectionPlace<ServerLink>;
/// Count of a request.
pub(super) type Admitted<'a> = super::admission::Admitted<'a, ServerLink>;

pub(super) struct ServerLink {
    pub(super) admission: Admission<Place>,
    workers: Workers,
    pub(super) replies: UnsentReplies,
    pub(super) life: ConnectionLife,
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
            self.admission.leave();
        }
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
        if self.life.killed().is_some() {
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
    /// holds the right by [`UnsentReplies::begin_undivided`].
    pub(super) async fn answer_undivided(&self, frame: Frame) {
        self.queue(frame, true);
        self.replies.undivided_gone(&self.life.sending).await;
    }

    /// Waits until every answer queued before now has been sent.
    pub(super) async fn all_sent(&self) {
        self.replies.all_sent(|| self.life.killed().is_some()).await;
    }

    /// Waits for frames to send; `None` when there will be no more.
    pub(super) async fn next_frames(&self) -> Option<&RefCell<VecDeque<Frame>>> {
        let over = || self.life.killed().is_some() || self.is_drained();
        let next = || match over() {
            true => Some(None),
            false => self.replies.ready().map(Some),
        };
        self.replies.unsent.until_some(next).await
    }

    /// A send has ended.
    pub(super) fn has_sent(&self, load: SendLoad) {
        self.life.sending.set(false);
        self.life.has_progressed();
        self.replies.has_sent(load.frames);
        self.release(load);
        self.replies.sent.notify();
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
}
