//! Tells a sink of each request as it begins, while there is a sink.
//!
//! Without one a request costs a look at a flag, and nothing is awaited either
//! way: so it can stay in front of every volume.
//!
//! Not here: how requests end ([`Traced`](crate::Traced) tells that).

use crate::access::{Access, Verb};
use block::{Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, Nanos, Shared, Timer};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Takes requests as they begin, on the shard's hot path; must not block.
pub trait Begin: 'static {
    /// A request begins.
    fn begin(&mut self, now: Nanos, access: &Access);
}

/// The device `D`, whose requests go to a sink `S` while there is one. Clones
/// share the sink.
pub struct Tapped<D, S> {
    inner: D,
    tap: Tap<S>,
    timer: Timer,
}

impl<D: Clone, S> Clone for Tapped<D, S> {
    fn clone(&self) -> Tapped<D, S> {
        Tapped {
            inner: self.inner.clone(),
            tap: self.tap.clone(),
            timer: self.timer.clone(),
        }
    }
}

/// Where the sink is put and taken.
pub struct Tap<S>(Rc<Inner<S>>);

struct Inner<S> {
    on: Cell<bool>,
    sink: RefCell<Option<S>>,
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
}

impl<D, S: Begin> Tapped<D, S> {
    /// `inner` without a sink.
    pub fn new(inner: D, timer: Timer) -> Tapped<D, S> {
        let inner_of_tap = Inner {
            on: Cell::new(false),
            sink: RefCell::new(None),
        };
        Tapped {
            inner,
            tap: Tap(Rc::new(inner_of_tap)),
            timer,
        }
    }

    /// Where the sink is put.
    pub fn tap(&self) -> Tap<S> {
        self.tap.clone()
    }

    #[inline]
    fn tell(&self, access: impl FnOnce() -> Access) {
        if self.tap.0.on.get() {
            self.tell_sink(&access());
        }
    }

    #[cold]
    fn tell_sink(&self, access: &Access) {
        let now = self.timer.now();
        self.tap.with(|sink| sink.begin(now, access));
    }
}

impl<D: Device, S: Begin> Device for Tapped<D, S> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        self.tell(|| Access::transfer(Verb::Read, at, buf.len(), Fua::No));
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, data: Shared, fua: Fua) -> impl Future<Output = IoResult> {
        self.tell(|| Access::transfer(Verb::Write, at, data.len(), fua));
        self.inner.write(at, data, fua)
    }

    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.tell(|| Access::of(Verb::Zero, extent));
        self.inner.zero(extent)
    }

    fn flush(&self) -> impl Future<Output = IoResult> {
        self.tell(|| Access::FLUSH);
        self.inner.flush()
    }

    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.tell(|| Access::of(Verb::Discard, extent));
        self.inner.discard(extent)
    }

    fn extents(
        &self,
        extent: Extent,
        out: &mut Vec<(Extent, Content)>,
    ) -> impl Future<Output = IoResult> {
        self.tell(|| Access::of(Verb::Extents, extent));
        self.inner.extents(extent, out)
    }
}
