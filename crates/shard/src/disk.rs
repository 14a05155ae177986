//! The leaf device: one disk of the driver.

use crate::executor::ShardCore;
use crate::perform::Perform;
use block::{
    Buf, Content, Device, DiskPlace, Driver, DriverOp, Extent, Fua, Geometry, IoError, IoResult,
    Lba, Payload, SharedBuf, TargetId,
};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A disk that the host has opened. Its driver is a type parameter, so that a read is a function
/// call away from the queue.
pub struct ShardDisk<D: Driver> {
    core: Rc<ShardCore<D>>,
    target: TargetId,
    geometry: Geometry,
}

impl<D: Driver> ShardDisk<D> {
    pub(crate) fn new(
        core: Rc<ShardCore<D>>,
        target: TargetId,
        geometry: Geometry,
    ) -> ShardDisk<D> {
        ShardDisk {
            core,
            target,
            geometry,
        }
    }

    async fn command(&self, op: DriverOp) -> IoResult {
        self.core.perform(self.target, op).await.0.map(drop)
    }
}

impl<D: Driver> Device for ShardDisk<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    fn read(&self, at: Lba, buf: Buf) -> impl Future<Output = (Buf, IoResult)> {
        match self.geometry.transfer(at, buf.len()) {
            Ok(_) => Reading::Begun(self.core.perform(self.target, DriverOp::Read(at, buf))),
            Err(error) => Reading::Refused(Some((buf, error))),
        }
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.geometry.transfer(at, data.len())?;
        self.command(DriverOp::Write(at, data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.command(DriverOp::Zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        self.core.ops.given_up_ended(self.target).await;
        self.command(DriverOp::Flush).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.geometry.check(extent)?;
        self.command(DriverOp::Discard(extent)).await
    }

    /// Reports one run of data: the driver does not report holes.
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.geometry.check(extent)?;
        out.push((extent, Content::Data));
        Ok(())
    }

    #[inline]
    fn disk_place(&self, at: Lba) -> Option<DiskPlace> {
        Some(DiskPlace {
            target: self.target,
            at,
        })
    }
}

/// A read: one future from here to the driver's queue, for it is on the path of every hit.
enum Reading<'a, D: Driver> {
    Begun(Perform<'a, D>),
    /// Taken when the error has been reported.
    Refused(Option<(Buf, IoError)>),
}

impl<D: Driver> Future for Reading<'_, D> {
    type Output = (Buf, IoResult);

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Buf, IoResult)> {
        match &mut *self {
            Reading::Begun(perform) => match ready!(Pin::new(perform).poll(cx)) {
                (result, Payload::Buf(buf)) => Poll::Ready((buf, result.map(drop))),
                (_, other) => panic!("a read gave back {other:?}"),
            },
            Reading::Refused(refusal) => {
                let (buf, error) = refusal.take().expect("polled after its end");
                Poll::Ready((buf, Err(error)))
            }
        }
    }
}
