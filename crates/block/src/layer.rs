//! Devices around others.

use crate::buf::{Buf, SharedBuf};
use crate::device::{Content, Device, Geometry};
use crate::error::IoResult;
use crate::units::{Extent, Fua, Lba};
use std::future::Future;

/// A device around another one. Each verb is passed on, unless the layer has its own.
#[allow(async_fn_in_trait, reason = "as of a device")]
pub trait Layer: 'static {
    /// The type of the device below.
    type Below: Device;

    /// The device below.
    fn below(&self) -> &Self::Below;

    /// As [`Device::geometry`].
    fn geometry(&self) -> &Geometry {
        self.below().geometry()
    }

    /// As [`Device::read`].
    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        self.below().read(at, buf)
    }

    /// As [`Device::write`].
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> impl Future<Output = IoResult> {
        self.below().write(at, data, fua)
    }

    /// As [`Device::zero`].
    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.below().zero(extent)
    }

    /// As [`Device::flush`].
    fn flush(&self) -> impl Future<Output = IoResult> {
        self.below().flush()
    }

    /// As [`Device::discard`].
    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        self.below().discard(extent)
    }

    /// As [`Device::extents`].
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.below().extents(extent, out).await
    }

    /// As [`Device::announce`].
    fn announce(&self, extent: Extent) {
        self.below().announce(extent);
    }
}

impl<L: Layer> Device for L {
    fn geometry(&self) -> &Geometry {
        L::geometry(self)
    }
    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        L::read(self, at, buf)
    }
    fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> impl Future<Output = IoResult> {
        L::write(self, at, data, fua)
    }
    fn zero(&self, extent: Extent) -> impl Future<Output = IoResult> {
        L::zero(self, extent)
    }
    fn flush(&self) -> impl Future<Output = IoResult> {
        L::flush(self)
    }
    fn discard(&self, extent: Extent) -> impl Future<Output = IoResult> {
        L::discard(self, extent)
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        L::extents(self, extent, out).await
    }
    fn announce(&self, extent: Extent) {
        L::announce(self, extent);
    }
}
