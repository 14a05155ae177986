//! Volumes as disks of virtual machines: the frontend of vhost-user-blk.

use super::UringPlatform;
use block::{Device, Gate, IoResult, Nanos};
use control::config::Config;
use control::status::Status;
use futures_util::future::join_all;
use node::{About, Door, Frontend, Later, Platform, frontend_memory};
use port::{Options, Server};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use uring::UringDriver;
use virtio::{Listener, Shape, VirtioPort};

/// Offers each volume that the configuration has a socket for.
pub struct VirtioFrontend {
    platform: UringPlatform,
    wanted: BTreeMap<String, Vec<Wanted>>,
    /// The bytes that each socket may have in hand.
    memory: usize,
    open: RefCell<BTreeMap<String, Vec<Open>>>,
}

struct Wanted {
    socket: PathBuf,
    depth: u16,
}

struct Open {
    place: String,
    listener: Listener,
    server: Rc<Server<VirtioPort, Door<UringDriver>>>,
}

impl VirtioFrontend {
    /// For the volumes of `config`.
    pub fn new(config: &Config, platform: &UringPlatform) -> VirtioFrontend {
        let mut wanted: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
        for (volume, listen) in config.guests() {
            let socket = listen
                .vhost_user
                .as_ref()
                .map(|socket| socket.value.clone());
            let depth = listen.depth.value as u16;
            let socket = socket.map(|socket| Wanted { socket, depth });
            wanted.entry(volume).or_default().extend(socket);
        }
        let memory = frontend_memory(config, &platform.local().env());
        VirtioFrontend {
            platform: platform.clone(),
            memory: memory / config.guests().count().max(1),
            wanted,
            open: RefCell::default(),
        }
    }

    /// The sockets that are listened on.
    pub fn sockets(&self) -> Vec<String> {
        let open = self.open.borrow();
        open.values()
            .flatten()
            .map(|open| open.place.clone())
            .collect()
    }

    fn listen(
        &self,
        wanted: &Wanted,
        name: &str,
        gate: Gate<Door<UringDriver>>,
        about: &About,
    ) -> IoResult<Open> {
        let shape = Shape {
            geometry: gate.device().geometry().clone(),
            read_only: about.read_only,
            name: name.to_owned(),
            depth: wanted.depth,
        };
        // Of a thread, which the platform is not for.
        let log = Arc::new(|line: String| eprintln!("hotset: {line}"));
        let (listener, port) = Listener::begin(&wanted.socket, shape, log)?;
        let options = Options {
            read_only: about.read_only,
            memory_bytes_max: self.memory,
        };
        let env = self.platform.local().env();
        Ok(Open {
            place: format!("vhost-user:{}", wanted.socket.display()),
            listener,
            server: Server::begin(port, gate, options, env),
        })
    }
}

impl Frontend<Door<UringDriver>> for VirtioFrontend {
    fn add(&self, name: &str, gate: Gate<Door<UringDriver>>, about: &About) -> IoResult {
        let Some(wanted) = self.wanted.get(name) else {
            return Ok(());
        };
        let listen = |wanted| self.listen(wanted, name, gate.clone(), about);
        let opened = wanted.iter().map(listen).collect::<IoResult<_>>()?;
        self.open.borrow_mut().insert(name.to_owned(), opened);
        Ok(())
    }

    fn withdraw<'a>(&'a self, name: &'a str, grace: Nanos) -> Later<'a, IoResult> {
        Box::pin(async move {
            let opened = self.open.borrow_mut().remove(name).unwrap_or_default();
            let ends = opened.into_iter().map(|open| async move {
                open.server.stop(grace).await;
                drop(open.listener);
                open.server.ended().await;
            });
            join_all(ends).await;
            Ok(())
        })
    }

    fn shut_down(&self, grace: Nanos) -> Later<'_, ()> {
        Box::pin(async move {
            // What is not answered stays marked in the guests' memory, for the next daemon.
            let open = std::mem::take(&mut *self.open.borrow_mut());
            join_all(open.values().flatten().map(|open| open.server.stop(grace))).await;
        })
    }

    fn stats(&self, _status: &mut Status) {}
}
