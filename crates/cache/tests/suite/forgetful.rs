//! An origin that forgets unflushed writes when it is restarted, and reports that to one flush
//! only: as an NBD server is seen through its client.

use block::{
    BoxDevice, Buf, Content, Device, Extent, Fua, IoError, IoErrorKind, IoResult, Layer, Lba, Pool,
    SharedBuf,
};
use futures_channel::oneshot::{Receiver, Sender, channel};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const BLOCK_BYTES: usize = 4096;
const BLOCK_SECTORS: u64 = 8;

/// Clones are the same origin.
#[derive(Clone)]
pub struct Forgetful(Rc<Inner>);

struct Inner {
    below: BoxDevice,
    pool: Pool,
    /// Unflushed writes, by block of 4 KiB.
    volatile: RefCell<BTreeMap<u64, Vec<u8>>>,
    to_report: Cell<bool>,
    flushes: Cell<u64>,
    held: RefCell<Option<Receiver<()>>>,
}

impl Forgetful {
    pub fn new(below: BoxDevice, pool: Pool) -> Forgetful {
        Forgetful(Rc::new(Inner {
            below,
            pool,
            volatile: RefCell::default(),
            to_report: Cell::new(false),
            flushes: Cell::new(0),
            held: RefCell::default(),
        }))
    }

    /// The next write is there at once, but answered only when this is dropped.
    pub fn hold(&self) -> Sender<()> {
        let (hold, held) = channel();
        *self.0.held.borrow_mut() = Some(held);
        hold
    }

    /// Restarts the origin.
    pub fn restart(&self) {
        let lost = std::mem::take(&mut *self.0.volatile.borrow_mut());
        self.0
            .to_report
            .set(self.0.to_report.get() || !lost.is_empty());
    }

    /// Flushes that have ended.
    pub fn flushes(&self) -> u64 {
        self.0.flushes.get()
    }

    async fn settle(&self) -> IoResult {
        let volatile = std::mem::take(&mut *self.0.volatile.borrow_mut());
        for (block, bytes) in volatile {
            let mut data = self.0.pool.get(BLOCK_BYTES).await;
            data.copy_from_slice(&bytes);
            let at = Lba(block * BLOCK_SECTORS);
            self.0.below.write(at, data.share(), Fua::No).await?;
        }
        self.0.below.flush().await
    }
}

impl Layer for Forgetful {
    type Below = BoxDevice;

    fn below(&self) -> &BoxDevice {
        &self.0.below
    }

    async fn read(&self, at: Lba, buf: Buf) -> (Buf, IoResult) {
        let (mut buf, result) = self.0.below.read(at, buf).await;
        let volatile = self.0.volatile.borrow();
        for (block, bytes) in (at.0 / BLOCK_SECTORS..).zip(buf.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some(newer) = volatile.get(&block) {
                bytes.copy_from_slice(newer);
            }
        }
        drop(volatile);
        (buf, result)
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        for (block, bytes) in (at.0 / BLOCK_SECTORS..).zip(data.chunks_exact(BLOCK_BYTES)) {
            self.0.volatile.borrow_mut().insert(block, bytes.to_vec());
        }
        let held = self.0.held.take();
        if let Some(held) = held {
            held.await.unwrap_err();
        }
        // Without force unit access, a flush does the same.
        match fua {
            Fua::Yes => Layer::flush(self).await,
            Fua::No => Ok(()),
        }
    }

    async fn flush(&self) -> IoResult {
        let result = match self.0.to_report.take() {
            false => self.settle().await,
            true => {
                // The origin takes its time to report that.
                self.0.below.flush().await.unwrap();
                Err(IoError::new(IoErrorKind::Gone, "writes may not be durable"))
            }
        };
        self.0.flushes.set(self.0.flushes.get() + 1);
        result
    }

    async fn extents(&self, extent: Extent, out: &mut Vec<(Extent, Content)>) -> IoResult {
        out.push((extent, Content::Data));
        Ok(())
    }
}
