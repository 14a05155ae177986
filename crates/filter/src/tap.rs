//! Reports each request to a sink as it begins, while there is a sink.
//!
//! Without a sink a request costs the check of a flag, so that the tap can stay in front of every
//! volume.

use crate::access::RawAccess;
use crate::watch::RequestObserver;
use block::Nanos;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A sink of requests as they begin, on the shard's hot path; must not block.
pub trait Begin: 'static {
    /// Takes a request that begins.
    fn begin(&mut self, now: Nanos, access: &RawAccess);
}

/// A handle that puts and takes the sink; clones are the same.
pub struct Tap<S>(Rc<TapShared<S>>);

struct TapShared<S> {
    on: Cell<bool>,
    sink: RefCell<Option<S>>,
}

impl<S> Clone for Tap<S> {
    fn clone(&self) -> Tap<S> {
        Tap(self.0.clone())
    }
}

impl<S: Begin> Tap<S> {
    /// Puts a sink; returns false, without a change, if there is one.
    pub fn put(&self, sink: S) -> bool {
        let mut place = self.0.sink.borrow_mut();
        let free = place.is_none();
        if free {
            *place = Some(sink);
            self.0.on.set(true);
        }
        free
    }

    /// True if there is a sink.
    pub fn is_on(&self) -> bool {
        self.0.on.get()
    }

    /// Takes the sink out.
    pub fn take(&self) -> Option<S> {
        self.0.on.set(false);
        self.0.sink.borrow_mut().take()
    }

    /// Calls `f` with the sink, to look at it or to empty it.
    pub fn with<T>(&self, f: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.0.sink.borrow_mut().as_mut().map(f)
    }

    #[cold]
    fn notify_sink(&self, now: Nanos, access: &RawAccess) {
        self.with(|sink| sink.begin(now, access));
    }
}

impl<S> Default for Tap<S> {
    fn default() -> Tap<S> {
        Tap(Rc::new(TapShared {
            on: Cell::new(false),
            sink: RefCell::new(None),
        }))
    }
}

impl<S: Begin> RequestObserver for Tap<S> {
    #[inline]
    fn begin(&self, now: Nanos, access: &RawAccess) {
        if self.0.on.get() {
            self.notify_sink(now, access);
        }
    }
}
