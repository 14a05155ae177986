//! A client: requests by tag over one stream, several at once.

use super::wire::{Ask, REPLY_BYTES, REQUEST_BYTES, Reply, Request, Status, recv_exact};
use block::Mutex;
use block::{Driver, Extent, IoError, IoResult, Kind, Shared, Stream};
use futures_channel::oneshot;
use shard::{Local, Socket};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type Answer = (Status, Option<Shared>);

pub(crate) struct Client<D: Driver> {
    stream: Socket<D>,
    sending: Mutex,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Answer>>>,
    next_tag: Cell<u64>,
    local: Local<D>,
}

impl<D: Driver> Client<D> {
    pub(crate) fn start(local: Local<D>, stream: Socket<D>) -> Rc<Client<D>> {
        let client = Rc::new(Client {
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
            let reply = Reply::decode(&head)?;
            let data = match reply.len {
                0 => None,
                len => recv_exact(&self.stream, &pool, len as usize).await?,
            };
            let waiter = self.waiting.borrow_mut().remove(&reply.tag);
            let unasked = || IoError::new(Kind::Stream, "an answer nobody asked for");
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
        ask: Ask,
        flags: u8,
        extent: Extent,
        data: Option<Shared>,
    ) -> IoResult<Answer> {
        let tag = self.next_tag.replace(self.next_tag.get() + 1);
        let (offset, len) = (extent.start.byte(), extent.len.bytes() as u32);
        let mut head = self.local.env().pool.get(REQUEST_BYTES).await;
        Request {
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
            .map_err(|_| IoError::new(Kind::Stream, "the server has gone"))
    }

    pub(crate) fn close(&self) {
        self.stream.close();
    }
}
