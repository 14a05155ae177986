//! An open device with a meter, below all layers.

use block::{
    BoxDevice, Buf, Content, Device, DiskPlace, Driver, Extent, Fua, Geometry, IoResult, Lba,
    LocatedEnd, ReadTimes, SharedBuf, Timer,
};
use filter::{Metered, VerbMeter};
use shard::ShardDisk;
use std::rc::Rc;

/// A device with a meter. Clones are the same device.
///
/// Disks have a variant of their own, so that a hit is a direct call.
pub enum Leaf<D: Driver> {
    /// A disk of the driver.
    Disk(Rc<Metered<ShardDisk<D>>>),
    /// Any other device.
    Other(Rc<Metered<BoxDevice>>),
}

impl<D: Driver> Clone for Leaf<D> {
    fn clone(&self) -> Leaf<D> {
        match self {
            Leaf::Disk(device) => Leaf::Disk(device.clone()),
            Leaf::Other(device) => Leaf::Other(device.clone()),
        }
    }
}

impl<D: Driver> Leaf<D> {
    pub(crate) fn disk(disk: ShardDisk<D>, timer: Timer) -> Leaf<D> {
        Leaf::Disk(Rc::new(Metered::meter(disk, timer)))
    }

    pub(crate) fn other(device: BoxDevice, timer: Timer) -> Leaf<D> {
        Leaf::Other(Rc::new(Metered::meter(device, timer)))
    }

    /// The meter of the operations.
    pub fn meter(&self) -> &VerbMeter {
        match self {
            Leaf::Disk(device) => device.watch(),
            Leaf::Other(device) => device.watch(),
        }
    }
}

impl<D: Driver> Device for Leaf<D> {
    fn geometry(&self) -> &Geometry {
        match self {
            Leaf::Disk(device) => device.geometry(),
            Leaf::Other(device) => device.geometry(),
        }
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        match self {
            Leaf::Disk(device) => device.read(at, buf).await,
            Leaf::Other(device) => device.read(at, buf).await,
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        match self {
            Leaf::Disk(device) => device.write(at, data, fua).await,
            Leaf::Other(device) => device.write(at, data, fua).await,
        }
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        match self {
            Leaf::Disk(device) => device.zero(extent).await,
            Leaf::Other(device) => device.zero(extent).await,
        }
    }

    async fn flush(&self) -> IoResult {
        match self {
            Leaf::Disk(device) => device.flush().await,
            Leaf::Other(device) => device.flush().await,
        }
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        match self {
            Leaf::Disk(device) => device.discard(extent).await,
            Leaf::Other(device) => device.discard(extent).await,
        }
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        match self {
            Leaf::Disk(device) => device.extents(extent, out).await,
            Leaf::Other(device) => device.extents(extent, out).await,
        }
    }

    #[inline]
    fn disk_place(&self, at: Lba) -> Option<DiskPlace> {
        match self {
            Leaf::Disk(device) => device.disk_place(at),
            Leaf::Other(_) => None,
        }
    }

    fn located(&self, end: &LocatedEnd) {
        if let Leaf::Disk(device) = self {
            device.located(end);
        }
    }

    fn read_elsewhere(&self, reads: &ReadTimes) {
        if let Leaf::Disk(device) = self {
            device.read_elsewhere(reads);
        }
    }
}
