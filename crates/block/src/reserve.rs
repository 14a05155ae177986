//! Memory that a layer sets aside, for requests that need far more than the one
//! buffer they came with: a stripe that is changed in part, a member's bytes that
//! are computed from the others.
//!
//! Invariants:
//!     bytes set aside for reserves <= half of the pool: frontends may hold the rest
//!     bytes granted <= bytes set aside
//!     a grant is asked for before a lock is, and all at once
//!         ⟹ who waits for one holds nothing that a holder waits for
//!     a buffer is taken from a grant ⟹ it fits what is left of that
//!
//! A layer has a reserve of its own, so that a device which does not answer keeps
//! that of its own layer at most. Grants are served in order of arrival.

use crate::buf::Buf;
use crate::error::{IoError, IoResult, Kind};
use crate::pool::Pool;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};

/// The part of a pool that a reserve gets if it needs no more.
const SHARE: usize = 16;

/// Memory set aside; clones are the same.
#[derive(Clone)]
pub struct Reserve(Rc<Inner>);

struct Inner {
    pool: Pool,
    bytes: usize,
    free: Cell<usize>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    tickets: Cell<u64>,
}

impl Reserve {
    /// Sets aside what `who` can do with, `least` bytes at least.
    ///
    /// `Err(Invalid)`: so much is not left of the pool.
    pub fn new(pool: &Pool, least: usize, who: &str) -> IoResult<Reserve> {
        let (half, reserved) = (pool.total_bytes() / 2, pool.reserved());
        let left = half.saturating_sub(reserved.load(Relaxed));
        if least > left {
            let need = 2 * (reserved.load(Relaxed) + least);
            let what = format!(
                "{who} needs {} MiB of buffer memory for itself and {} MiB are left; raise \
                 `buffers` of `[daemon]` to {} MiB at least",
                least.div_ceil(1 << 20),
                left >> 20,
                need.div_ceil(1 << 20)
            );
            return Err(IoError::new(Kind::Invalid, what));
        }
        let bytes = least.max((half * 2 / SHARE).min(left / 2));
        reserved.fetch_add(bytes, Relaxed);
        Ok(Reserve(Rc::new(Inner {
            pool: pool.clone(),
            bytes,
            free: Cell::new(bytes),
            waiting: RefCell::default(),
            tickets: Cell::new(0),
        })))
    }

    /// Waits its turn until `bytes` are free of it.
    pub async fn grant(&self, bytes: usize) -> Grant {
        let inner = &*self.0;
        assert!(bytes <= inner.bytes, "a grant of {bytes} bytes");
        let mut place = Place {
            inner,
            ticket: None,
        };
        poll_fn(|cx| place.poll(bytes, cx.waker())).await;
        Grant {
            inner: self.0.clone(),
            bytes,
            left: Cell::new(bytes),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.reserved().fetch_sub(self.bytes, Relaxed);
    }
}

impl Inner {
    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }
}

/// A place in the queue, given up when dropped.
struct Place<'a> {
    inner: &'a Inner,
    ticket: Option<u64>,
}

impl Place<'_> {
    fn poll(&mut self, bytes: usize, waker: &Waker) -> Poll<()> {
        let inner = self.inner;
        let first = inner.waiting.borrow().front().map(|(ticket, _)| *ticket);
        if first == self.ticket && bytes <= inner.free.get() {
            inner.free.set(inner.free.get() - bytes);
            return Poll::Ready(());
        }
        let mut waiting = inner.waiting.borrow_mut();
        match self.ticket {
            None => {
                let ticket = inner.tickets.replace(inner.tickets.get() + 1);
                self.ticket = Some(ticket);
                waiting.push_back((ticket, waker.clone()));
            }
            Some(mine) => {
                let place = waiting.iter_mut().find(|(ticket, _)| *ticket == mine);
                let (_, known) = place.expect("queued until served");
                known.clone_from(waker);
            }
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(mine) = self.ticket {
            let waiting = &self.inner.waiting;
            waiting.borrow_mut().retain(|(ticket, _)| *ticket != mine);
            self.inner.wake_first();
        }
    }
}

