//! A device as slow as a model of another one.
//!
//! A request begins on the device at once. It ends once the device has ended it and it is due by
//! the model. So a real file behaves like the modelled disk, as long as the file is the faster of
//! the two.
//!
//! One task a device sleeps until the next request is due, and only while some are in flight.
//!
//! Not here: the model (a [`DelayPacer`]), and delays of `extents`, which needs no medium.

use crate::access::{AccessVerb, RawAccess};
use block::{
    Buf, Content, Device, Env, Extent, Fua, Geometry, IoResult, Lba, Nanos, SharedBuf, Sleep, Timer,
};
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A model of the time that requests take.
pub trait DelayPacer: 'static {
    /// Begins the request `id` at `now`; the request lies inside the device.
    fn arrive(&mut self, now: Nanos, id: u64, access: &RawAccess);

    /// Returns the time of the next call of [`DelayPacer::take_due`]; `None` while nothing is in flight.
    fn next_due(&self) -> Option<Nanos>;

    /// Appends the ids of the requests that are due by `now`.
    fn take_due(&mut self, now: Nanos, due: &mut Vec<u64>);
}

/// A device that is as slow as the model `P`.
pub struct Delayed<D, P> {
    inner: D,
    env: Env,
    pace: Rc<RefCell<DelayPace<P>>>,
}

struct DelayPace<P> {
    pacer: P,
    next_id: u64,
    /// The requests that are not due yet.
    waiting: HashMap<u64, Option<Waker>>,
    /// Waker of the task that ends requests; `None` while no such task runs.
    clerk: Option<Waker>,
}

impl<D: Device, P: DelayPacer> Delayed<D, P> {
    /// Paces `inner` by `pacer`.
    pub fn new(inner: D, pacer: P, env: Env) -> Delayed<D, P> {
        Delayed {
            inner,
            env,
            pace: Rc::new(RefCell::new(DelayPace {
                pacer,
                next_id: 0,
                waiting: HashMap::new(),
                clerk: None,
            })),
        }
    }

    /// Runs `work`, which serves `access`, for as long as the model says. A request that the device
    /// will refuse costs nothing.
    async fn pace<T>(&self, access: RawAccess, valid: bool, work: impl Future<Output = T>) -> T {
        if !valid {
            return work.await;
        }
        let id = self.arrive(&access);
        let mut work = pin!(work);
        let mut output = None;
        poll_fn(|cx| {
            if output.is_none()
                && let Poll::Ready(value) = work.as_mut().poll(cx)
            {
                output = Some(value);
            }
            let mut pace = self.pace.borrow_mut();
            if let Some(waker) = pace.waiting.get_mut(&id) {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            output.take().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    fn arrive(&self, access: &RawAccess) -> u64 {
        let mut pace = self.pace.borrow_mut();
        let id = pace.next_id;
        pace.next_id += 1;
        pace.waiting.insert(id, None);
        pace.pacer.arrive(self.env.timer.now(), id, access);
        match &pace.clerk {
            Some(waker) => waker.wake_by_ref(),
            None => {
                pace.clerk = Some(Waker::noop().clone());
                self.env.spawn.spawn(Clerk {
                    pace: self.pace.clone(),
                    timer: self.env.timer.clone(),
                    sleep: None,
                    due: Vec::new(),
                });
            }
        }
        id
    }
}

/// Ends requests when they are due; stops when none is in flight.
struct Clerk<P> {
    pace: Rc<RefCell<DelayPace<P>>>,
    timer: Timer,
    sleep: Option<Pin<Box<Sleep>>>,
    due: Vec<u64>,
}

impl<P: DelayPacer> Future for Clerk<P> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut pace = this.pace.borrow_mut();
        loop {
            pace.pacer.take_due(this.timer.now(), &mut this.due);
            for id in this.due.drain(..) {
                if let Some(Some(waker)) = pace.waiting.remove(&id) {
                    waker.wake();
                }
            }
            let Some(at) = pace.pacer.next_due() else {
                pace.clerk = None;
                return Poll::Ready(());
            };
            let mut sleep = Box::pin(this.timer.until(at));
            if sleep.as_mut().poll(cx).is_pending() {
                this.sleep = Some(sleep);
                pace.clerk = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }
}

impl<D: Device, P: DelayPacer> Device for Delayed<D, P> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let valid = self.geometry().transfer(at, buf.len()).is_ok();
        let access = RawAccess::transfer(AccessVerb::Read, at, buf.len(), Fua::No);
        self.pace(access, valid, self.inner.read(at, buf)).await
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let valid = self.geometry().transfer(at, data.len()).is_ok();
        let access = RawAccess::transfer(AccessVerb::Write, at, data.len(), fua);
        let work = self.inner.write(at, data, fua);
        self.pace(access, valid, work).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let valid = self.geometry().check(extent).is_ok();
        let access = RawAccess::of(AccessVerb::Zero, extent);
        self.pace(access, valid, self.inner.zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        self.pace(RawAccess::FLUSH, true, self.inner.flush()).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        let valid = self.geometry().check(extent).is_ok();
        let access = RawAccess::of(AccessVerb::Discard, extent);
        self.pace(access, valid, self.inner.discard(extent)).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.inner.extents(extent, out).await
    }
}
