//! The events by which a guest says that there are requests, on their way from the thread that
//! gets them to the shard that waits for them.
//!
//! Invariant: a ring has one event at a time, the last that its monitor gave. That of a ring
//! that is stopped rouses the port for nothing, which harms nobody.

use crate::device::Door;
use crate::log::Topic;
use crate::shape::QUEUES_MAX;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What becomes of the rings' events.
pub enum Kick {
    /// The ring of that number has this eventfd from now on.
    Of(u16, OwnedFd),
    /// Their monitor has gone: no ring has one.
    Gone,
}

/// The events of a disk's rings, as its monitors give them.
pub struct Kicks {
    given: mpsc::Receiver<Kick>,
    door: Arc<Door>,
}

impl Kicks {
    /// What is next; `None` once the disk is not offered any more.
    pub async fn next(&mut self) -> Option<Kick> {
        self.given.next().await
    }

    /// Says that a ring is not served, for its event cannot be waited for.
    pub fn refused(&self, ring: u16, why: impl fmt::Display) {
        let mut device = self.door.lock();
        let name = &device.shape.name;
        let line = format!("queue {ring} of the guest of volume {name} is not served: {why}");
        device.log.say(Topic::Broken, &line);
    }

    /// What is to be called when an event was raised: whether that brought a request.
    pub fn raised(&self) -> impl Fn() -> bool + use<> {
        let door = self.door.clone();
        move || door.lock().rouse()
    }
}

/// Where the disk's thread puts events. One that has no room waits: a monitor that gives events
/// faster than they are taken holds up itself.
#[derive(Clone)]
pub(crate) struct Sender(mpsc::Sender<Kick>);

/// How long is waited for room.
const ROOM: Duration = Duration::from_millis(1);

impl Sender {
    pub(crate) fn send(&mut self, ring: u16, event: File) {
        self.put(Kick::Of(ring, event.into()));
    }

    pub(crate) fn end(&mut self) {
        self.put(Kick::Gone);
    }

    fn put(&mut self, mut kick: Kick) {
        // Nobody waits for a disk that ends.
        while let Err(full) = self.0.try_send(kick)
            && full.is_full()
        {
            kick = full.into_inner();
            std::thread::sleep(ROOM);
        }
    }
}

pub(crate) fn channel(door: &Arc<Door>) -> (Sender, Kicks) {
    let (sender, given) = mpsc::channel(usize::from(QUEUES_MAX));
    let door = door.clone();
    (Sender(sender), Kicks { given, door })
}

/// Whether a descriptor is an eventfd: anything else may be raised for ever.
pub(crate) fn is_event(file: &File) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}
