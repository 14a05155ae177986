//! The host: the state shared by all shards, and their threads.

use crate::aside;
use crate::control;
use crate::driver::{self, UringDriver};
use crate::errno;
use crate::open::{self, DiskOptions, OpenDisk};
use crate::port::ServedPort;
use crate::processors;
use crate::ring::{CompletionMode, KernelRing};
use crate::shared::{Opening, Options, RingClock, RingShared};
use crate::socket::{self, RingSocket};
use crate::targets::{RingTarget, RingTargets};
use block::{
    Address, Geometry, Host, IoError, IoErrorKind, IoResult, Nanos, ShardId, ShardTurn, TargetId,
    TurnProgress,
};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Shards on threads with a ring each. A handle: clones are the same host, and may be used from any
/// thread, also during a run.
#[derive(Clone)]
pub struct Uring {
    pub(crate) shared: Arc<RingShared>,
}

impl Uring {
    /// A host, if this machine allows rings; the error has the cause and the remedy.
    pub fn new(options: Options) -> IoResult<Uring> {
        let _ring = KernelRing::new(1, &CompletionMode::ALL)?;
        let _waker = driver::waker()?;
        Ok(Uring {
            shared: Arc::new(RingShared {
                options,
                targets: RingTargets::default(),
                clock: RingClock::new(),
                wakers: Mutex::default(),
                opening: Mutex::default(),
                ends_by: AtomicU64::new(0),
                has_given_up: AtomicBool::new(false),
            }),
        })
    }

    /// Opens the file or block device at `path`, for every shard.
    ///
    /// Errors: `Gone` if the path is missing, `Invalid` if it is no file or device, too short or
    /// not whole blocks, `Denied`, `ReadOnly`, `Busy` if exclusive use is refused, `Unsupported`
    /// without direct I/O.
    pub fn open_disk(
        &self,
        path: impl AsRef<Path>,
        options: &DiskOptions,
    ) -> IoResult<(TargetId, Geometry)> {
        self.add_disk(open::open(path.as_ref(), options)?)
    }

    /// Opens a disk as [`Uring::open_disk`] does, for a task: its shard runs on meanwhile, however
    /// long the file system takes.
    ///
    /// Also `Timeout` if an earlier call for this path has not ended.
    pub async fn open_disk_aside(
        &self,
        path: impl AsRef<Path>,
        options: &DiskOptions,
    ) -> IoResult<(TargetId, Geometry)> {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        let name = options.name.clone();
        let name = name.unwrap_or_else(|| path.display().to_string());
        let opening = Opening::begin(self.shared.clone(), &path);
        let opening = opening.map_err(|error| error.on(name.clone()))?;
        let opened = aside::begin("open", move || {
            let disk = open::open(&path, &options);
            drop(opening);
            disk
        });
        let opened = opened.map_err(|cause| {
            let what = "no thread to open it; raise the limit of processes (ulimit -u)";
            errno::error(cause, what).on(name)
        })?;
        self.add_disk(opened.await?)
    }

    fn add_disk(&self, disk: OpenDisk) -> IoResult<(TargetId, Geometry)> {
        let geometry = disk.geometry.clone();
        let id = self.insert(RingTarget::Disk(Arc::new(disk)))?;
        Ok((id, geometry))
    }

    /// Listens on `address`, for every shard. Returns the address, with the chosen port in place of
    /// 0. Replaces a unix socket's file that no process listens on.
    pub fn listen(&self, address: &Address) -> IoResult<(TargetId, Address)> {
        let (socket, bound) = socket::listen(address)?;
        let id = self.insert(RingTarget::Listener(Arc::new(socket)))?;
        Ok((id, bound))
    }

    /// Opens an eventfd that others raise, as a stream for receiving only: each receive waits for a
    /// count above zero, and returns the count, of 8 bytes.
    pub fn open_event(&self, event: OwnedFd) -> IoResult<TargetId> {
        self.insert(RingTarget::Stream(Arc::new(RingSocket::event(event))))
    }

    /// Opens the ublk device that `info` describes, as a port for each of `shards` shards: queue `q`
    /// is of port `q` modulo `shards`. There are fewer ports if the device has fewer queues.
    pub fn open_ports(&self, info: &ublk::DeviceInfo, shards: u16) -> IoResult<Vec<TargetId>> {
        let ports = ServedPort::open(info, shards)?.into_iter();
        ports
            .map(|port| self.insert(RingTarget::Port(Arc::new(port))))
            .collect()
    }

    /// Carries out a command as [`control::ublk_control`] does, for a task: its shard runs on
    /// meanwhile, and may have to serve the device for the command to end.
    pub async fn ublk_control_aside(
        &self,
        command: ublk::UblkControl,
    ) -> IoResult<Result<Vec<u8>, i32>> {
        let asking = aside::begin("ublk", move || control::ublk_control(command));
        let what = "no thread to speak to ublk; raise the limit of processes (ulimit -u)";
        asking.map_err(|cause| errno::error(cause, what))?.await
    }

    /// Does `work`, which may wait for a file system, for a task: its shard runs on meanwhile.
    pub async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> IoResult<T> {
        let working = aside::begin("aside", work);
        let what = "no thread to read files; raise the limit of processes (ulimit -u)";
        Ok(working.map_err(|cause| errno::error(cause, what))?.await)
    }