/// A part of a reserve. What was taken from it goes before it does, but for what a
/// device keeps.
pub struct Grant {
    inner: Rc<Inner>,
    bytes: usize,
    left: Cell<usize>,
}

impl Grant {
    /// A buffer of `len` bytes, at once.
    pub fn take(&self, len: usize) -> Buf {
        let bytes = Pool::footprint(len);
        let left = self.left.get().checked_sub(bytes);
        let left = left.expect("a layer takes no more than it was granted");
        self.left.set(left);
        self.inner.pool.take(len)
    }

    /// Drops a buffer that was taken, or one that came back in its place: as much
    /// may be taken again.
    pub fn give_back(&self, buf: Buf) {
        let left = self.left.get() + Pool::footprint(buf.len());
        assert!(left <= self.bytes, "a buffer of another");
        self.left.set(left);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let inner = &self.inner;
        inner.free.set(inner.free.get() + self.bytes);
        inner.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    #[test]
    fn reserves_leave_half_to_frontends_and_say_what_they_lack() {
        let pool = Pool::new(64 << 20);
        let first = Reserve::new(&pool, 1 << 20, "a").unwrap();
        assert_eq!(first.0.bytes, 4 << 20);
        let second = Reserve::new(&pool, 20 << 20, "b").unwrap();
        assert_eq!(second.0.bytes, 20 << 20);
        let error = Reserve::new(&pool, 9 << 20, "array c").err().unwrap();
        assert_eq!(error.kind(), Kind::Invalid);
        let text = error.to_string();
        assert!(text.contains("array c needs 9 MiB"), "{text}");
        assert!(text.contains("`buffers` of `[daemon]` to 66 MiB"), "{text}");
        let third = Reserve::new(&pool, 8 << 20, "c").unwrap();
        assert_eq!(third.0.bytes, 8 << 20);
        drop((first, second, third));
        assert_eq!(pool.reserved().load(Relaxed), 0);
    }

    #[test]
    fn grants_are_served_in_order_and_waiters_may_leave() {
        let pool = Pool::new(8 << 20);
        let reserve = Reserve::new(&pool, 1 << 20, "a").unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut now = |future: &mut std::pin::Pin<Box<dyn Future<Output = Grant>>>| match future
            .as_mut()
            .poll(&mut cx)
        {
            Poll::Ready(grant) => Some(grant),
            Poll::Pending => None,
        };
        let ask = |kib: usize| {
            let reserve = reserve.clone();
            let grant = async move { reserve.grant(kib << 10).await };
            Box::pin(grant) as std::pin::Pin<Box<dyn Future<Output = Grant>>>
        };
        let most = now(&mut ask(768)).unwrap();
        let (mut large, mut gone, mut small) = (ask(512), ask(1024), ask(4));
        assert!(now(&mut large).is_none() && now(&mut gone).is_none());
        assert!(now(&mut small).is_none(), "it must not overtake");
        drop(most);
        let large = now(&mut large).expect("room, and first");
        assert!(now(&mut small).is_none());
        drop(gone);
        assert!(now(&mut small).is_some());
        drop(large);
        assert_eq!(reserve.0.free.get(), reserve.0.bytes);
    }

    #[test]
    fn canary_a_layer_that_takes_more_than_it_was_granted_is_stopped() {
        let pool = Pool::new(8 << 20);
        let reserve = Reserve::new(&pool, 1 << 20, "a").unwrap();
        let mut grant = pin!(reserve.grant(3 * 4096));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(grant) = grant.as_mut().poll(&mut cx) else {
            panic!("it is free")
        };
        let first = grant.take(5000);
        let second = grant.take(100);
        grant.give_back(first);
        let again = grant.take(8192);
        drop((second, again));
        let more = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| grant.take(1)));
        assert!(more.is_err());
    }
}
