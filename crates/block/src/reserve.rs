//! Memory that a layer sets aside, for requests that need far more than the one buffer they came
//! with. Examples are a stripe that is changed in part, and a member's bytes that are computed from
//! the others.
//!
//! Invariants:
//!     bytes set aside for reserves <= half of the pool: frontends may hold the rest
//!     bytes granted <= bytes set aside
//!     a grant is asked for before a lock is, and all at once
//!         ⟹ a waiter for a grant holds nothing that a holder waits for
//!     a buffer is taken from a grant ⟹ the buffer fits the rest of that grant
//!
//! A layer has a reserve of its own, so that a device which does not answer keeps that of its own
//! layer at most. Grants are served in order of arrival.

use crate::buf::Buf;
use crate::error::{IoError, IoErrorKind, IoResult};
use crate::pool::Pool;
use crate::semaphore::Semaphore;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

/// The part of a pool for a reserve with a lower minimum.
const SHARE: usize = 16;

/// Memory set aside; clones are the same.
#[derive(Clone)]
pub struct Reserve(Rc<ReserveShared>);

struct ReserveShared {
    pool: Pool,
    bytes: usize,
    free: Semaphore,
}

impl Reserve {
    /// Sets a reserve aside for the layer `who`: a usual share, or `least` bytes if that is more.
    ///
    /// `Err(Invalid)`: the pool has less than `least` bytes left.
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
            return Err(IoError::new(IoErrorKind::Invalid, what));
        }
        let bytes = least.max((half * 2 / SHARE).min(left / 2));
        reserved.fetch_add(bytes, Relaxed);
        Ok(Reserve(Rc::new(ReserveShared {
            pool: pool.clone(),
            bytes,
            free: Semaphore::new(bytes),
        })))
    }

    /// Waits its turn until `bytes` of the reserve are free.
    pub async fn grant(&self, bytes: usize) -> Grant {
        let inner = &*self.0;
        assert!(bytes <= inner.bytes, "a grant of {bytes} bytes");
        inner.free.take(bytes).await.forget();
        Grant {
            inner: self.0.clone(),
            bytes,
            left: Cell::new(bytes),
        }
    }
}

impl Drop for ReserveShared {
    fn drop(&mut self) {
        self.pool.reserved().fetch_sub(self.bytes, Relaxed);
    }
}

/// A part of a reserve. The buffers taken from a grant are dropped before the grant, except for
/// those that a device keeps.
pub struct Grant {
    inner: Rc<ReserveShared>,
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
        self.inner.free.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn reserves_leave_half_to_frontends_and_say_what_they_lack() {
        let pool = Pool::new(64 << 20);
        let first = Reserve::new(&pool, 1 << 20, "a").unwrap();
        assert_eq!(first.0.bytes, 4 << 20);
        let second = Reserve::new(&pool, 20 << 20, "b").unwrap();
        assert_eq!(second.0.bytes, 20 << 20);
        let error = Reserve::new(&pool, 9 << 20, "array c").err().unwrap();
        assert_eq!(error.kind(), IoErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("array c needs 9 MiB"), "{text}");
        assert!(text.contains("`buffers` of `[daemon]` to 66 MiB"), "{text}");
        let third = Reserve::new(&pool, 8 << 20, "c").unwrap();
        assert_eq!(third.0.bytes, 8 << 20);
        drop((first, second, third));
        assert_eq!(pool.reserved().load(Relaxed), 0);
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
