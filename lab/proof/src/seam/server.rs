//! The block server: connections on one shard, the device on another, with a lane between them.

use super::Sabotage;
use super::mirror::Mirror;
use super::wire::{
    FLAG_ABANDON, FLAG_FUA, REPLY_BYTES, REQUEST_BYTES, SeamAsk, SeamReply, SeamRequest,
    SeamStatus, recv_exact,
};
use block::Mutex;
use block::{
    Boundary, Device, Driver, Extent, Fua, Gate, IoResult, Lba, Listener, SECTOR_BYTES, ShardId,
    SharedBuf, Stream,
};
use shard::{Local, RemoteGate, ShardSocket};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A disk that the program can take away, the same way on every driver.
pub(crate) struct Losable<D> {
    disk: D,
    lost: Rc<Cell<bool>>,
}

impl<D: Device> Losable<D> {
    pub(crate) fn new(disk: D, lost: Rc<Cell<bool>>) -> Losable<D> {
        Losable { disk, lost }
    }

    fn check(&self) -> IoResult {
        match self.lost.get() {
            true => Err(self
                .geometry()
                .error(block::IoErrorKind::Gone, "the disk was taken away")),
            false => Ok(()),
        }
    }
}

impl<D: Device> Device for Losable<D> {
    fn geometry(&self) -> &block::Geometry {
        self.disk.geometry()
    }
    async fn read(&self, at: Lba, buf: block::Buf) -> (block::Buf, IoResult) {
        let (buf, result) = self.disk.read(at, buf).await;
        (buf, self.check().and(result))
    }
    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        self.check()?;
        self.disk.write(at, data, fua).await
    }
    async fn zero(&self, extent: Extent) -> IoResult {
        self.check()?;
        self.disk.zero(extent).await
    }
    async fn flush(&self) -> IoResult {
        self.check()?;
        self.disk.flush().await
    }
    async fn discard(&self, extent: Extent) -> IoResult {
        self.check()?;
        self.disk.discard(extent).await
    }
    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, block::Content)>) -> IoResult {
        self.disk.extents(extent, out).await
    }
}

/// The gate of the device.
pub(crate) type SeamGate<D> = Gate<Mirror<Losable<shard::ShardDisk<D>>>>;

/// The state of the device's shard, for requests past the lane.
pub(crate) struct SeamExport<D: Driver> {
    pub(crate) gate: SeamGate<D>,
    pub(crate) second_lost: Rc<Cell<bool>>,
}

/// The device, as the shard of the connections reaches it.
pub(crate) struct SeamDevice<D: Driver> {
    pub(crate) gate: RemoteGate<D>,
    pub(crate) shard: ShardId,
    pub(crate) sabotage: Sabotage,
}

/// Accepts connections until the shard ends.
pub(crate) async fn serve<D: Driver>(
    local: Local<D>,
    listener: impl Listener<Stream = ShardSocket<D>>,
    device: SeamDevice<D>,
) {
    let device = Rc::new(device);
    while let Ok(stream) = listener.accept().await {
        let connection = Rc::new(SeamConnection {
            stream,
            sending: Mutex::default(),
            local: local.clone(),
            device: device.clone(),
        });
        // A broken connection concerns its client alone.
        local
            .env()
            .spawn
            .spawn(async move { drop(connection.run().await) });
    }
}

struct SeamConnection<D: Driver> {
    stream: ShardSocket<D>,
    sending: Mutex,
    local: Local<D>,
    device: Rc<SeamDevice<D>>,
}

impl<D: Driver> SeamConnection<D> {
    async fn run(self: Rc<Self>) -> IoResult {
        let pool = self.local.env().pool;
        while let Some(head) = recv_exact(&self.stream, &pool, REQUEST_BYTES).await? {
            let request = SeamRequest::decode(&head)?;
            let data = match request.ask {
                SeamAsk::Write => recv_exact(&self.stream, &pool, request.len as usize).await?,
                _ => None,
            };
            let (this, data) = (self.clone(), data.map(|buf| buf.share()));
            self.local
                .env()
                .spawn
                .spawn(async move { drop(this.answer(request, data).await) });
        }
        Ok(())
    }

    async fn perform(
        &self,
        request: SeamRequest,
        data: Option<SharedBuf>,
    ) -> IoResult<Option<SharedBuf>> {
        let SeamRequest {
            offset, len, flags, ..
        } = request;
        let fua = if flags & FLAG_FUA != 0 {
            Fua::Yes
        } else {
            Fua::No
        };
        let (gate, shard) = (&self.device.gate, self.device.shard);
        match (request.ask, data) {
            (SeamAsk::Read, _) => return gate.read(offset, len as usize).await.map(Some),
            (SeamAsk::Write, Some(data)) if self.device.sabotage == Sabotage::SkipLock => {
                let start = Lba(offset / SECTOR_BYTES);
                let unlocked = async move |local: Local<D>| {
                    let export = local.get::<SeamExport<D>>().expect("put before it serves");
                    export.gate.device().write(start, data, fua).await
                };
                self.local.call(shard, unlocked).await??
            }
            (SeamAsk::Write, Some(data)) => gate.write(offset, data, fua).await?,
            (SeamAsk::Write, None) => unreachable!("a write is received with its data"),
            (SeamAsk::Zero, _) => gate.zero(offset, u64::from(len)).await?,
            (SeamAsk::Flush, _) => gate.flush().await?,
            (SeamAsk::Lose, _) => {
                let lose = async move |local: Local<D>| {
                    let export = local.get::<SeamExport<D>>().expect("put before it serves");
                    export.second_lost.set(true);
                };
                self.local.call(shard, lose).await?
            }
        }
        Ok(None)
    }

    /// Begins the operation, then drops its future.
    async fn abandon(&self, request: SeamRequest, data: Option<SharedBuf>) {
        let mut work = pin!(self.perform(request, data));
        poll_fn(|cx| {
            let _begun = work.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }

    async fn answer(&self, request: SeamRequest, data: Option<SharedBuf>) -> IoResult {
        let done = match request.flags & FLAG_ABANDON != 0 {
            true => {
                self.abandon(request, data).await;
                None
            }
            false => Some(self.perform(request, data).await),
        };
        let (status, data) = match done {
            None => (SeamStatus::Abandoned, None),
            Some(Ok(data)) => (SeamStatus::Done, data),
            Some(Err(_)) => (SeamStatus::Failed, None),
        };
        let len = data.as_ref().map_or(0, |d| d.len() as u32);
        let mut head = self.local.env().pool.get(REPLY_BYTES).await;
        SeamReply {
            tag: request.tag,
            status,
            len,
        }
        .encode(&mut head);
        let parts = [Some(head.share()), data].into_iter().flatten().collect();
        let _one_at_a_time = self.sending.lock().await;
        self.stream.send(parts).await.1
    }
}
