//! The requests of a guest, as a `Port` for each shard.

use crate::device::DiskLock;
use block::{Answer, Buf, IoResult, Port, Request, Tag};
use std::future::poll_fn;
use std::sync::Arc;

/// The port of a part of one disk, for whatever guest has the disk at the time.
pub struct VirtioPort {
    disk: Arc<DiskLock>,
    tags: u16,
}

impl VirtioPort {
    pub(crate) fn new(disk: Arc<DiskLock>) -> VirtioPort {
        let tags = disk.lock().shape.depth;
        VirtioPort { disk, tags }
    }
}

impl Port for VirtioPort {
    fn tags(&self) -> u16 {
        self.tags
    }

    async fn next(&self, tag: Tag, answer: Option<Answer>) -> IoResult<Request> {
        if let Some(answer) = answer {
            self.disk.answer(tag, answer)?;
        }
        poll_fn(|cx| self.disk.poll_next(tag, cx)).await
    }

    async fn take(&self, tag: Tag, mut buf: Buf) -> (Buf, IoResult) {
        let taken = self.disk.take(tag, &mut buf);
        (buf, taken)
    }

    fn close(&self) {
        self.disk.close();
    }
}
