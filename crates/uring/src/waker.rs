//! Ends a shard's wait from another thread.
//!
//! Invariants:
//!     an `unpark` of a shard that is awake is one atomic swap
//!     an `unpark` is consumed by exactly one return from `park`

use block::Unpark;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering::*};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

pub(crate) struct Waker {
    state: AtomicU8,
    /// An eventfd polled in the ring: its signal ends a sleep in the kernel.
    event: OwnedFd,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        // SAFETY: no pointers are involved.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Waker {
            state: AtomicU8::new(AWAKE),
            // SAFETY: just created, without another owner.
            event: unsafe { OwnedFd::from_raw_fd(fd) },
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Announces a sleep; false if there is a notification, which stays.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state
            .compare_exchange(AWAKE, ASLEEP, SeqCst, SeqCst)
            .is_ok()
    }

    /// Takes the notification, if there is one. Afterwards the shard is awake.
    pub(crate) fn take(&self) -> bool {
        self.state.load(Relaxed) != AWAKE && self.state.swap(AWAKE, SeqCst) == NOTIFIED
    }
}

impl Unpark for Waker {
    fn unpark(&self) {
        if self.state.swap(NOTIFIED, SeqCst) == ASLEEP {
            let one = 1u64.to_ne_bytes();
            // SAFETY: eight bytes are readable at `one`. The counter is never read, and is full
            // only after centuries.
            unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
        }
    }
}
