//! Volumes as disks of virtual machines: the frontend of vhost-user-blk.

use super::UringPlatform;
use super::served::ServedPorts;
use crate::log;
use block::{Device, Env, IoResult, Nanos, Stream};
use control::frontends::GuestDisk;
use control::status::Status;
use futures_util::future::join_all;
use node::{Frontend, Later, Platform, Priority, ServedVolume, VolumeAbout, VolumeGate};
use port::Options;
use shard::Local;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use uring::{Bell, Uring, UringDriver};
use virtio::{Bells, GuestDiskShape, GuestListener, GuestPart, Kick, Kicks, Log, VirtioPort};

/// The bytes of a received event.
const COUNT_BYTES: usize = 8;
/// Events in a row that bring no request, after which the wait for further ones is slower. A busy
/// guest has some: their requests were found before their event.
const IDLE_EVENTS_MAX: u32 = 1024;
/// The pause before each of those.
const IDLE_PAUSE: Nanos = Nanos::from_millis(2);

/// Offers each volume at its sockets for virtual machines.
pub struct VirtioFrontend {
    platform: UringPlatform,
    host: Uring,
    open: RefCell<BTreeMap<String, Vec<OpenListener>>>,
}

struct OpenListener {
    guest: GuestDisk,
    listener: GuestListener,
    served: ServedPorts<VirtioPort>,
}

impl OpenListener {
    fn address(&self) -> String {
        format!("vhost-user:{}", self.guest.socket.display())
    }

    async fn end(self, grace: Nanos) {
        self.served.stop(grace).await;
        drop(self.listener);
        self.served.ended().await;
        self.served.close();
    }
}

impl VirtioFrontend {
    /// A frontend without a volume.
    pub fn new(platform: &UringPlatform, host: Uring) -> VirtioFrontend {
        VirtioFrontend {
            platform: platform.clone(),
            host,
            open: RefCell::default(),
        }
    }

    /// The sockets that are listened on.
    pub fn sockets(&self) -> Vec<String> {
        let open = self.open.borrow();
        open.values().flatten().map(OpenListener::address).collect()
    }

    /// Listens for all of `guests`, or for none.
    fn listen_all<'a>(
        &self,
        guests: impl IntoIterator<Item = &'a GuestDisk>,
        name: &str,
        gate: &VolumeGate<UringDriver>,
        about: &VolumeAbout,
    ) -> IoResult<Vec<OpenListener>> {
        let mut opened = Vec::<OpenListener>::new();
        for guest in guests {
            let listening = self.listen(guest, name, gate.clone(), about);
            let listening =
                listening.inspect_err(|_| opened.iter().for_each(|open| open.served.close()));
            opened.push(listening?);
        }
        Ok(opened)
    }

    fn listen(
        &self,
        guest: &GuestDisk,
        name: &str,
        gate: VolumeGate<UringDriver>,
        about: &VolumeAbout,
    ) -> IoResult<OpenListener> {
        let mut geometry = gate.device().geometry().clone();
        geometry.block = about.block;
        let shape = GuestDiskShape {
            geometry,
            read_only: about.read_only,
            name: name.to_owned(),
            depth: guest.depth as u16,
        };
        // For a thread of the listener, which cannot use the platform.
        let log: Log = Arc::new(|line| log::line(Priority::Warning, &line));
        let bells: Bells = Arc::new(|event| {
            let mut bell = Bell::new(event)?;
            Ok(Box::new(move || bell.raise()))
        });
        let local = self.platform.local();
        let shards = local.mesh().shards() as usize;
        let begun = GuestListener::begin(&guest.socket, &shape, shards, bells, &log);
        let (listener, parts) = begun?;
        let options = Options {
            read_only: about.read_only,
            memory_bytes_max: about.memory_bytes_max,
        };
        let serve = |part: GuestPart| {
            let host = self.host.clone();
            move |shard: &Local<UringDriver>| {
                let waiting = follow(part.kicks, shard.clone(), host);
                shard.env().spawn.spawn(waiting);
                Ok(part.port)
            }
        };
        let ports = parts.into_iter().map(serve).collect();
        // No part fails to begin, so none is waited for.
        let (served, _) = ServedPorts::begin(local, gate, options, ports)?;
        Ok(OpenListener {
            guest: guest.clone(),
            listener,
            served,
        })
    }
}

