//! The events by which a guest says that there are requests, on their way from the thread that
//! gets them to the shard that waits for them.
//!
//! Invariant: a ring has one event at a time, the last that its monitor gave. That of a ring
//! that is stopped rouses the port for nothing, which harms nobody.

use crate::device::Door;
use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A ring's event.
pub struct Kick {
    /// The number of the ring.
    pub ring: u16,
    /// An eventfd.
    pub event: OwnedFd,
}

/// The events of a disk's rings, as its monitors give them.
pub struct Kicks {
    given: UnboundedReceiver<Kick>,
    door: Arc<Door>,
}

impl Kicks {
    /// The next event, which takes the place of an earlier one of the same ring; `None` once the
    /// disk is not offered any more.
    pub async fn next(&mut self) -> Option<Kick> {
        self.given.next().await
    }

    /// What is to be called when an event was raised.
    pub fn raised(&self) -> impl Fn() + use<> {
        let door = self.door.clone();
        move || door.lock().rouse()
    }
}

/// Where the disk's thread puts events.
#[derive(Clone)]
pub(crate) struct Sender(UnboundedSender<Kick>);

impl Sender {
    pub(crate) fn send(&self, ring: u16, event: File) {
        // Nobody waits for a disk that ends.
        let event = event.into();
        let _ = self.0.unbounded_send(Kick { ring, event });
    }
}

pub(crate) fn channel(door: &Arc<Door>) -> (Sender, Kicks) {
    let (sender, given) = unbounded();
    let door = door.clone();
    (Sender(sender), Kicks { given, door })
}

/// Whether a descriptor is an eventfd: anything else may be raised for ever.
pub(crate) fn is_event(file: &File) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}
