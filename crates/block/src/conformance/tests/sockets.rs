//! Streams over a [`Wire`], which look again every few microseconds.

use super::wire::{Flaw, Try, Wire};
use crate::{
    Address, Buf, Connector, Env, IoError, IoErrorKind, IoResult, Listener, Nanos, SharedBuf,
    Stream,
};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Clone)]
pub(super) struct Network {
    env: Env,
    wire: Rc<RefCell<Wire>>,
    address: Address,
}

impl Network {
    pub(super) fn new(env: &Env, address: Address, flaw: Flaw) -> Network {
        Network {
            env: env.clone(),
            wire: Rc::new(RefCell::new(Wire::new(flaw))),
            address,
        }
    }

    async fn until<T>(&self, mut attempt: impl FnMut(&mut Wire) -> Try<T>) -> IoResult<T> {
        loop {
            match attempt(&mut self.wire.borrow_mut()) {
                Try::Done(value) => return Ok(value),
                Try::Closed => return Err(IoError::new(IoErrorKind::Stream, "closed")),
                Try::Wait => {}
            }
            self.env.timer.sleep(Nanos::from_micros(20)).await;
        }
    }

    fn socket(&self, end: usize) -> Socket {
        Socket {
            network: self.clone(),
            end,
        }
    }
}

impl Connector for Network {
    type Stream = Socket;

    async fn connect(&self, address: Address) -> IoResult<Socket> {
        let known = address == self.address;
        Ok(self.socket(self.until(|wire| wire.connect(known)).await?))
    }
}

impl Listener for Network {
    type Stream = Socket;

    async fn accept(&self) -> IoResult<Socket> {
        Ok(self.socket(self.until(Wire::accept).await?))
    }

    fn close(&self) {
        self.wire.borrow_mut().listening = false;
    }
}

pub(super) struct Socket {
    network: Network,
    end: usize,
}

impl Stream for Socket {
    async fn recv(&self, mut buf: Buf) -> (Buf, IoResult<usize>) {
        let attempt = |wire: &mut Wire| wire.recv(self.end, &mut buf);
        let result = self.network.until(attempt).await;
        (buf, result)
    }

    async fn send(&self, mut parts: Vec<SharedBuf>) -> (Vec<SharedBuf>, IoResult) {
        let flaw = self.network.wire.borrow().flaw;
        if flaw == Flaw::SwapsParts && parts.len() > 2 {
            parts.swap(0, 1);
        }
        if flaw == Flaw::KeepsABuffer && parts.len() == 1 && parts[0].len() == 100 {
            std::mem::forget(parts[0].clone());
        }
        for part in parts.drain(..) {
            let mut sent = 0;
            while sent < part.len() {
                let attempt = |wire: &mut Wire| wire.send(self.end, &part[sent..]);
                match self.network.until(attempt).await {
                    Ok(len) => sent += len,
                    Err(error) => return (Vec::new(), Err(error)),
                }
            }
        }
        (parts, Ok(()))
    }

    fn peer_closed(&self) -> bool {
        self.network.wire.borrow().peer_closed(self.end)
    }

    fn close(&self) {
        self.network.wire.borrow_mut().close(self.end);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}
