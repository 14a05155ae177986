//! An event of a peer's, which is raised without ever waiting for it.
//!
//! A write to an eventfd whose counter is full waits unless its file is non-blocking, and that is
//! a flag of the open file, which the peer has too and may take back at any moment. The kernel
//! itself never waits to raise one: so a ring raises it that has it registered, by a completion.

use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Raises an eventfd.
pub struct Bell(IoUring);

impl Bell {
    /// Of an eventfd; `Err` if it is none.
    pub fn new(event: impl AsFd) -> io::Result<Bell> {
        let ring = IoUring::new(1)?;
        ring.submitter()
            .register_eventfd(event.as_fd().as_raw_fd())?;
        Ok(Bell(ring))
    }

    /// Raises the event's counter; one that is full is raised already.
    pub fn raise(&mut self) {
        let entry = opcode::Nop::new().build();
        // SAFETY: it refers to nothing. What a failure has left there is submitted now.
        let _ = unsafe { self.0.submission().push(&entry) };
        // A failure loses a notification, which nobody here can repeat.
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
        // SAFETY: no pointers are involved, and what it makes is owned by nobody else.
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
        // Whoever made it is gone.
        drop(event);
        bell.raise();
    }

    #[test]
    fn what_is_no_event_is_refused() {
        assert!(Bell::new(File::open("/dev/null").unwrap()).is_err());
    }
}
