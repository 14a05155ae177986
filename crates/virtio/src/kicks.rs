//! The events by which a guest announces requests, in transfer from the thread that receives them
//! to the shards that wait for them.
//!
//! Invariant: a ring has one event at a time, the last from its monitor. The event of a stopped
//! ring wakes the port without a request, which is harmless.

use crate::device::{DiskLock, DiskParts, part_of};
use crate::log::GuestTopic;
use crate::shape::QUEUES_MAX;
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A change of the rings' events.
pub enum Kick {
    /// The ring of that number has this eventfd from now on.
    Of(u16, OwnedFd),
    /// The monitor is gone: no ring has an event.
    Gone,
}

/// The events of the rings of a part of a disk, from its monitors.
pub struct Kicks {
    given: mpsc::Receiver<Kick>,
    disk: Arc<DiskLock>,
}

impl Kicks {
    /// Returns the next change; `None` once the disk is not offered any more.
    pub async fn next(&mut self) -> Option<Kick> {
        self.given.next().await
    }

    /// Logs that a ring is not served, since its event cannot be waited for.
    pub fn refused(&self, ring: u16, why: impl fmt::Display) {
        let mut device = self.disk.lock();
        let name = &device.shape.name;
        let line = format!("queue {ring} of the guest of volume {name} is not served: {why}");
        device.log.say(GuestTopic::Broken, &line);
    }

    /// Returns the function to call on an event. Its result is true if a request was there.
    pub fn raised(&self) -> impl Fn() -> bool + use<> {
        let disk = self.disk.clone();
        move || disk.lock().rouse()
    }
}

/// The sender of the disk's thread, with a channel for each part. A full one makes it wait: a
/// monitor that sends events too fast slows down only itself.
#[derive(Clone)]
pub(crate) struct Sender(Vec<mpsc::Sender<Kick>>);

/// Pause before the next attempt on a full channel.
const ROOM: Duration = Duration::from_millis(1);

impl Sender {
    pub(crate) fn send(&mut self, ring: u16, event: File) {
        let part = part_of(ring.into(), self.0.len());
        put(&mut self.0[part], Kick::Of(ring, event.into()));
    }

    pub(crate) fn end(&mut self) {
        self.0.iter_mut().for_each(|part| put(part, Kick::Gone));
    }
}

fn put(part: &mut mpsc::Sender<Kick>, mut kick: Kick) {
    // A disk that ends is not waited for.
    while let Err(full) = part.try_send(kick)
        && full.is_full()
    {
        kick = full.into_inner();
        std::thread::sleep(ROOM);
    }
}

/// Returns the sender, and the receiver of each part.
pub(crate) fn channels(disk: &DiskParts) -> (Sender, Vec<Kicks>) {
    let channel = |disk: &Arc<DiskLock>| {
        let (sender, given) = mpsc::channel(usize::from(QUEUES_MAX));
        let disk = disk.clone();
        (sender, Kicks { given, disk })
    };
    let (senders, kicks) = disk.all().map(channel).unzip();
    (Sender(senders), kicks)
}

/// Returns true if a descriptor is an eventfd: any other may be readable for ever.
pub(crate) fn is_event(file: &File) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}
