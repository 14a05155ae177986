//! An NBD server of a file that records its operations.

use super::record::{WriteRecord, WrittenContent};
use block::{
    Address, Device, Extent, Fua, Gate, IoResult, Layer, Lba, Nanos, SECTOR_BYTES, SharedBuf,
};
use nbd::serve::{ExportOptions, NbdServer, ServerLimits};
use shard::{ShardDisk, run_alone};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use uring::{DiskOptions, Options, Uring, UringDriver};

/// The record, shared by the server and its readers.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<WriteRecord>>);

impl Shelf {
    pub(super) fn record(&self) -> MutexGuard<'_, WriteRecord> {
        self.0.lock().expect("nobody panics with the record")
    }
}

/// A server, until dropped.
pub(super) struct Recorder {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Serves `file` on the unix socket `socket`.
    pub(super) fn serve(file: &Path, socket: &Path, shelf: Shelf) -> IoResult<Recorder> {
        let mut host = Uring::new(Options {
            pool_bytes: 128 << 20,
            ..Options::default()
        })?;
        let options = DiskOptions {
            buffered: true,
            ..DiskOptions::default()
        };
        let (disk, _) = host.open_disk(file, &options)?;
        let address = Address::Unix(socket.display().to_string().into());
        let (listener, _) = host.listen(&address)?;
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        let serve = move || {
            let ran = run_alone(&mut host, move |local| async move {
                let log = Rc::new(|line: &str| eprintln!("{line}"));
                let server = NbdServer::new(local.env(), ServerLimits::default(), None, log)
                    .expect("a server without TLS");
                let device = RecordedWrites {
                    inner: local.disk(disk).expect("a disk"),
                    shelf,
                };
                let gate = Gate::new(device, local.env());
                let added = server.add("", gate, &ExportOptions::default());
                added.expect("the only export");
                let serving = server.clone();
                let listener = local.listener(listener);
                local.env().spawn.spawn(async move {
                    // The task ends with the host.
                    serving.serve(listener).await;
                });
                let timer = local.env().timer;
                while !until.load(Ordering::Relaxed) {
                    timer.sleep(Nanos::from_millis(20)).await;
                }
            });
            ran.expect("a thread and a ring for the server");
        };
        Ok(Recorder {
            ended,
            thread: Some(std::thread::spawn(serve)),
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed.
            let _ = thread.join();
        }
    }
}

struct RecordedWrites {
    inner: ShardDisk<UringDriver>,
    shelf: Shelf,
}

impl RecordedWrites {
    async fn change(
        &self,
        offset: u64,
        content: WrittenContent,
        forced: bool,
        work: impl Future<Output = IoResult>,
    ) -> IoResult {
        let number = self.shelf.record().begin(offset, content, forced);
        let result = work.await;
        if result.is_ok() {
            self.shelf.record().end(number);
        }
        result
    }
}

impl Layer for RecordedWrites {
    type Below = ShardDisk<UringDriver>;

    fn below(&self) -> &ShardDisk<UringDriver> {
        &self.inner
    }

    async fn write(&self, at: Lba, data: SharedBuf, fua: Fua) -> IoResult {
        let content = WrittenContent::Bytes(data.to_vec());
        let write = self.inner.write(at, data, fua);
        self.change(at.byte(), content, fua == Fua::Yes, write)
            .await
    }

    async fn zero(&self, extent: Extent) -> IoResult {
        let content = WrittenContent::Zeroes(extent.len.0 * SECTOR_BYTES);
        let zero = self.inner.zero(extent);
        self.change(extent.start.byte(), content, false, zero).await
    }

    async fn flush(&self) -> IoResult {
        let began = self.shelf.record().begin_flush();
        self.inner.flush().await?;
        self.shelf.record().end_flush(began);
        Ok(())
    }

    /// Discarded bytes stay unchanged.
    async fn discard(&self, _extent: Extent) -> IoResult {
        Ok(())
    }
}
