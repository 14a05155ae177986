//! The leaf device: one disk of the driver.

use crate::executor::Core;
use block::{
    Buf, Content, Device, Driver, Extent, Fua, Geometry, IoResult, Lba, Op, Payload, Shared,
    TargetId,
};
use std::rc::Rc;

/// A disk that the host has opened. Its driver is a type parameter, so that a
/// read is a function call away from the queue.
pub struct Disk<D: Driver> {
    core: Rc<Core<D>>,
    target: TargetId,
    geometry: Geometry,
}

impl<D: Driver> Disk<D> {
    pub(crate) fn new(core: Rc<Core<D>>, target: TargetId, geometry: Geometry) -> Disk<D> {
        Disk {
            core,
            target,
            geometry,
        }
    }

    async fn command(&self, op: Op) -> IoResult {
        self.core.perform(self.target, op).await.0.map(drop)
    }
}

impl<D: Driver> Device for Disk<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        if let Err(error) = self.geometry.transfer(at, buf.len()) {
            return (buf, Err(error));
        }
        match self.core.perform(self.target, Op::Read(at, buf)).await {
            (result, Payload::Buf(buf)) => (buf, result.map(drop)),
            (_, other) => panic!("a read gave back {other:?}"),
        }
    }

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        self.geometry.transfer(at, data.len())?;
        self.command(Op::Write(at, data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.command(Op::Zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        self.command(Op::Flush).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.command(Op::Discard(extent)).await
    }

    /// One run of data: the driver does not tell holes.
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }
}
