//! State shared by the shards of a host.

use crate::targets::RingTargets;
use crate::waker::Waker;
use block::{IoError, IoErrorKind, IoResult, Nanos, TargetId, Unpark};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

/// Options of every shard of a host.
#[derive(Clone, Debug)]
pub struct Options {
    /// Operations that a shard submits at once; more wait in order. Fewer if
    /// locked memory is capped so low that no such ring fits.
    pub entries: u32,
    /// Buffer memory of a shard; rounded up to 4 MiB.
    pub pool_bytes: usize,
    /// Buffer memory of each shard but the first, if that differs.
    pub further_pool_bytes: Option<usize>,
    /// The processor of each shard, in their order; further shards use any.
    pub processors: Vec<u32>,
    /// Registers memory and disks with the rings, for speed. Where the kernel refuses, a shard does
    /// without (see [`crate::UringDriver::memory_is_registered`]).
    pub registered: bool,
    /// Called with a line about the operations that an ending shard waits for.
    pub waits: fn(&str),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            entries: 1024,
            pool_bytes: 64 << 20,
            further_pool_bytes: None,
            processors: Vec::new(),
            registered: true,
            waits: |_| (),
        }
    }
}

/// The monotonic clock, from the clock's making on.
pub(crate) struct RingClock {
    epoch: u64,
}

impl RingClock {
    pub(crate) fn new() -> RingClock {
        RingClock {
            epoch: RingClock::monotonic(),
        }
    }

    /// Half the instructions of `Instant::elapsed`, which each turn of a shard would pay.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        Nanos(RingClock::monotonic().saturating_sub(self.epoch))
    }

    #[inline]
    fn monotonic() -> u64 {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `time` is writable. The call cannot fail: the clock is always there.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

pub(crate) struct RingShared {
    pub(crate) options: Options,
    pub(crate) targets: RingTargets,
    pub(crate) clock: RingClock,
    pub(crate) wakers: Mutex<Vec<Weak<Waker>>>,
    /// Paths that a thread is opening.
    pub(crate) opening: Mutex<Vec<PathBuf>>,
    /// Time limit of the shards' end, in nanoseconds of `clock`; 0 if not set.
    pub(crate) ends_by: AtomicU64,
    /// True if a shard has ended before its devices had answered.
    pub(crate) has_given_up: AtomicBool,
}

impl RingShared {
    pub(crate) fn add_waker(&self, waker: &Arc<Waker>) {
        let mut wakers = self.wakers.lock().expect("no panic under this lock");
        wakers.retain(|waker| waker.strong_count() > 0);
        wakers.push(Arc::downgrade(waker));
    }

    pub(crate) fn unpark_all(&self) {
        let wakers = self.wakers.lock().expect("no panic under this lock");
        for waker in wakers.iter().filter_map(Weak::upgrade) {
            waker.unpark();
        }
    }

    pub(crate) fn close(&self, target: TargetId) {
        if self.targets.close(target) {
            // Shards asleep would keep a closed disk's lock.
            self.unpark_all();
        }
    }
}

/// A path that is being opened, until dropped: a path that does not answer holds one thread,
/// however often the open is tried.
pub(crate) struct Opening {
    shared: Arc<RingShared>,
    path: PathBuf,
}

impl Opening {
    pub(crate) fn begin(shared: Arc<RingShared>, path: &Path) -> IoResult<Opening> {
        let mut opening = shared.opening.lock().expect("no panic under this lock");
        if opening.iter().any(|other| other == path) {
            let what = "an earlier attempt to open it has not ended; its file system hangs";
            return Err(IoError::new(IoErrorKind::Timeout, what));
        }
        opening.push(path.to_owned());
        drop(opening);
        let path = path.to_owned();
        Ok(Opening { shared, path })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut opening = self
            .shared
            .opening
            .lock()
            .expect("no panic under this lock");
        opening.retain(|other| *other != self.path);
    }
}