    /// Closes a disk, stream, listener or port on every shard. A disk's operations in
    /// flight end first, and with them its lock; later ones fail with `Gone`.
    pub fn close(&self, target: TargetId) {
        self.shared.close(target);
    }

    /// A driver for the calling thread, for a caller with a loop of its own: that of a first shard.
    pub fn driver(&self) -> IoResult<UringDriver> {
        self.driver_of(ShardId(0))
    }

    fn driver_of(&self, shard: ShardId) -> IoResult<UringDriver> {
        let pool_bytes = self.pool_bytes(shard);
        UringDriver::new(self.shared.clone(), pool_bytes, &CompletionMode::ALL)
    }

    fn pool_bytes(&self, shard: ShardId) -> usize {
        let options = &self.shared.options;
        match shard {
            ShardId(0) => options.pool_bytes,
            _ => options.further_pool_bytes.unwrap_or(options.pool_bytes),
        }
    }

    /// Has shards that end wait for their devices until `limit` from now, and a second at least.
    pub fn end_within(&self, limit: Nanos) {
        let now = self.shared.clock.now();
        self.shared
            .ends_by
            .store(now.0.saturating_add(limit.0), SeqCst);
    }

    fn insert(&self, target: RingTarget) -> IoResult<TargetId> {
        let what = "a million disks and streams are open; close some";
        let id = self.shared.targets.insert(target);
        id.ok_or_else(|| IoError::new(IoErrorKind::Other, what))
    }
}

/// Stops every shard if its thread panics: one that waits for an answer from a
/// dead shard would wait for ever.
struct StopOnPanic<'a> {
    stop: &'a AtomicBool,
    shared: &'a RingShared,
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.stop.store(true, SeqCst);
            self.shared.unpark_all();
        }
    }
}

impl Host for Uring {
    type Driver = UringDriver;

    /// None boots before all have a driver: no boot takes the descriptor that a driver needs.
    ///
    /// Errors: no thread, ring, descriptor or memory is left for a shard; with the remedy.
    /// Panics, once every shard has stopped, if one of them did.
    fn run<B>(&mut self, shards: u32, boot: B) -> IoResult
    where
        B: Fn(ShardId, UringDriver) -> Box<dyn ShardTurn> + Send + Sync + 'static,
    {
        let stop = &AtomicBool::new(false);
        let (host, boot) = (&*self, &boot);
        let guard = move || StopOnPanic {
            stop,
            shared: &host.shared,
        };
        let live = move |id: u32, ready: mpsc::Sender<IoResult>, begin: mpsc::Receiver<()>| {
            let _guard = guard();
            // Before its memory is touched, which then is near the processor.
            if let Some(processor) = host.shared.options.processors.get(id as usize) {
                processors::stay_on(*processor, id, host.shared.options.waits);
            }
            let (driver, made) = match host.driver_of(ShardId(id)) {
                Ok(driver) => (Some(driver), Ok(())),
                Err(error) => (None, Err(error.on(format!("shard {id}")))),
            };
            // After the first error the host waits for no other.
            let _ = ready.send(made);
            drop(ready);
            if let (Some(driver), Ok(())) = (driver, begin.recv()) {
                drive(boot(ShardId(id), driver), stop);
            }
        };
        thread::scope(|scope| {
            let _guard = guard();
            let (over, ends) = mpsc::channel();
            let (ready, readied) = mpsc::channel();
            let (mut threads, mut begins) = (Vec::new(), Vec::new());
            for id in 0..shards {
                let (begin, begun) = mpsc::channel();
                let (over, is_ready) = (over.clone(), ready.clone());
                let run = move || {
                    let end = catch_unwind(AssertUnwindSafe(|| live(id, is_ready, begun)));
                    over.send(end).expect("the host waits for it");
                };
                let thread = thread::Builder::new().name(format!("shard-{id}"));
                match thread.spawn_scoped(scope, run) {
                    Ok(thread) => threads.push(thread),
                    Err(cause) => drop(ready.send(Err(without_thread(id, cause)))),
                }
                begins.push(begin);
            }
            drop(ready);
            let started: IoResult<Vec<()>> = readied.iter().collect();
            // Fewer are ready if one panicked.
            if started.as_ref().is_ok_and(|all| all.len() == begins.len()) {
                for begin in &begins {
                    // A thread that has ended begins nothing.
                    let _ = begin.send(());
                }
            }
            drop(begins);
            let ends: Vec<_> = ends.iter().take(threads.len()).collect();
            // The kernel keeps a thread until its devices have answered.
            if !host.shared.has_given_up.load(SeqCst) {
                let joined = threads.into_iter().map(|thread| thread.join());
                joined.for_each(|end| end.expect("its panic was caught"));
            }
            if let Some(panic) = ends.into_iter().find_map(Result::err) {
                resume_unwind(panic);
            }
            started.map(drop)
        })
    }
}

fn without_thread(shard: u32, cause: std::io::Error) -> IoError {
    let what = "no thread for it; raise the limit of threads (ulimit -u)";
    errno::error(cause, what).on(format!("shard {shard}"))
}

fn drive(mut shard: Box<dyn ShardTurn>, stop: &AtomicBool) {
    loop {
        let deadline = match shard.run_once() {
            TurnProgress::Ready => Nanos::ZERO,
            TurnProgress::Idle(until) => until,
            TurnProgress::Done => return,
        };
        if stop.load(SeqCst) {
            return;
        }
        shard.park(deadline);
    }
}
