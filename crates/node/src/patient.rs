//! A device that counts as lost when it does not answer: who writes to two of them does not
//! wait for a silent one for ever.
//!
//! What it was asked for may still be carried out: its user does not trust it any more.

use block::{Buf, Content, Device, Env, Extent, Fua, Geometry, IoResult, Kind, Lba, Nanos, Shared};

/// Asks for everything with a time limit.
#[derive(Clone)]
pub struct Patient<D> {
    device: D,
    env: Env,
    limit: Nanos,
}

impl<D: Device> Patient<D> {
    /// `device`, which may take as long as `limit`.
    pub fn new(device: D, env: Env, limit: Nanos) -> Patient<D> {
        Patient { device, env, limit }
    }

    async fn within(&self, work: impl Future<Output = IoResult>) -> IoResult {
        let ended = self.env.timer.timeout(self.limit, work).await;
        ended.unwrap_or_else(|| self.silent())
    }

    fn silent(&self) -> IoResult {
        let what = "has not answered in time; see to it or its controller";
        Err(self.device.geometry().error(Kind::Timeout, what))
    }
}

impl<D: Device> Device for Patient<D> {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let bytes = buf.len();
        let read = self.device.read(at, buf);
        match self.env.timer.timeout(self.limit, read).await {
            Some(read) => read,
            // The device has the other.
            None => (self.env.pool.take(bytes), self.silent()),
        }
    }

    async fn write(&self, at: Lba, data: Shared, fua: Fua) -> IoResult {
        self.within(self.device.write(at, data, fua)).await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        self.within(self.device.zero(extent)).await
    }

    async fn flush(&self) -> IoResult {
        self.within(self.device.flush()).await
    }

    async fn discard(&self, extent: Extent) -> IoResult {
        self.within(self.device.discard(extent)).await
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        self.within(self.device.extents(extent, out)).await
    }
}
