//! An event of a peer, raised without ever waiting for the peer.
//!
//! A write to an eventfd with a full counter waits unless the file is non-blocking. That flag
//! belongs to the open file, which the peer has too: the peer may clear the flag at any moment. The
//! kernel itself never waits to raise an eventfd. So the eventfd is registered with a ring, and a
//! completion of the ring raises it.

use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Raises an eventfd.
pub struct Bell(IoUring);

impl Bell {
    /// The bell of an eventfd; `Err` if `event` is none.
    pub fn new(event: impl AsFd) -> io::Result<Bell> {
        let ring = IoUring::new(1)?;
        ring.submitter()
            .register_eventfd(event.as_fd().as_raw_fd())?;
        Ok(Bell(ring))
    }

    /// Raises the event's counter; one that is full is raised already.
    pub fn raise(&mut self) {
        let entry = opcode::Nop::new().build();
        // SAFETY: the entry refers to no memory. An entry left by an earlier failure is submitted
        // now.
        let _ = unsafe { self.0.submission().push(&entry) };
        // A failure loses a notification; no caller can repeat it.
        let _ = self.0.submit();
        self.0.completion().for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;

    fn event() -> File {
        // SAFETY: no pointers are involved, and the new descriptor has no other owner.
        unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) }
    }

    #[test]
    fn an_event_that_is_full_and_blocks_is_raised_without_waiting() {
        let event = event();
        let mut bell = Bell::new(&event).unwrap();
        let count = || {
            let mut count = [0; 8];
            (&event).read_exact(&mut count).unwrap();
            u64::from_ne_bytes(count)
        };
        bell.raise();
        bell.raise();
        assert_eq!(count(), 2);
        let full = u64::MAX - 1;
        (&event).write_all(&full.to_ne_bytes()).unwrap();
        (0..9).for_each(|_| bell.raise());
        assert!(count() >= full);
        bell.raise();
        assert_eq!(count(), 1);
        // The eventfd's maker is gone.
        drop(event);
        bell.raise();
    }

    #[test]
    fn what_is_no_event_is_refused() {
        assert!(Bell::new(File::open("/dev/null").unwrap()).is_err());
    }
}
