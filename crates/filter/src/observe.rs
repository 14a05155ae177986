//! A device that reports each request to an observer as it begins.
//!
//! Nothing is awaited: a request costs what its observer does with it.
//!
//! Not here: how requests end ([`Watched`](crate::Watched) reports that).

use crate::access::{Access, Verb};
use block::{Buf, Content, Device, Extent, Fua, Geometry, IoResult, Lba, Shared};

/// Hears of every request; called on the shard's hot path, must not block.
pub trait Observe: 'static {
    /// A request begins.
    fn begins(&self, access: Access);
}

/// The device `D`, observed by `O`.
#[derive(Clone)]
pub struct Observed<D, O> {
    inner: D,
    pub(crate) observer: O,
}

impl<D, O: Observe> Observed<D, O> {
    pub(crate) fn by(inner: D, observer: O) -> Observed<D, O> {
        Observed { inner, observer }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device, O: Observe> Device for Observed<D, O> {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        let access = Access::transfer(Verb::Read, at, buf.len(), Fua::No);
        self.observer.begins(access);
        self.inner.read(at, buf)
    }

    fn write(&self, at: Lba, data: Shared, fua: Fua) -> impl Future<Output = IoResult> {
        let access = Access::transfer(Verb::Write, at, data.len(), fua);
        self.observer.begins(access);
        self.inner.write(at, data, fua)
    }

    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.observer.begins(Access::of(Verb::Zero, extent));
        self.inner.zero(extent)
    }

    fn flush(&self) -> impl Future<Output = IoResult> {
        self.observer.begins(Access::FLUSH);
        self.inner.flush()
    }

    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.observer.begins(Access::of(Verb::Discard, extent));
        self.inner.discard(extent)
    }

    fn extents(
        &self,
        extent: Extent,
        out: &mut Vec<(Extent, Content)>,
    ) -> impl Future<Output = IoResult> {
        self.observer.begins(Access::of(Verb::Extents, extent));
        self.inner.extents(extent, out)
    }
}
