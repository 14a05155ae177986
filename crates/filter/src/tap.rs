//! Reports each request to a sink as it begins, while there is a sink.
//!
//! Without one a request costs a look at a flag: so it can stay in front of every
//! volume.

use crate::access::Access;
use crate::observe::{Observe, Observed};
use block::{Nanos, Timer};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Takes requests as they begin, on the shard's hot path; must not block.
pub trait Begin: 'static {
    /// A request begins.
    fn begin(&mut self, now: Nanos, access: &Access);
}

/// The device `D`, whose requests go to a sink `S` while there is one. Clones
/// share the sink.
pub type Tapped<D, S> = Observed<D, Tap<S>>;

/// Where the sink is put and taken.
pub struct Tap<S>(Rc<Inner<S>>);

struct Inner<S> {
    on: Cell<bool>,
    sink: RefCell<Option<S>>,
    timer: Timer,
}

impl<S> Clone for Tap<S> {
    fn clone(&self) -> Tap<S> {
        Tap(self.0.clone())
    }
}

impl<S: Begin> Tap<S> {
    /// Puts a sink; false, and nothing changes, if there is one.
    pub fn put(&self, sink: S) -> bool {
        let mut place = self.0.sink.borrow_mut();
        let free = place.is_none();
        if free {
            *place = Some(sink);
            self.0.on.set(true);
        }
        free
    }

    /// Takes the sink out.
    pub fn take(&self) -> Option<S> {
        self.0.on.set(false);
        self.0.sink.borrow_mut().take()
    }

    /// Looks at the sink, or empties it.
    pub fn with<T>(&self, f: impl FnOnce(&mut S) -> T) -> Option<T> {
        self.0.sink.borrow_mut().as_mut().map(f)
    }

    #[cold]
    fn notify_sink(&self, access: &Access) {
        let now = self.0.timer.now();
        self.with(|sink| sink.begin(now, access));
    }
}

impl<S: Begin> Observe for Tap<S> {
    #[inline]
    fn begins(&self, access: Access) {
        if self.0.on.get() {
            self.notify_sink(&access);
        }
    }
}

impl<D, S: Begin> Tapped<D, S> {
    /// `inner` without a sink.
    pub fn new(inner: D, timer: Timer) -> Tapped<D, S> {
        let tap = Inner {
            on: Cell::new(false),
            sink: RefCell::new(None),
            timer,
        };
        Observed::by(inner, Tap(Rc::new(tap)))
    }

    /// Where the sink is put.
    pub fn tap(&self) -> Tap<S> {
        self.observer.clone()
    }
}
