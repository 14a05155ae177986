//! The tasks that carry out the requests of a connection.
//!
//! Invariant: a worker is idle ⟹ no job waits

use crate::protocol::session::SessionCommand;
use block::{IoError, SharedBuf};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A request for the device.
pub(super) struct WorkerJob {
    pub(super) cookie: u64,
    pub(super) command: SessionCommand,
    /// The memory counted for the job, in bytes.
    pub(super) charge: u32,
    /// The longest piece of the job that is carried out at once, in bytes.
    pub(super) piece: u32,
    /// A write's bytes, or a part of them.
    pub(super) payload: Option<SharedBuf>,
    /// The other parts of the same write.
    pub(super) parts: Option<Rc<WriteParts>>,
}

/// A write that is carried out in several parts.
pub(super) struct WriteParts {
    /// Bytes that are not written yet.
    pub(super) left: Cell<u32>,
    pub(super) error: RefCell<Option<IoError>>,
}

/// One of the tasks that carry out jobs.
#[derive(Default)]
struct JobWorker {
    /// The job handed to the worker.
    job: Option<WorkerJob>,
    waker: Option<Waker>,
    is_idle: bool,
}

/// Jobs, and their workers.
#[derive(Default)]
pub(super) struct Workers {
    /// Jobs that found no worker.
    jobs: RefCell<VecDeque<WorkerJob>>,
    workers: RefCell<Vec<JobWorker>>,
    /// Workers without a job, by number.
    idle: RefCell<Vec<u32>>,
}

impl Workers {
    /// Hands a job to a worker; returns the number of a new worker to start for the job, if none is
    /// idle and there are fewer than `most`.
    #[inline]
    pub(super) fn dispatch(&self, job: WorkerJob, most: u32) -> Option<u32> {
        let mut workers = self.workers.borrow_mut();
        if let Some(number) = self.idle.borrow_mut().pop() {
            let worker = &mut workers[number as usize];
            worker.is_idle = false;
            worker.job = Some(job);
            worker.waker.as_ref().expect("set when idle").wake_by_ref();
            return None;
        }
        if workers.len() as u32 == most {
            self.jobs.borrow_mut().push_back(job);
            return None;
        }
        workers.push(JobWorker {
            job: Some(job),
            ..JobWorker::default()
        });
        Some(workers.len() as u32 - 1)
    }

    /// The next job of a worker, or `None` once there is none and `is_over`.
    pub(super) fn next(
        &self,
        number: u32,
        is_over: impl Fn() -> bool,
    ) -> impl Future<Output = Option<WorkerJob>> {
        poll_fn(move |cx| {
            let worker = &mut self.workers.borrow_mut()[number as usize];
            let job = worker.job.take();
            if let Some(job) = job.or_else(|| self.jobs.borrow_mut().pop_front()) {
                return Poll::Ready(Some(job));
            }
            if is_over() {
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

    /// Has every idle worker check for its end.
    pub(super) fn dismiss(&self) {
        for worker in self.workers.borrow().iter().filter(|w| w.is_idle) {
            worker.waker.as_ref().expect("set when idle").wake_by_ref();
        }
    }
}