/// Waits for the events of a part's rings until the disk is no longer offered.
async fn follow(mut kicks: Kicks, local: Local<UringDriver>, host: Uring) {
    let mut rings: BTreeMap<_, Rc<shard::ShardSocket<UringDriver>>> = BTreeMap::new();
    while let Some(kick) = kicks.next().await {
        let (ring, event) = match kick {
            Kick::Of(ring, event) => (ring, event),
            Kick::Gone => {
                let gone = std::mem::take(&mut rings);
                gone.into_values().for_each(|event| event.close());
                continue;
            }
        };
        let event = match host.open_event(event) {
            Ok(event) => Rc::new(local.stream(event)),
            Err(error) => {
                kicks.refused(ring, error);
                continue;
            }
        };
        let env = local.env();
        env.spawn
            .spawn(listen(event.clone(), kicks.raised(), local.env()));
        if let Some(before) = rings.insert(ring, event) {
            before.close();
        }
    }
    rings.into_values().for_each(|event| event.close());
}

/// Waits for one ring's event until that is closed. A monitor may raise the event for ever without
/// a request: that is to cost the shard little.
async fn listen(event: Rc<impl Stream>, raised: impl Fn() -> bool, env: Env) {
    let mut count = env.pool.get(COUNT_BYTES).await;
    let mut idle = 0;
    loop {
        match event.recv(count).await {
            (back, Ok(COUNT_BYTES)) => count = back,
            _ => return,
        }
        idle = if raised() { 0 } else { idle + 1 };
        if idle > IDLE_EVENTS_MAX {
            idle = IDLE_EVENTS_MAX;
            env.timer.sleep(IDLE_PAUSE).await;
            // This call finds the requests from before the pause, and those of the next event.
            raised();
        }
    }
}

impl Frontend<ServedVolume<UringDriver>> for VirtioFrontend {
    fn add(&self, name: &str, gate: VolumeGate<UringDriver>, about: &VolumeAbout) -> IoResult {
        let opened = self.listen_all(&about.frontends.guests, name, &gate, about)?;
        self.open.borrow_mut().insert(name.to_owned(), opened);
        Ok(())
    }

    fn change<'a>(
        &'a self,
        name: &'a str,
        gate: &'a VolumeGate<UringDriver>,
        about: &'a VolumeAbout,
        grace: Nanos,
    ) -> Later<'a, IoResult> {
        Box::pin(async move {
            let open = self.open.borrow_mut().remove(name).unwrap_or_default();
            let wanted = &about.frontends.guests;
            let stays = |open: &OpenListener| wanted.contains(&open.guest);
            let (mut open, gone): (Vec<_>, Vec<_>) = open.into_iter().partition(stays);
            join_all(gone.into_iter().map(|gone| gone.end(grace))).await;
            let is_open = |guest: &&GuestDisk| open.iter().any(|open| open.guest == **guest);
            let new: Vec<_> = wanted.iter().filter(|guest| !is_open(guest)).collect();
            let opened = self.listen_all(new, name, gate, about);
            let done = opened.map(|opened| open.extend(opened));
            self.open.borrow_mut().insert(name.to_owned(), open);
            done
        })
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            let opened = self.open.borrow_mut().remove(name).unwrap_or_default();
            join_all(opened.into_iter().map(|open| open.end(grace))).await;
            Ok(())
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            // Unanswered requests stay marked in the guests' memory, for the next daemon.
            let open = std::mem::take(&mut *self.open.borrow_mut());
            join_all(open.values().flatten().map(|open| open.served.stop(grace))).await;
        })
    }

    fn addresses(&self, name: &str) -> Vec<String> {
        let open = self.open.borrow();
        let its = open.get(name).into_iter().flatten();
        its.map(OpenListener::address).collect()
    }

    fn stats(&self, _status: &mut Status) {}
}
