//! A client: requests by tag over one stream, several at once.

use super::wire::{
    REPLY_BYTES, REQUEST_BYTES, SeamAsk, SeamReply, SeamRequest, SeamStatus, recv_exact,
};
use block::Mutex;
use block::{Driver, Extent, IoError, IoErrorKind, IoResult, SharedBuf, Stream};
use futures_channel::oneshot;
use shard::{Local, ShardSocket};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type Answer = (SeamStatus, Option<SharedBuf>);

pub(crate) struct SeamClient<D: Driver> {
    stream: ShardSocket<D>,
    sending: Mutex,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
    next_tag: Cell<u64>,
    local: Local<D>,
}

impl<D: Driver> SeamClient<D> {
    pub(crate) fn start(local: Local<D>, stream: ShardSocket<D>) -> Rc<SeamClient<D>> {
        let client = Rc::new(SeamClient {
            stream,
            sending: Mutex::default(),
            waiting: RefCell::default(),
            next_tag: Cell::new(1),
            local: local.clone(),
        });
        let reader = client.clone();
        local.env().spawn.spawn(async move {
            // In either case no more answers come: each waiting request gets an error.
            let _ = reader.receive().await;
            reader.waiting.borrow_mut().clear();
        });
        client
    }

    async fn receive(&self) -> IoResult {
        let pool = self.local.env().pool;
        while let Some(head) = recv_exact(&self.stream, &pool, REPLY_BYTES).await? {
            let reply = SeamReply::decode(&head)?;
            let data = match reply.len {
                0 => None,
                len => recv_exact(&self.stream, &pool, len as usize).await?,
            };
            let waiter = self.waiting.borrow_mut().remove(&reply.tag);
            let unasked = || IoError::new(IoErrorKind::Stream, "an answer nobody asked for");
            // The requester may have gone.
            let _ = waiter
                .ok_or_else(unasked)?
                .send((reply.status, data.map(|b| b.share())));
        }
        Ok(())
    }

    /// Sends a request and waits for its answer; an error means that none came.
    pub(crate) async fn ask(
        &self,
        ask: SeamAsk,
        flags: u8,
        extent: Extent,
        data: Option<SharedBuf>,
    ) -> IoResult<Answer> {
        let tag = self.next_tag.replace(self.next_tag.get() + 1);
        let (offset, len) = (extent.start.byte(), extent.len.bytes() as u32);
        let mut head = self.local.env().pool.get(REQUEST_BYTES).await;
        SeamRequest {
            ask,
            flags,
            tag,
            offset,
            len,
        }
        .encode(&mut head);
        let (tx, answer) = oneshot::channel();
        self.waiting.borrow_mut().insert(tag, tx);
        let parts = [Some(head.share()), data].into_iter().flatten().collect();
        {
            let _one_at_a_time = self.sending.lock().await;
            self.stream.send(parts).await.1?;
        }
        answer
            .await
            .map_err(|_| IoError::new(IoErrorKind::Stream, "the server has gone"))
    }

    pub(crate) fn close(&self) {
        self.stream.close();
    }
}
