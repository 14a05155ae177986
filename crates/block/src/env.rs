//! The handles by which a layer starts tasks, sleeps and gets memory, so that
//! promotion, cleaning and rebuild live in their layers.

use crate::pool::Pool;
use crate::units::Nanos;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The services of an executor to the layers on top.
pub trait Executor {
    /// Starts a task, which runs even without a waiter.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>);
    /// The driver's time.
    fn now(&self) -> Nanos;
    /// Wakes `waker` once at `at`, unless cancelled by the key returned.
    fn set_timer(&self, at: Nanos, waker: Waker) -> TimerKey;
    /// As [`Executor::set_timer`], but as late as `latest` if the executor has no other work.
    fn set_idle_timer(&self, at: Nanos, _latest: Nanos, waker: Waker) -> TimerKey {
        self.set_timer(at, waker)
    }
    /// Forgets a timer that may not have fired.
    fn cancel_timer(&self, key: TimerKey);
}

/// Names a timer that has been set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerKey(pub u64);

/// Starts tasks on this shard.
#[derive(Clone)]
pub struct Spawn(Rc<dyn Executor>);

impl Spawn {
    /// Starts `task`, which runs even without a waiter.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.spawn(Box::pin(task));
    }

    /// `work`, carried through once polled: if the future returned here is dropped, its rest goes
    /// on as a task. For work that holds a lock over an operation, which outlives its future.
    pub fn persist<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Persist<T> {
        Persist {
            work: Some(Box::pin(work)),
            started: false,
            spawn: self.clone(),
        }
    }
}

/// Work that is carried through once polled; see [`Spawn::persist`].
pub struct Persist<T: 'static> {
    work: Option<Pin<Box<dyn Future<Output = T>>>>,
    started: bool,
    spawn: Spawn,
}

impl<T> Future for Persist<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.started = true;
        let work = self.work.as_mut().expect("polled after its end");
        let output = work.as_mut().poll(cx);
        if output.is_ready() {
            self.work = None;
        }
        output
    }
}

impl<T> Drop for Persist<T> {
    fn drop(&mut self) {
        if let (true, Some(work)) = (self.started, self.work.take()) {
            self.spawn.spawn(async move {
                work.await;
            });
        }
    }
}

/// Returns the time and sleeps.
#[derive(Clone)]
pub struct Timer(Rc<dyn Executor>);

impl Timer {
    /// Time since the host's epoch; an executor may read its clock once for several tasks in a row.
    pub fn now(&self) -> Nanos {
        self.0.now()
    }

    /// Sleeps until `at`; returns at once if that is past.
    pub fn until(&self, at: Nanos) -> Sleep {
        Sleep {
            executor: self.0.clone(),
            at,
            latest: at,
            key: None,
        }
    }

    /// Sleeps for `span`.
    pub fn sleep(&self, span: Nanos) -> Sleep {
        self.until(self.now() + span)
    }

    /// Sleeps for `span`, or up to `most` while the executor has no other work. For looks at state
    /// that only other work changes: an idle process is not woken for them.
    pub fn idle_sleep(&self, span: Nanos, most: Nanos) -> Sleep {
        let now = self.now();
        let mut sleep = self.until(now + span);
        sleep.latest = now + most.max(span);
        sleep
    }

    /// Runs `work` until `span` has passed; `None` if `work` did not end by then and is dropped.
    /// For the time limit of a device: [`crate::Deadline`].
    pub async fn timeout<T>(&self, span: Nanos, work: impl Future<Output = T>) -> Option<T> {
        first_of(work, self.sleep(span)).await
    }
}

/// The result of `work`, unless `limit` ends before.
pub(crate) async fn first_of<T>(
    work: impl Future<Output = T>,
    limit: impl Future<Output = ()>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    let mut limit = std::pin::pin!(limit);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// A sleep in progress; dropping it cancels the timer.
pub struct Sleep {
    executor: Rc<dyn Executor>,
    at: Nanos,
    /// Time of the wake if there is no other work until then.
    latest: Nanos,
    key: Option<TimerKey>,
}

impl Sleep {
    /// The delay of a timer: the time now less its set time.
    pub(crate) fn overshot(&self) -> Nanos {
        self.executor.now().since(self.at)
    }

    /// After its end: sleeps for `span`, from its due time if `in_time`, else from now.
    pub(crate) fn again(&mut self, span: Nanos, in_time: bool) {
        let from = match in_time {
            true => self.at,
            false => self.executor.now(),
        };
        self.at = from + span;
        self.latest = self.at;
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(key) = self.key.take() {
            self.executor.cancel_timer(key);
        }
        if self.executor.now() >= self.at {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        self.key = Some(match self.latest > self.at {
            true => self.executor.set_idle_timer(self.at, self.latest, waker),
            false => self.executor.set_timer(self.at, waker),
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.executor.cancel_timer(key);
        }
    }
}

/// All services of a shard for its layers.
#[derive(Clone)]
pub struct Env {
    /// Starts tasks.
    pub spawn: Spawn,
    /// Returns the time and sleeps.
    pub timer: Timer,
    /// Buffer memory.
    pub pool: Pool,
}

impl Env {
    /// The handles of one executor and pool.
    pub fn new(executor: Rc<dyn Executor>, pool: Pool) -> Env {
        Env {
            spawn: Spawn(executor.clone()),
            timer: Timer(executor),
            pool,
        }
    }
}
