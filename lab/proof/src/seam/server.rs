//! The block server: connections on one shard, the device on another.

use super::Sabotage;
use super::mirror::Mirror;
use super::wire::{
    FLAG_ABANDON, FLAG_FUA, REPLY_BYTES, REQUEST_BYTES, SeamAsk, SeamReply, SeamRequest,
    SeamStatus, recv_exact,
};
use block::Mutex;
use block::{
    Device, Driver, Extent, Fua, Gate, IoResult, Lba, Listener, SECTOR_BYTES, Sectors, ShardId,
    SharedBuf, Stream,
};
use shard::{Local, ShardSocket};
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

/// The state of the device's shard, for requests to the device.
pub(crate) struct SeamExport<D: Driver> {
    pub(crate) gate: Gate<Mirror<Losable<shard::ShardDisk<D>>>>,
    pub(crate) second_lost: Rc<Cell<bool>>,
    pub(crate) sabotage: Sabotage,
}

impl<D: Driver> SeamExport<D> {
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
        let extent = Extent::new(
            Lba(offset / SECTOR_BYTES),
            Sectors(u64::from(len) / SECTOR_BYTES),
        );
        match (request.ask, data) {
            (SeamAsk::Read, _) => return self.gate.read(offset, len as usize).await.map(Some),
            (SeamAsk::Write, Some(data)) if self.sabotage == Sabotage::SkipLock => {
                self.gate.device().write(extent.start, data, fua).await?
            }
            (SeamAsk::Write, Some(data)) => self.gate.write(offset, data, fua).await?,
            (SeamAsk::Write, None) => unreachable!("a write is received with its data"),
            (SeamAsk::Zero, _) => self.gate.zero(offset, u64::from(len)).await?,
            (SeamAsk::Flush, _) => self.gate.flush().await?,
            (SeamAsk::Lose, _) => self.second_lost.set(true),
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
}

/// Accepts connections until the shard ends.
pub(crate) async fn serve<D: Driver>(
    local: Local<D>,
    listener: impl Listener<Stream = ShardSocket<D>>,
    device: ShardId,
) {
    while let Ok(stream) = listener.accept().await {
        let connection = Rc::new(SeamConnection {
            stream,
            sending: Mutex::default(),
            local: local.clone(),
            device,
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
    device: ShardId,
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

    async fn answer(&self, request: SeamRequest, data: Option<SharedBuf>) -> IoResult {
        let done = self
            .local
            .call(self.device, move |local| async move {
                let export = local.get::<SeamExport<D>>().expect("put before it serves");
                if request.flags & FLAG_ABANDON != 0 {
                    export.abandon(request, data).await;
                    return None;
                }
                Some(export.perform(request, data).await)
            })
            .await?;
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
